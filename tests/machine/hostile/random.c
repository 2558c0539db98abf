/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs: the seed says all of one. A tame one leaves its own code alone and sends itself nothing
 * deadly, so that afterwards the devices must work for it; a wild one may do anything, itself included.
 */
#include "tests/machine/hostile/guest.h"
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>

enum {
	STEPS = 1200,
	LONG_STEPS = 6000,
	IOAPIC_PIN = 0x10,
	IOAPIC_MASKED = 1 << 16,
	DELIVERY_MODE = 7 << 8,
	VECTOR_FIRST = 0x20, /* below are exceptions */
	UP = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |
	     VIRTIO_CONFIG_S_DRIVER_OK,
	MSR_APIC_BASE = 0x1b,
};

struct program {
	uint64_t random;
	uint64_t values[VALUES_MAX];
	unsigned value_count;
	bool wild;
	const struct device *device;
};

static uint32_t below(struct program *program, uint32_t limit)
{
	return (uint32_t)(next_random(&program->random) % limit);
}

static bool one_in(struct program *program, uint32_t n)
{
	return below(program, n) == 0;
}

static uint64_t some_value(struct program *program)
{
	switch (below(program, 4)) {
	case 0:
		return below(program, 16);
	case 1:
		return next_random(&program->random);
	default:
		return program->values[below(program, program->value_count)];
	}
}

/* Of the program, but for what is there to be overwritten. */
static bool is_own(uint64_t address)
{
	return address >= GUEST_START && address < (uint64_t)_end &&
	       !(address >= (uint64_t)arena && address < (uint64_t)arena + sizeof(arena));
}

/*
 * For memory that a device may take for addresses or, as the balloon does, for page numbers: by those of its
 * own pages a program would lose its code.
 */
static uint64_t some_content(struct program *program)
{
	uint64_t value = some_value(program), low = (uint32_t)value, high = value >> 32;

	if (program->wild)
		return value;
	return is_own(low) || is_own(high) || is_own(low * PAGE) || is_own(high * PAGE) ? 0 : value;
}

/* In the arena; sometimes outside memory; anywhere when wild. */
static uint64_t some_address(struct program *program)
{
	uint64_t value;

	if (!one_in(program, 8))
		return (uint64_t)arena + below(program, sizeof(arena) - 0x10000);
	value = some_value(program);
	return program->wild || value >= memory_end ? value : memory_end - below(program, 64);
}

static unsigned some_queue(struct program *program)
{
	return below(program, program->device->queues + one_in(program, 30));
}

static void some_register(struct program *program)
{
	uint64_t offset = 4 * below(program, VIRTIO_MMIO_CONFIG / 4);

	if (one_in(program, 2))
		(void)read32(program->device->base + offset);
	else
		write32(program->device->base + offset, (uint32_t)some_value(program));
}

static void probed_access(uint64_t how, uint64_t address, uint64_t value)
{
	access_memory((unsigned)how, address, value);
}

static void some_access(struct program *program)
{
	uint64_t address = program->device->base + below(program, WINDOW), value = some_value(program);

	if (one_in(program, 4)) {
		address = some_address(program);
		value = some_content(program);
	}
	probe(probed_access, below(program, access_ways), address, value);
}

static void bring_up(struct program *program)
{
	if (one_in(program, 4))
		program->device = &devices[below(program, device_count)];
	device_up(program->device, 1u << below(program, 9));
}

static void move_queue(struct program *program)
{
	uint64_t align = one_in(program, 8) ? 0 : 15;

	device_go(program->device, UP & ~VIRTIO_CONFIG_S_DRIVER_OK);
	for (unsigned queue = 0; queue < program->device->queues; queue++)
		device_set_queue(program->device, queue, 1u << below(program, 10),
			some_address(program) & ~align, some_address(program) & ~align,
			some_address(program) & ~align);
	write32(program->device->base + VIRTIO_MMIO_STATUS, UP);
}

static void some_chain(struct program *program)
{
	unsigned queue = some_queue(program) % QUEUES_MAX, count = 1 + below(program, 4);
	unsigned size = queue < program->device->queues ? program->device->queue_size[queue] : RING_MAX;
	struct ring *ring = &rings[queue];
	uint16_t head = (uint16_t)below(program, size);

	for (unsigned i = 0; i < count; i++) {
		unsigned at = (head + i) % size;

		ring->desc[at].address = some_address(program);
		ring->desc[at].length =
			one_in(program, 20) ? (uint32_t)some_value(program) : below(program, 0x4000);
		ring->desc[at].flags =
			(uint16_t)((i + 1 < count ? DESC_NEXT : 0) | (one_in(program, 2) ? DESC_WRITE : 0));
		if (one_in(program, 40))
			ring->desc[at].flags = (uint16_t)some_value(program);
		ring->desc[at].next = (uint16_t)(one_in(program, 30) ? some_value(program) : (at + 1) % size);
	}
	device_offer(
		program->device, queue, size, one_in(program, 50) ? (uint16_t)some_value(program) : head);
}

/* What a device takes for a request, a packet or page numbers. */
static void some_bytes(struct program *program)
{
	uint64_t *at = (uint64_t *)(some_address(program) & ~7ull);

	if ((uint64_t)at < (uint64_t)arena || (uint64_t)at > (uint64_t)(arena + sizeof(arena) - 64))
		return;
	for (unsigned i = 0; i < 8; i++)
		at[i] = one_in(program, 2) ? below(program, 8) : some_content(program);
}

static void some_ioapic(struct program *program)
{
	uint32_t index = below(program, IOAPIC_PIN + 2 * WINDOWS_MAX), value = (uint32_t)some_value(program);

	if (!program->wild && index >= IOAPIC_PIN)
		value = (value & ~(uint32_t)DELIVERY_MODE) | VECTOR_FIRST;
	ioapic_write(index, value);
}

static void read_port(uint64_t port, uint64_t b, uint64_t c)
{
	(void)b;
	(void)c;
	(void)in8((uint16_t)port);
}

static void some_port(struct program *program)
{
	uint16_t port = (uint16_t)some_value(program);

	if (one_in(program, 2))
		probe(read_port, port, 0, 0);
	else if (port != RESET_PORT || program->wild)
		out8(port, (uint8_t)some_value(program));
}

static void probed_msr(uint64_t msr, uint64_t value, uint64_t write)
{
	if (write)
		write_msr((uint32_t)msr, value);
	else
		(void)read_msr((uint32_t)msr);
}

static void some_msr(struct program *program)
{
	static const uint32_t bases[] = {0x10, 0x11, 0x3a, 0x174, 0x1d9, 0x200, 0x277, 0x2ff, 0x400, 0x6e0,
		0x4b564d00, 0xc0000081, 0xc0000100, 0xc0010000, 0xc0010110};
	uint32_t msr = bases[below(program, sizeof(bases) / sizeof(bases[0]))] + below(program, 4);
	bool page = msr == 0x11 || msr == 0x12 || msr >> 8 == 0x4b564d;

	probe(probed_msr, msr, page ? some_address(program) | below(program, 4) : some_value(program),
		one_in(program, 2));
}

static void some_lapic(struct program *program)
{
	uint32_t offset = below(program, 0x40) * 0x10, value = (uint32_t)some_value(program);

	if (!program->wild && (offset == 0x2f0 || (offset >= 0x300 && offset <= 0x370)))
		value = (value & ~(uint32_t)DELIVERY_MODE) | VECTOR_FIRST;
	lapic_write(offset, value);
}

static void wait_a_little(struct program *program)
{
	for (uint32_t i = below(program, 3000); i; i--)
		allow_interrupts_briefly();
}

/* How often of 64, and what. */
static const struct {
	unsigned weight;
	void (*run)(struct program *program);
} steps[] = {
	{8, some_register},
	{6, some_access},
	{5, bring_up},
	{2, move_queue},
	{20, some_chain},
	{10, some_bytes},
	{3, some_ioapic},
	{2, some_port},
	{2, some_msr},
	{2, some_lapic},
	{4, wait_a_little},
};

static void step(struct program *program)
{
	uint32_t dice = below(program, 64);
	unsigned i = 0;

	while (dice >= steps[i].weight)
		dice -= steps[i++].weight;
	steps[i].run(program);
}

static void run(uint64_t seed, bool wild)
{
	struct program program = {.random = seed, .wild = wild, .device = &devices[seed % device_count]};

	program.value_count = list_values(program.values, false);
	device_up(program.device, RING_MAX);
	for (unsigned i = 0; i < (long_run ? LONG_STEPS : STEPS); i++)
		step(&program);
}

static void tame(uint64_t seed)
{
	run(seed, false);
}

static void wild(uint64_t seed)
{
	run(seed, true);
}

const struct attack random_attacks[] = {
	{"random", tame},
	{"wild", wild},
	{0},
};
