/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on interrupt controllers, model-specific registers and what KVM offers to guests. */
#include "tests/machine/hostile/guest.h"
#include <linux/kvm_para.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>

enum {
	IOAPIC_PIN = 0x10,
	IOAPIC_MASKED = 1 << 16,
	MODE_SHIFT = 8,
	MODE_FIXED = 0,
	MODE_SMI = 2,
	MODE_INIT = 5,
	MODE_EXTINT = 7,
	LAPIC_ID = 0x20,
	LAPIC_TPR = 0x80,
	LAPIC_ICR = 0x300,
	LAPIC_ICR_HIGH = 0x310,
	LAPIC_TIMER = 0x320,
	LAPIC_TIMER_DIVIDE = 0x3e0,
	ICR_SELF = 1 << 18,
	ICR_ASSERT = 1 << 14,
	TIMER_PERIODIC = 1 << 17,
	MSR_APIC_BASE = 0x1b,
	MSR_WALL_CLOCK = 0x11,
	MSR_SYSTEM_TIME = 0x12,
	MSR_KVM = 0x4b564d00,
	MSR_X2APIC = 0x800,
	MSR_X2APIC_ICR = 0x830,
	MSR_EFER_LOW = 0x80,
	APIC_BASE_X2 = 1 << 10,
	FLOOD = 3000,
	STORM = 500,
};
#define MSR_EFER 0xc0000080u

static void one_interrupt(const struct device *rng)
{
	device_up(rng, RING_MAX);
	rings[0].desc[0].address = (uint64_t)arena;
	rings[0].desc[0].length = 8;
	rings[0].desc[0].flags = DESC_WRITE;
	device_offer(rng, 0, rng->queue_size[0], 0);
	await_used(0, 1);
	allow_interrupts_briefly();
}

/* Delivery modes that end this guest are another attack's: SMI and INIT to itself. */
static bool is_deadly(uint32_t mode)
{
	return mode == MODE_SMI || mode == MODE_INIT;
}

/* Each kind of entry, with an interrupt of a device that goes by it. */
static void ioapic_entries(const struct device *rng)
{
	static const uint32_t flags[] = {0, 1 << 11, 1 << 13, 1 << 15, 1 << 12 | 1 << 14, IOAPIC_MASKED};
	static const uint32_t destinations[] = {0, 1, 7, 0x80, 0xff};
	static const uint8_t vectors[] = {0, 1, 15, 16, 20, 31, 32, 0x40, 0xff};

	for (uint32_t mode = 0; mode < 8; mode++)
		for (unsigned v = 0; v < sizeof(vectors); v++)
			for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
				uint32_t to = destinations[(v + i) % 5];

				if (is_deadly(mode))
					to = 7; /* not there */
				ioapic_write(IOAPIC_PIN + 2 * rng->pin + 1, to << 24);
				ioapic_write(IOAPIC_PIN + 2 * rng->pin,
					vectors[v] | mode << MODE_SHIFT | flags[i]);
				if (i % 3 == 0)
					one_interrupt(rng);
			}
	ioapic_write(IOAPIC_PIN + 2 * rng->pin, IOAPIC_MASKED);
}

static void ioapic(uint64_t seed)
{
	const struct device *rng = find_device(VIRTIO_ID_RNG, NULL);
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, !long_run);

	(void)seed;
	for (uint32_t index = 0; index < 256; index++)
		for (unsigned i = 0; i < count; i += index < 0x40 || long_run ? 1 : 9) {
			uint32_t value = (uint32_t)values[i];

			if (index >= IOAPIC_PIN && is_deadly(value >> MODE_SHIFT & 7))
				value |= IOAPIC_MASKED;
			ioapic_write(index, value);
			(void)read32(IOAPIC_BASE + 0x10);
		}
	for (unsigned offset = 4; offset < WINDOW; offset += offset < 0x40 ? 1 : 0x3d)
		for (unsigned how = 0; how < 8; how++)
			if (offset != 0x10)
				access_memory(how, IOAPIC_BASE + offset, UINT64_MAX);
	for (unsigned pin = 0; pin < PINS_MAX; pin++)
		ioapic_write(IOAPIC_PIN + 2 * pin, IOAPIC_MASKED);
	low_vectors = true;
	ioapic_entries(rng);
	low_vectors = false;
}

/* Routes changed without end: each change is one call of the host's kernel. */
static void ioapic_flood(uint64_t seed)
{
	const struct device *rng = find_device(VIRTIO_ID_RNG, NULL);

	(void)seed;
	for (uint32_t i = 0; i < (long_run ? 20 : 1) * FLOOD / 40; i++)
		for (unsigned pin = 0; pin <= device_count; pin++)
			ioapic_write(IOAPIC_PIN + 2 * pin, 0x20 + (i + pin) % 0xd0);
	for (unsigned pin = 0; pin < PINS_MAX; pin++)
		ioapic_write(IOAPIC_PIN + 2 * pin, IOAPIC_MASKED);
	one_interrupt(rng);
}

static void send_ipi(uint32_t command, uint32_t destination)
{
	lapic_write(LAPIC_ICR_HIGH, destination << 24);
	lapic_write(LAPIC_ICR, command);
}

/* Every register, every value; of commands those that leave this processor running. */
static void lapic(uint64_t seed)
{
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, false);

	(void)seed;
	for (uint32_t offset = 0; offset < 0x400; offset += 0x10)
		for (unsigned i = 0; i < count; i++) {
			(void)read32(LAPIC_BASE + offset + 4 * (i % 4));
			if (offset == LAPIC_ICR || offset == LAPIC_ID)
				continue;
			if (offset >= LAPIC_TIMER && offset <= 0x370 &&
				is_deadly(values[i] >> MODE_SHIFT & 7))
				continue; /* local interrupts by SMI or INIT */
			lapic_write(offset, (uint32_t)values[i]);
		}
	for (uint32_t mode = 0; mode < 8; mode++)
		for (uint32_t vector = 0; vector < 256; vector += 15)
			for (uint32_t to = 1; to < 256; to = to * 2 + 1) {
				/* everybody is this processor, too */
				if (is_deadly(mode) && to == 0xff)
					continue;
				send_ipi(vector | mode << MODE_SHIFT | ICR_ASSERT, to);
				if (!is_deadly(mode))
					send_ipi(vector | mode << MODE_SHIFT | ICR_ASSERT | 2 * ICR_SELF, 0);
				send_ipi(vector | mode << MODE_SHIFT | ICR_ASSERT | 3 * ICR_SELF, 0);
			}
}

/* Interrupts to itself and a timer as fast as it goes, with interrupts on. */
static void interrupt_storm(uint64_t seed)
{
	(void)seed;
	lapic_write(0xf0, 0x1ff);
	lapic_write(LAPIC_TPR, 0);
	lapic_write(LAPIC_TIMER_DIVIDE, 0xb);
	lapic_write(LAPIC_TIMER, TIMER_PERIODIC | (VECTOR_TEST + 1));
	lapic_write(LAPIC_TIMER_INITIAL, 1);
	for (unsigned i = 0; i < (long_run ? FLOOD : STORM); i++) {
		send_ipi((0x20 + i % 0xe0) | ICR_SELF, 0);
		send_ipi(4u << MODE_SHIFT | ICR_ASSERT, 0); /* NMI */
		allow_interrupts_briefly();
	}
	lapic_write(LAPIC_TIMER, IOAPIC_MASKED);
	lapic_write(LAPIC_TIMER_INITIAL, 0);
	allow_interrupts_briefly();
	if (traps[VECTOR_TEST] == 0 || traps[2] == 0)
		fail("no storm came");
}

/* --- model-specific registers --- */

static void probe_read_msr(uint64_t msr, uint64_t b, uint64_t c)
{
	(void)b;
	(void)c;
	(void)read_msr((uint32_t)msr);
}

static void probe_write_msr(uint64_t msr, uint64_t value, uint64_t c)
{
	(void)c;
	write_msr((uint32_t)msr, value);
}

static const struct {
	uint32_t first, count;
} msr_ranges[] = {
	{0, 0x300},
	{0x300, 0x300},
	{0x600, 0x200},
	{0x800, 0x100},
	{0xc80, 0x100},
	{0xda0, 0x10},
	{0x40000000, 0x110},
	{0x4b564d00, 0x10},
	{0xc0000080, 0x90},
	{0xc0010000, 0x140},
	{0xc0011000, 0x40},
	{0xfffffff0, 0x10},
};

/* Not written here: what the guest itself stands on, and what KVM writes to memory for; they have attacks of
 * their own. */
static bool is_own(uint32_t msr)
{
	return msr == MSR_APIC_BASE || msr == MSR_EFER || (msr >= MSR_X2APIC && msr < MSR_X2APIC + 0x100) ||
	       msr == MSR_WALL_CLOCK || msr == MSR_SYSTEM_TIME || msr >> 8 == MSR_KVM >> 8;
}

static void msrs(uint64_t seed)
{
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, !long_run);

	(void)seed;
	for (size_t i = 0; i < sizeof(msr_ranges) / sizeof(msr_ranges[0]); i++)
		for (uint32_t k = 0; k < msr_ranges[i].count; k++) {
			uint32_t msr = msr_ranges[i].first + k;
			bool known = probe(probe_read_msr, msr, 0, 0) == 0;

			if (is_own(msr))
				continue;
			for (unsigned v = 0; v < count; v += known ? 1 : 7)
				probe(probe_write_msr, msr, values[v], 0);
		}
}

/* Each bit of them, one at a time, and back. */
static void flip_bits(uint32_t msr)
{
	uint64_t value = read_msr(msr);

	for (unsigned bit = 0; bit < 64; bit++) {
		probe(probe_write_msr, msr, value ^ 1ull << bit, 0);
		probe(probe_write_msr, msr, value, 0);
	}
}

static void efer(uint64_t seed)
{
	(void)seed;
	flip_bits(MSR_EFER);
}

static void apic_base(uint64_t seed)
{
	(void)seed;
	flip_bits(MSR_APIC_BASE);
}

/* The same by model-specific registers. To leave this mode, the local APIC is switched off and on. */
static void x2apic(uint64_t seed)
{
	uint64_t values[VALUES_MAX], base = read_msr(MSR_APIC_BASE);
	unsigned count = list_values(values, false);

	(void)seed;
	if (probe(probe_write_msr, MSR_APIC_BASE, base | APIC_BASE_X2, 0) != 0)
		return;
	for (uint32_t msr = MSR_X2APIC; msr < MSR_X2APIC + 0x40; msr++)
		for (unsigned i = 0; i < count; i++) {
			bool local = msr >= MSR_X2APIC + 0x32 && msr <= MSR_X2APIC + 0x37;

			probe(probe_read_msr, msr, 0, 0);
			if (msr == MSR_X2APIC_ICR || (local && is_deadly(values[i] >> MODE_SHIFT & 7)))
				continue;
			probe(probe_write_msr, msr, values[i], 0);
		}
	for (unsigned i = 0; i < FLOOD / 4; i++) {
		probe(probe_write_msr, MSR_X2APIC_ICR,
			(uint64_t)(i + 1) << 32 | i % 8 << MODE_SHIFT | i % 256, 0);
		probe(probe_write_msr, MSR_X2APIC + 0x3f, i % 256, 0);
	}
	probe(probe_write_msr, MSR_APIC_BASE, base & ~(1ull << 11), 0);
	probe(probe_write_msr, MSR_APIC_BASE, base, 0);
}

/* --- what KVM offers --- */

static bool is_itself(uint64_t address)
{
	return address + PAGE > GUEST_START && address < (uint64_t)_end;
}

/* Clocks, steal time, end of interrupt and page faults, in memory that is none; left behind there. */
static void paravirtual(uint64_t seed)
{
	static const uint32_t pages[] = {0x11, 0x12, 0x4b564d00, 0x4b564d01, 0x4b564d02, 0x4b564d03,
		0x4b564d04, 0x4b564d05, 0x4b564d06, 0x4b564d07};
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, false);

	(void)seed;
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		for (unsigned k = 0; k < count; k++) {
			if (is_itself(values[k]))
				continue;
			for (unsigned low = 0; low < 4; low++)
				probe(probe_write_msr, pages[i], (values[k] & ~63ull) | low, 0);
			allow_interrupts_briefly();
		}
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		probe(probe_write_msr, pages[i], 0, 0);
}

static void hypercall(uint64_t number, uint64_t a, uint64_t b)
{
	__asm__ volatile("vmmcall" : "+a"(number) : "b"(a), "c"(b), "d"(a), "S"(b) : "memory");
}

static void hypercalls(uint64_t seed)
{
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, false);

	(void)seed;
	for (uint64_t number = 0; number < 16; number++)
		for (unsigned i = 0; i < count; i++)
			/* Clock pairing writes where it is told to. */
			if (number != KVM_HC_CLOCK_PAIRING || !is_itself(values[i]))
				probe(hypercall, number, values[i], values[count - 1 - i]);
	for (unsigned i = 0; i < count; i++)
		probe(hypercall, values[i], i, i);
}

static void cpuid(uint64_t seed)
{
	static const uint32_t leaves[] = {0, 0x40000000, 0x80000000, 0xc0000000, 0xfffffff0};

	(void)seed;
	for (size_t i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++)
		for (uint32_t leaf = 0; leaf < (long_run ? 0x1000 : 0x40); leaf++)
			for (uint32_t sub = 0; sub < 40; sub += 3) {
				uint32_t a = leaves[i] + leaf, b, c = sub == 39 ? UINT32_MAX : sub, d;

				__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
			}
}

const struct attack processor_attacks[] = {
	{"ioapic", ioapic},
	{"ioapic-flood", ioapic_flood},
	{"lapic", lapic},
	{"interrupt-storm", interrupt_storm},
	{"msrs", msrs},
	{"efer", efer},
	{"apic-base", apic_base},
	{"x2apic", x2apic},
	{"paravirtual", paravirtual},
	{"hypercalls", hypercalls},
	{"cpuid", cpuid},
	{0},
};
