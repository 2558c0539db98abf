/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/ioapic.h"
#include "vmm/state.h"
#include <errno.h>
#include <string.h>

/* Register layout of the 82093AA (Intel 290566, section 3.2) and of MSI messages (SDM volume 3, 11.11). */
enum {
	VERSION = 0x11,
	VERSION_LAST_PIN_SHIFT = 16,
	ID_SHIFT = 24,
	ID_MASK = 0x0f,

	ENTRY_VECTOR = 0xff,
	ENTRY_DELIVERY_MODE = 0x700, /* stands at the same bits in MSI data */
	ENTRY_LOGICAL = 1 << 11,
	ENTRY_DESTINATION_SHIFT = 56,

	MSI_LOGICAL = 1 << 2,
	MSI_DESTINATION_SHIFT = 12,
	MSI_ASSERT = 1 << 14,
};

#define MSI_ADDRESS 0xfee00000ull
#define ENTRY_WRITABLE                                                                                       \
	0xff0000000001afffull /* delivery status (12) and remote IRR (14) are read-only: zero */

int ioapic_init(struct ioapic *ioapic, unsigned pins, const struct ioapic_ops *ops, void *context)
{
	memset(ioapic, 0, sizeof(*ioapic));
	if (pins < 1 || pins > IOAPIC_PINS_MAX)
		return -EINVAL;
	pthread_mutex_init(&ioapic->lock, NULL);
	ioapic->ops = ops;
	ioapic->context = context;
	ioapic->count = pins;
	for (unsigned i = 0; i < pins; i++)
		ioapic->pins[i] = (struct ioapic_pin){.entry = IOAPIC_ENTRY_MASKED};
	return 0;
}

void ioapic_finish(struct ioapic *ioapic)
{
	if (ioapic->count > 0)
		pthread_mutex_destroy(&ioapic->lock);
	ioapic->count = 0;
}

/* The route is made from the entry `routed`. */
static void make_route(struct ioapic *ioapic, unsigned pin)
{
	uint64_t entry = ioapic->pins[pin].routed;
	uint64_t address = MSI_ADDRESS | (entry >> ENTRY_DESTINATION_SHIFT) << MSI_DESTINATION_SHIFT;

	if (entry & ENTRY_LOGICAL)
		address |= MSI_LOGICAL;
	ioapic->ops->route(ioapic->context, pin, address,
		(uint32_t)(entry & (ENTRY_VECTOR | ENTRY_DELIVERY_MODE)) | MSI_ASSERT);
}

static void route_pin(struct ioapic *ioapic, unsigned pin)
{
	struct ioapic_pin *state = &ioapic->pins[pin];

	if (state->has_route && state->routed == state->entry)
		return;
	state->has_route = true;
	state->routed = state->entry;
	make_route(ioapic, pin);
}

static void write_entry(struct ioapic *ioapic, unsigned pin, bool high, uint32_t value)
{
	struct ioapic_pin *state = &ioapic->pins[pin];

	if (high)
		state->entry = (state->entry & UINT32_MAX) | (uint64_t)value << 32;
	else
		state->entry = (state->entry & ~(uint64_t)UINT32_MAX) | value;
	state->entry &= ENTRY_WRITABLE;
	if (state->entry & IOAPIC_ENTRY_MASKED)
		return;
	route_pin(ioapic, pin);
	if (state->latched) {
		state->latched = false;
		ioapic->ops->raise(ioapic->context, pin);
	}
}

static uint32_t read_register(const struct ioapic *ioapic)
{
	unsigned pin = (ioapic->select - IOAPIC_REG_REDIRECTION) / 2;

	switch (ioapic->select) {
	case IOAPIC_REG_ID:
	case IOAPIC_REG_ARBITRATION:
		return ioapic->id << ID_SHIFT;
	case IOAPIC_REG_VERSION:
		return VERSION | (ioapic->count - 1) << VERSION_LAST_PIN_SHIFT;
	}
	if (ioapic->select < IOAPIC_REG_REDIRECTION || pin >= ioapic->count)
		return 0;
	return (uint32_t)(ioapic->pins[pin].entry >> (ioapic->select % 2 ? 32 : 0));
}

static void write_register(struct ioapic *ioapic, uint32_t value)
{
	unsigned pin = (ioapic->select - IOAPIC_REG_REDIRECTION) / 2;

	if (ioapic->select == IOAPIC_REG_ID)
		ioapic->id = value >> ID_SHIFT & ID_MASK;
	if (ioapic->select < IOAPIC_REG_REDIRECTION || pin >= ioapic->count)
		return;
	write_entry(ioapic, pin, ioapic->select % 2, value);
}

void ioapic_read(struct ioapic *ioapic, uint64_t offset, void *data, uint32_t length)
{
	uint32_t value = 0;

	memset(data, 0, length);
	if (length != sizeof(value))
		return;
	pthread_mutex_lock(&ioapic->lock);
	if (offset == IOAPIC_REGSEL)
		value = ioapic->select;
	else if (offset == IOAPIC_WINDOW)
		value = read_register(ioapic);
	pthread_mutex_unlock(&ioapic->lock);
	memcpy(data, &value, sizeof(value));
}

void ioapic_write(struct ioapic *ioapic, uint64_t offset, const void *data, uint32_t length)
{
	uint32_t value;

	if (length != sizeof(value))
		return;
	memcpy(&value, data, sizeof(value));
	pthread_mutex_lock(&ioapic->lock);
	if (offset == IOAPIC_REGSEL)
		ioapic->select = value & 0xff;
	else if (offset == IOAPIC_WINDOW)
		write_register(ioapic, value);
	pthread_mutex_unlock(&ioapic->lock);
}

void ioapic_raise(struct ioapic *ioapic, unsigned pin)
{
	if (pin >= ioapic->count)
		return;
	pthread_mutex_lock(&ioapic->lock);
	if (ioapic->pins[pin].entry & IOAPIC_ENTRY_MASKED)
		ioapic->pins[pin].latched = true;
	else
		ioapic->ops->raise(ioapic->context, pin);
	pthread_mutex_unlock(&ioapic->lock);
}

void ioapic_save(struct ioapic *ioapic, struct state_writer *state)
{
	pthread_mutex_lock(&ioapic->lock);
	state_put_u32(state, ioapic->count);
	state_put_u32(state, ioapic->select);
	state_put_u32(state, ioapic->id);
	for (unsigned i = 0; i < ioapic->count; i++) {
		state_put_u64(state, ioapic->pins[i].entry);
		state_put_u64(state, ioapic->pins[i].routed);
		state_put_bool(state, ioapic->pins[i].has_route);
		state_put_bool(state, ioapic->pins[i].latched);
	}
	pthread_mutex_unlock(&ioapic->lock);
}

static void load_pin(struct ioapic *ioapic, unsigned pin, struct state_reader *state)
{
	struct ioapic_pin *to = &ioapic->pins[pin];

	to->entry = state_get_u64(state);
	to->routed = state_get_u64(state);
	to->has_route = state_get_bool(state);
	to->latched = state_get_bool(state);
	/* A route was made while the pin was unmasked; an edge is latched while it is masked. */
	if ((to->entry & ~ENTRY_WRITABLE) || (to->routed & ~ENTRY_WRITABLE) ||
		(to->routed & IOAPIC_ENTRY_MASKED) || (!to->has_route && to->routed) ||
		(!(to->entry & IOAPIC_ENTRY_MASKED) &&
			(to->latched || !to->has_route || to->routed != to->entry)))
		state_refuse(state);
	else if (to->has_route && !state->error)
		make_route(ioapic, pin);
}

void ioapic_load(struct ioapic *ioapic, struct state_reader *state)
{
	pthread_mutex_lock(&ioapic->lock);
	if (state_get_u32(state) != ioapic->count)
		state_refuse(state);
	ioapic->select = state_get_count(state, UINT8_MAX);
	ioapic->id = state_get_count(state, ID_MASK);
	for (unsigned i = 0; i < ioapic->count; i++)
		load_pin(ioapic, i, state);
	pthread_mutex_unlock(&ioapic->lock);
}
