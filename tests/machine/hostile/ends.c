/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks after which there is no guest, or one that does nothing any more. */
#include "tests/machine/hostile/guest.h"
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>

enum {
	LAPIC_ICR = 0x300,
	LAPIC_ICR_HIGH = 0x310,
	ICR_ASSERT = 1 << 14,
	ICR_NMI = 4 << 8,
	ICR_INIT = 5 << 8,
	ICR_SMI = 2 << 8,
	ICR_SIPI = 6 << 8,
	IOAPIC_PIN = 0x10,
};

void enter_compatibility(void);
void enter_real(void);

static void load_no_gates(void)
{
	const struct table_pointer none = {0};

	__asm__ volatile("lidt %0" : : "m"(none));
}

static void load_gates(uint64_t base)
{
	const struct table_pointer gates = {.limit = 0xfff, .base = base};

	__asm__ volatile("lidt %0" : : "m"(gates));
}

/* --- triple faults --- */

static void triple_invalid(uint64_t seed)
{
	(void)seed;
	load_no_gates();
	__asm__ volatile("ud2");
}

static void triple_breakpoint(uint64_t seed)
{
	(void)seed;
	load_no_gates();
	__asm__ volatile("int3");
}

static void triple_stack(uint64_t seed)
{
	(void)seed;
	load_no_gates();
	__asm__ volatile("movabsq $0x800000000000, %%rsp; pushq %%rax" : : : "memory");
}

static void triple_nmi(uint64_t seed)
{
	(void)seed;
	load_no_gates();
	lapic_write(LAPIC_ICR_HIGH, 0);
	lapic_write(LAPIC_ICR, ICR_NMI | ICR_ASSERT);
}

/* The tables that map the code that does it. */
static void triple_tables(uint64_t seed)
{
	uint64_t *top;

	(void)seed;
	__asm__ volatile("mov %%cr3, %0" : "=r"(top));
	top[0] = 0;
	__asm__ volatile("mov %0, %%cr3" : : "r"(top) : "memory");
}

/* --- what is no memory, as what only memory can be --- */

static const uint64_t *places(void)
{
	static uint64_t list[5];

	list[0] = WINDOWS_BASE;
	list[1] = IOAPIC_BASE;
	list[2] = memory_end;
	list[3] = LAPIC_BASE;
	list[4] = HIGH_HOLE;
	return list;
}

static void fetch(uint64_t seed)
{
	((void (*)(void))places()[seed % 5])();
}

static void tables(uint64_t seed)
{
	__asm__ volatile("mov %0, %%cr3" : : "r"(places()[seed % 5]) : "memory");
}

static void stack(uint64_t seed)
{
	const uint64_t at = places()[seed % 5] + 0x800;

	__asm__ volatile("mov %0, %%rsp; pushq $0; popq %%rax; call 1f; 1: sti; int $0x50; jmp 1b"
			 :
			 : "r"(at)
			 : "memory");
}

static void gates(uint64_t seed)
{
	load_gates(places()[seed % 5]);
	__asm__ volatile("int $0x50");
}

static void segments(uint64_t seed)
{
	const struct table_pointer table = {.limit = 0xfff, .base = places()[seed % 5]};

	load_no_gates();
	__asm__ volatile("lgdt %0; mov %w1, %%ds" : : "m"(table), "r"(0x18) : "memory");
}

static void task(uint64_t seed)
{
	uint64_t place = places()[seed % 5];

	__builtin_memcpy(task_state + 36, &place, sizeof(place)); /* the exceptions' stack */
	__asm__ volatile("ud2");
}

/* What KVM does not emulate. */
static void unknown(uint64_t seed)
{
	const uint64_t at = WINDOWS_BASE;

	switch (seed % 4) {
	case 0:
		__asm__ volatile("fldt (%0)" : : "r"(at) : "memory");
		break;
	case 1:
		__asm__ volatile("lock cmpxchg16b (%0)"
				 :
				 : "r"(at), "a"(0), "b"(0), "c"(0), "d"(0)
				 : "memory");
		break;
	case 2:
		__asm__ volatile("psadbw (%0), %%xmm0" : : "r"(at) : "memory");
		break;
	default:
		__asm__ volatile("lidt (%0)" : : "r"(at) : "memory");
		__asm__ volatile("ud2");
	}
}

/* --- events to itself --- */

static void event(uint32_t command)
{
	lapic_write(LAPIC_ICR_HIGH, 0);
	lapic_write(LAPIC_ICR, command | ICR_ASSERT);
	for (unsigned i = 0; i < 1000; i++)
		allow_interrupts_briefly();
}

static void init_itself(uint64_t seed)
{
	(void)seed;
	event(ICR_INIT);
}

static void smi_itself(uint64_t seed)
{
	(void)seed;
	event(ICR_SMI);
}

static void sipi_itself(uint64_t seed)
{
	event(ICR_SIPI | (uint32_t)(seed & 0xff));
}

/* By a device's line. */
static void line(uint64_t seed)
{
	const struct device *rng = find_device(VIRTIO_ID_RNG, NULL);

	ioapic_write(IOAPIC_PIN + 2 * rng->pin + 1, 0);
	ioapic_write(IOAPIC_PIN + 2 * rng->pin, seed ? ICR_SMI : ICR_INIT);
	device_up(rng, RING_MAX);
	rings[0].desc[0].address = (uint64_t)arena;
	rings[0].desc[0].length = 8;
	rings[0].desc[0].flags = DESC_WRITE;
	device_offer(rng, 0, rng->queue_size[0], 0);
	for (;;)
		allow_interrupts_briefly();
}

/* --- orderly ends in disorder --- */

static void poweroff(uint64_t seed)
{
	(void)seed;
	for (unsigned i = 0; i < device_count; i++)
		device_up(&devices[i], RING_MAX);
	write32(POWEROFF_BASE, 0xff);
	for (;;)
		write32(POWEROFF_BASE, 0xff);
}

static void panic(uint64_t seed)
{
	*(volatile uint8_t *)PVPANIC_BASE = (uint8_t)(seed | 1);
	write32(POWEROFF_BASE, 0xff);
}

static void reset(uint64_t seed)
{
	(void)seed;
	out8(RESET_PORT, RESET_VALUE);
	write32(POWEROFF_BASE, 0xff);
}

/* An index that no ring of that size can have. */
static void index_ahead(uint64_t seed)
{
	const struct device *device = &devices[seed % device_count];

	device_up(device, RING_MAX);
	for (unsigned queue = 0; queue < device->queues; queue++) {
		rings[queue].avail.index = (uint16_t)(device->queue_size[queue] + 1);
		write32(device->base + VIRTIO_MMIO_QUEUE_NOTIFY, queue);
	}
}

/* --- no end --- */

static void spin(uint64_t seed)
{
	say("hostile: spins\n");
	if (seed)
		__asm__ volatile("sti");
	for (;;)
		__asm__ volatile("");
}

static void idle(uint64_t seed)
{
	(void)seed;
	say("hostile: sleeps\n");
	sleep_for_ever();
}

static void compatibility(uint64_t seed)
{
	(void)seed;
	say("hostile: spins\n");
	enter_compatibility();
}

static void real(uint64_t seed)
{
	(void)seed;
	enter_real();
}

/* One instruction, of half a billion accesses. */
static void endless_string(uint64_t seed)
{
	uint64_t to = WINDOWS_BASE, count = IOAPIC_BASE - WINDOWS_BASE;

	(void)seed;
	say("hostile: spins\n");
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0xaa) : "memory");
}

/* An exception whose handler is the exception. */
static void endless_exception(uint64_t seed)
{
	say("hostile: spins\n");
	if (seed)
		__asm__ volatile("1: int3; jmp 1b");
	for (;;)
		probe((void (*)(uint64_t, uint64_t, uint64_t))(WINDOWS_BASE << 16), 0, 0, 0);
}

const struct attack ending_attacks[] = {
	{"triple-invalid", triple_invalid},
	{"triple-breakpoint", triple_breakpoint},
	{"triple-stack", triple_stack},
	{"triple-nmi", triple_nmi},
	{"triple-tables", triple_tables},
	{"fetch", fetch},
	{"tables", tables},
	{"stack", stack},
	{"gates", gates},
	{"segments", segments},
	{"task", task},
	{"unknown", unknown},
	{"init", init_itself},
	{"smi", smi_itself},
	{"sipi", sipi_itself},
	{"line", line},
	{"poweroff", poweroff},
	{"panic", panic},
	{"reset", reset},
	{"index-ahead", index_ahead},
	{"spin", spin},
	{"idle", idle},
	{"compatibility", compatibility},
	{"real", real},
	{"endless-string", endless_string},
	{"endless-exception", endless_exception},
	{0},
};
