/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks by several processors at once: one changes what another uses. The others have no exceptions and no
 * interrupts; they do plain accesses only, and stop when they are told to.
 */
#include "tests/machine/hostile/guest.h"
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>

enum {
	START_PAGE = 9, /* ap.s */
	LAPIC_ICR = 0x300,
	ICR_INIT_OTHERS = 0xc4500,
	ICR_SIPI_OTHERS = 0xc4600,
	IOAPIC_PIN = 0x10,
	IOAPIC_MASKED = 1 << 16,
	ROUNDS = 20,
	START_TURNS = 20000,
	SETTLE_TURNS = 100000,
	CPUS_SHIFT = 16, /* in CPUID 1 EBX */
};

extern uint8_t ap_start[];
extern const uint64_t ap_start_bytes;
extern uint32_t ap_tables;

static volatile bool go, stop;
static volatile unsigned started, stopped;
static uint64_t plan;

/* Registers of all devices, any value. */
static void storm_registers(uint64_t *random)
{
	const struct device *device = &devices[next_random(random) % device_count];
	uint64_t offset = next_random(random) % (VIRTIO_MMIO_CONFIG / 4) * 4;

	if (next_random(random) % 2)
		(void)read32(device->base + offset);
	else
		write32(device->base + offset, (uint32_t)(next_random(random) >> next_random(random) % 64));
}

/* Kicks of every queue, while another brings the devices up and down. */
static void storm_kicks(uint64_t *random)
{
	const struct device *device = &devices[next_random(random) % device_count];

	write32(device->base + VIRTIO_MMIO_QUEUE_NOTIFY, (uint32_t)(next_random(random) % device->queues));
}

static void storm_resets(uint64_t *random)
{
	device_reset(&devices[next_random(random) % device_count]);
}

static void storm_ioapic(uint64_t *random)
{
	uint32_t index = IOAPIC_PIN + (uint32_t)(next_random(random) % (2ull * device_count));

	/* Two writes, and the other processors' between them; masked half of the time, to nobody. */
	ioapic_write(index, index % 2 ? 0x7f000000 : 0x40 | (next_random(random) % 2 ? IOAPIC_MASKED : 0));
}

static void storm_configuration(uint64_t *random)
{
	const struct device *device = &devices[next_random(random) % device_count];

	access_memory((unsigned)(next_random(random) % 8),
		device->base + VIRTIO_MMIO_CONFIG + next_random(random) % 64, next_random(random));
}

static void storm_ports(uint64_t *random)
{
	out8((uint16_t)(SERIAL_PORT + 1 + next_random(random) % 7), (uint8_t)next_random(random));
	(void)in8((uint16_t)(SERIAL_PORT + next_random(random) % 8));
}

static void (*const storms[])(uint64_t *random) = {
	storm_registers, storm_kicks, storm_resets, storm_ioapic, storm_configuration, storm_ports};
enum { STORMS = sizeof(storms) / sizeof(storms[0]) };

/* By the plan, all do the same or each something else. */
static void storm(unsigned processor, uint64_t *random)
{
	storms[(plan < STORMS ? plan : processor + next_random(random)) % STORMS](random);
}

void run_other_processor(unsigned number);

void run_other_processor(unsigned number)
{
	uint64_t random = plan * 1000 + number;

	__atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
	while (!go)
		relax();
	while (!stop)
		storm(number, &random);
	__atomic_fetch_add(&stopped, 1, __ATOMIC_SEQ_CST);
}

static unsigned count_processors(void)
{
	uint32_t a = 1, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return b >> CPUS_SHIFT & 0xff;
}

static void wait_some(unsigned turns)
{
	for (unsigned i = 0; i < turns; i++)
		relax();
}

static void start_others(void)
{
	uint64_t tables;

	__asm__ volatile("mov %%cr3, %0" : "=r"(tables));
	ap_tables = (uint32_t)tables;
	memcpy((void *)(START_PAGE * PAGE), ap_start, ap_start_bytes);
	lapic_write(LAPIC_ICR, ICR_INIT_OTHERS);
	lapic_write(LAPIC_ICR, ICR_SIPI_OTHERS | START_PAGE);
	for (unsigned i = 0; i < START_TURNS && started + 1 < count_processors(); i++)
		wait_some(SETTLE_TURNS);
	if (started + 1 < count_processors())
		fail("another processor does not start");
}

static void several(uint64_t seed)
{
	uint64_t random = seed;

	plan = seed;
	start_others();
	go = true;
	for (unsigned i = 0; i < (long_run ? 20 : 1) * ROUNDS; i++) {
		device_up(&devices[i % device_count], RING_MAX);
		for (unsigned k = 0; k < 20; k++)
			storm(0, &random);
	}
	stop = true;
	for (unsigned i = 0; i < START_TURNS && stopped < started; i++)
		wait_some(SETTLE_TURNS);
	if (stopped < started)
		fail("another processor does not stop");
}

/* All of them in endless loops that exit, or do not. */
static void several_for_ever(uint64_t seed)
{
	uint64_t random = seed;

	plan = seed;
	start_others();
	/* Before they may take the port's other registers for a walk. */
	say("hostile: spins\n");
	go = true;
	for (;;)
		storm(0, &random);
}

/* Others started again and again, while they run. */
static void several_starts(uint64_t seed)
{
	(void)seed;
	plan = 0;
	for (unsigned i = 0; i < (long_run ? 10 : 1) * ROUNDS; i++) {
		lapic_write(LAPIC_ICR, ICR_INIT_OTHERS);
		lapic_write(LAPIC_ICR, ICR_SIPI_OTHERS | (i % 3 ? 0xff : 0xa0)); /* into the hole */
		lapic_write(LAPIC_ICR, ICR_INIT_OTHERS);
	}
	wait_some(SETTLE_TURNS);
}

const struct attack several_attacks[] = {
	{"several", several},
	{"several-for-ever", several_for_ever},
	{"several-starts", several_starts},
	{0},
};
