/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bus, and the IOAPIC and the serial port on it, with accesses of any width at any address. The bus and
 * the IOAPIC are held against second accounts of them; a route is made, and a line raised, only while the pin
 * is unmasked, and an edge is neither lost nor doubled.
 */
#include "tests/fuzz/support/fuzz.h"
#include "vmm/bus.h"
#include "vmm/ioapic.h"
#include "vmm/serial.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
	PINS = 5,
	IOAPIC_BYTES = 0x1000,
	SERIAL_BASE = 0x3f8,
	SERIAL_PORTS = 8,
	WIDTH_MAX = 8,
	MASKED = 1 << 16,
};
#define IOAPIC_BASE 0xfec00000ull
#define WRITABLE 0xff0000000001afffull /* of a redirection entry: 82093AA, 3.2.4 */

struct fuzz {
	struct fuzz_input *input;
	struct bus bus;
	struct ioapic ioapic;
	struct serial serial;
	int output;

	struct {
		uint64_t base, size;
	} windows[BUS_WINDOWS_MAX];
	unsigned window_count;

	uint64_t accesses; /* that a window answered */

	uint32_t select, id;
	uint64_t entries[PINS], routed[PINS];
	bool latched[PINS];
	unsigned raised, expected;
};

/* what the IOAPIC does */

static void on_route(void *context, unsigned pin, uint64_t address, uint32_t data)
{
	struct fuzz *fuzz = context;
	uint64_t entry;

	FUZZ_ASSERT(pin < PINS);
	entry = fuzz->ioapic.pins[pin].entry;
	FUZZ_ASSERT(!(entry & MASKED) && entry != fuzz->routed[pin]);
	FUZZ_ASSERT(address == (0xfee00000ull | (entry >> 56) << 12 | (entry & 0x800 ? 4 : 0)));
	FUZZ_ASSERT(data == ((entry & 0x7ff) | 0x4000));
	fuzz->routed[pin] = entry;
}

static void on_raise(void *context, unsigned pin)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(pin < PINS && !(fuzz->ioapic.pins[pin].entry & MASKED));
	FUZZ_ASSERT(fuzz->routed[pin] == fuzz->ioapic.pins[pin].entry);
	fuzz->raised++;
}

static const struct ioapic_ops ioapic_ops = {.route = on_route, .raise = on_raise};

/* a second account of it */

static unsigned selected_pin(const struct fuzz *fuzz)
{
	return fuzz->select < 0x10 ? PINS : (fuzz->select - 0x10) / 2;
}

static uint32_t model_read(const struct fuzz *fuzz, uint64_t offset)
{
	unsigned pin = selected_pin(fuzz);

	if (offset == 0)
		return fuzz->select;
	if (offset != 0x10)
		return 0;
	if (fuzz->select == 1)
		return 0x11 | (PINS - 1) << 16;
	if (fuzz->select == 0 || fuzz->select == 2)
		return fuzz->id << 24;
	return pin < PINS ? (uint32_t)(fuzz->entries[pin] >> (fuzz->select & 1 ? 32 : 0)) : 0;
}

static void model_write(struct fuzz *fuzz, uint64_t offset, uint32_t value)
{
	unsigned pin = selected_pin(fuzz);

	if (offset == 0)
		fuzz->select = value & 0xff;
	if (offset != 0x10)
		return;
	if (fuzz->select == 0)
		fuzz->id = value >> 24 & 15;
	if (pin >= PINS)
		return;
	if (fuzz->select & 1)
		fuzz->entries[pin] = (uint32_t)fuzz->entries[pin] | (uint64_t)value << 32;
	else
		fuzz->entries[pin] = fuzz->entries[pin] >> 32 << 32 | value;
	fuzz->entries[pin] &= WRITABLE;
	if (!(fuzz->entries[pin] & MASKED) && fuzz->latched[pin]) {
		fuzz->latched[pin] = false;
		fuzz->expected++;
	}
}

/* windows */

static void read_ioapic(void *context, uint64_t offset, void *data, uint32_t length)
{
	struct fuzz *fuzz = context;
	uint32_t value;

	FUZZ_ASSERT(offset < IOAPIC_BYTES && length <= IOAPIC_BYTES - offset);
	fuzz->accesses++;
	ioapic_read(&fuzz->ioapic, offset, data, length);
	if (length != sizeof(value))
		return;
	memcpy(&value, data, sizeof(value));
	FUZZ_ASSERT(value == model_read(fuzz, offset));
}

static void write_ioapic(void *context, uint64_t offset, const void *data, uint32_t length)
{
	struct fuzz *fuzz = context;
	uint32_t value;

	fuzz->accesses++;
	if (length == sizeof(value)) {
		memcpy(&value, data, sizeof(value));
		model_write(fuzz, offset, value);
	}
	ioapic_write(&fuzz->ioapic, offset, data, length);
}

static void read_serial(void *context, uint64_t offset, void *data, uint32_t length)
{
	struct fuzz *fuzz = context;

	fuzz->accesses++;
	serial_read(&fuzz->serial, offset, data, length);
}

static void write_serial(void *context, uint64_t offset, const void *data, uint32_t length)
{
	struct fuzz *fuzz = context;

	fuzz->accesses++;
	serial_write(&fuzz->serial, offset, data, length);
}

/* Neither reads nor writes: all-ones, and nothing. */
static const struct bus_ops ioapic_window = {.read = read_ioapic, .write = write_ioapic},
			    serial_window = {.read = read_serial, .write = write_serial}, empty_window = {0};

static bool overlaps(const struct fuzz *fuzz, uint64_t base, uint64_t size)
{
	for (unsigned i = 0; i < fuzz->window_count; i++)
		if (base <= fuzz->windows[i].base + (fuzz->windows[i].size - 1) &&
			fuzz->windows[i].base <= base + (size - 1))
			return true;
	return false;
}

static void add_window(
	struct fuzz *fuzz, uint64_t base, uint64_t size, const struct bus_ops *ops, const char *name)
{
	int wanted = 0, r = bus_add(&fuzz->bus, base, size, ops, fuzz, name);

	if (size == 0 || size - 1 > UINT64_MAX - base)
		wanted = -EINVAL;
	else if (overlaps(fuzz, base, size))
		wanted = -EEXIST;
	else if (fuzz->window_count == BUS_WINDOWS_MAX)
		wanted = -ENOSPC;
	FUZZ_ASSERT(r == wanted);
	if (r < 0)
		return;
	fuzz->windows[fuzz->window_count].base = base;
	fuzz->windows[fuzz->window_count].size = size;
	fuzz->window_count++;
}

/* steps */

static uint64_t some_address(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input);

	switch (choice & 7) {
	case 0:
		return fuzz_u64(fuzz->input);
	case 1:
		return SERIAL_BASE - 4 + (choice >> 3);
	case 2:
		return IOAPIC_BASE + IOAPIC_BYTES - (choice >> 3);
	case 3:
		return IOAPIC_BASE + fuzz_u16(fuzz->input);
	default:
		return IOAPIC_BASE + (choice & 8 ? IOAPIC_WINDOW : IOAPIC_REGSEL);
	}
}

static uint64_t count_strays(struct fuzz *fuzz)
{
	uint64_t sum = fuzz->bus.strays_other;

	FUZZ_ASSERT(fuzz->bus.stray_count <= BUS_STRAYS_MAX);
	for (unsigned i = 0; i < fuzz->bus.stray_count; i++)
		sum += fuzz->bus.strays[i].count;
	return sum;
}

static void step_access(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input), data[WIDTH_MAX + 1], ones[WIDTH_MAX];
	uint64_t address = some_address(fuzz),
		 value = choice & 2 ? fuzz_u64(fuzz->input) : fuzz_u8(fuzz->input);
	uint64_t accesses = fuzz->accesses, strays = count_strays(fuzz);
	uint32_t width = choice & 4 ? fuzz_below(fuzz->input, WIDTH_MAX + 1) : 4;

	memset(ones, 0xff, sizeof(ones));
	memcpy(data, &value, sizeof(value));
	data[width] = 0xa5;
	if (choice & 1)
		bus_write(&fuzz->bus, address, data, width);
	else
		bus_read(&fuzz->bus, address, data, width);
	FUZZ_ASSERT(data[width] == 0xa5);
	if (fuzz->accesses == accesses && !(choice & 1))
		FUZZ_ASSERT(memcmp(data, ones, width) == 0);
	/* Somebody answers just when all of it lies in a window. */
	if (count_strays(fuzz) == strays) {
		FUZZ_ASSERT(width == 1 || width == 2 || width == 4 || width == 8);
		FUZZ_ASSERT(overlaps(fuzz, address, 1) && overlaps(fuzz, address + width - 1, 1));
	} else {
		FUZZ_ASSERT(count_strays(fuzz) == strays + 1 && fuzz->accesses == accesses);
	}
}

static void step_raise(struct fuzz *fuzz)
{
	unsigned pin = fuzz_u8(fuzz->input);

	if (pin < PINS && fuzz->entries[pin] & MASKED)
		fuzz->latched[pin] = true;
	else if (pin < PINS)
		fuzz->expected++;
	ioapic_raise(&fuzz->ioapic, pin);
}

static void step(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input), bytes[2 * SERIAL_FIFO];
	size_t length = choice >> 1;
	uint64_t base;

	switch (choice & 7) {
	case 0:
		step_raise(fuzz);
		break;
	case 1:
		FUZZ_ASSERT(serial_input(&fuzz->serial, bytes, fuzz_take(fuzz->input, bytes, length)) <=
			    SERIAL_FIFO);
		break;
	case 2:
		base = some_address(fuzz);
		add_window(fuzz, base, choice & 8 ? fuzz_u64(fuzz->input) : fuzz_u8(fuzz->input),
			&empty_window, "empty");
		break;
	default:
		step_access(fuzz);
		break;
	}
	FUZZ_ASSERT(fuzz->raised == fuzz->expected);
	FUZZ_ASSERT(fuzz->serial.fifo_count <= SERIAL_FIFO && fuzz->serial.fifo_start < SERIAL_FIFO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct fuzz fuzz = {.input = &input};

	fuzz_begin();
	fuzz.output = open("/dev/null", O_WRONLY | O_CLOEXEC);
	FUZZ_ASSERT(fuzz.output >= 0);
	bus_init(&fuzz.bus);
	serial_init(&fuzz.serial, fuzz.output, -1);
	FUZZ_ASSERT(ioapic_init(&fuzz.ioapic, PINS, &ioapic_ops, &fuzz) == 0);
	for (unsigned i = 0; i < PINS; i++) {
		fuzz.entries[i] = MASKED;
		fuzz.routed[i] = UINT64_MAX; /* no entry can be that */
	}
	add_window(&fuzz, IOAPIC_BASE, IOAPIC_BYTES, &ioapic_window, "ioapic");
	add_window(&fuzz, SERIAL_BASE, SERIAL_PORTS, &serial_window, "serial");
	while (fuzz_left(&input))
		step(&fuzz);
	ioapic_finish(&fuzz.ioapic);
	serial_finish(&fuzz.serial);
	bus_finish(&fuzz.bus);
	close(fuzz.output);
	fuzz_end();
	return 0;
}
