/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/ends.h"
#include "vmm/layout.h"
#include <string.h>

/* Events of pvpanic (QEMU's docs/specs/pvpanic). */
enum { PVPANIC_PANICKED = 1 << 0, PVPANIC_CRASH_LOADED = 1 << 1 };

static void read_poweroff(void *context, uint64_t offset, void *data, uint32_t length)
{
	(void)context;
	(void)offset;
	memset(data, 0, length);
}

static void write_poweroff(void *context, uint64_t offset, const void *data, uint32_t length)
{
	struct ends *ends = context;
	uint32_t value;

	if (offset != LAYOUT_POWEROFF_OFFSET || length != sizeof(value))
		return;
	memcpy(&value, data, sizeof(value));
	if (value == LAYOUT_POWEROFF_VALUE)
		ends->end(ends->context, VMM_END_POWEROFF, "the guest powered off");
}

static void read_pvpanic(void *context, uint64_t offset, void *data, uint32_t length)
{
	uint8_t events = PVPANIC_PANICKED | PVPANIC_CRASH_LOADED;

	(void)context;
	memset(data, 0, length);
	if (offset == 0)
		memcpy(data, &events, sizeof(events));
}

static void write_pvpanic(void *context, uint64_t offset, const void *data, uint32_t length)
{
	struct ends *ends = context;
	uint8_t events;

	if (offset != 0 || length != sizeof(events))
		return;
	memcpy(&events, data, sizeof(events));
	/* A crash kernel is loaded: it runs now and ends the guest itself. */
	if (events & PVPANIC_PANICKED)
		ends->end(ends->context, VMM_END_PANIC, "the guest's kernel panicked");
}

/* An idle controller: its input buffer is empty, so nobody waits for it. */
static void read_reset(void *context, uint64_t offset, void *data, uint32_t length)
{
	(void)context;
	(void)offset;
	memset(data, 0, length);
}

static void write_reset(void *context, uint64_t offset, const void *data, uint32_t length)
{
	struct ends *ends = context;
	uint8_t value;

	(void)offset;
	if (length != sizeof(value))
		return;
	memcpy(&value, data, sizeof(value));
	if (value == LAYOUT_RESET_VALUE)
		ends->end(ends->context, VMM_END_REBOOT, "the guest asked for a reset");
}

static const struct bus_ops poweroff_ops = {.read = read_poweroff, .write = write_poweroff};
static const struct bus_ops pvpanic_ops = {.read = read_pvpanic, .write = write_pvpanic};
static const struct bus_ops reset_ops = {.read = read_reset, .write = write_reset};

int ends_add(struct ends *ends, struct bus *ports, struct bus *mmio)
{
	int r = bus_add(mmio, LAYOUT_POWEROFF_BASE, LAYOUT_POWEROFF_SIZE, &poweroff_ops, ends, "power-off");

	if (r == 0)
		r = bus_add(mmio, LAYOUT_PVPANIC_BASE, LAYOUT_PVPANIC_SIZE, &pvpanic_ops, ends, "pvpanic");
	if (r == 0)
		r = bus_add(ports, LAYOUT_RESET_PORT, 1, &reset_ops, ends, "reset");
	return r;
}
