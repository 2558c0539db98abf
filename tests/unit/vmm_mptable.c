/* SPDX-License-Identifier: Apache-2.0 */
/* The MP table as a kernel reads it: entry by entry, by the offsets of the specification. */
#include "tests/support/unit.h"

#include "vmm/boot_x86_64.h"
#include "vmm/ioapic.h"
#include "vmm/layout.h"
#include "vmm/mptable_x86_64.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define ADDRESS BOOT_MPTABLE
enum { POINTER = 16, HEADER = 44 };

static uint8_t table[BOOT_MPTABLE_MAX];

static uint32_t get(const uint8_t *bytes, unsigned offset, unsigned width)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < width; i++)
		value |= (uint32_t)bytes[offset + i] << 8 * i;
	return value;
}

static uint8_t sum(const uint8_t *bytes, size_t length)
{
	uint8_t total = 0;

	while (length-- > 0)
		total = (uint8_t)(total + *bytes++);
	return total;
}

static void write_table(unsigned cpus, unsigned devices, bool serial, size_t *length)
{
	const struct mptable_config config = {.cpus = cpus,
		.devices = devices,
		.serial = serial,
		.signature = 0x00800f82,
		.features = 0x178bfbff};

	memset(table, 0xaa, sizeof(table));
	assert_int_equal(mptable_write(&config, ADDRESS, table, sizeof(table), length), 0);
}

static void check_pointer(void)
{
	assert_memory_equal(table, "_MP_", 4);
	assert_int_equal(get(table, 4, 4), ADDRESS + POINTER);
	assert_int_equal(table[8], 1); /* paragraphs */
	assert_int_equal(table[9], 4);
	assert_int_equal(sum(table, POINTER), 0);
	for (unsigned i = 11; i < POINTER; i++) /* a table, virtual wire, reserved */
		assert_int_equal(table[i], 0);
}

static void check_header(const uint8_t *header, size_t length, unsigned entries)
{
	assert_memory_equal(header, "PCMP", 4);
	assert_int_equal(get(header, 4, 2), length);
	assert_int_equal(header[6], 4);
	assert_int_equal(sum(header, length), 0);
	assert_memory_equal(header + 8, "TNDRBOX ", 8);
	assert_memory_equal(header + 16, "MICROVM     ", 12);
	assert_int_equal(get(header, 28, 4), 0); /* no OEM table */
	assert_int_equal(get(header, 32, 2), 0);
	assert_int_equal(get(header, 34, 2), entries);
	assert_int_equal(get(header, 36, 4), LAYOUT_LAPIC_BASE);
	assert_int_equal(get(header, 40, 4), 0); /* no extended table */
}

static void check_processor(const uint8_t *entry, unsigned number)
{
	assert_int_equal(entry[0], 0);
	assert_int_equal(entry[1], number);
	assert_int_equal(entry[2], 0x14);
	assert_int_equal(entry[3], number == 0 ? 3 : 1); /* enabled, and the first is the bootstrap one */
	assert_int_equal(get(entry, 4, 4), 0xf82);
	assert_int_equal(get(entry, 8, 4), 0x381); /* FPU, MCE, CX8, APIC */
	assert_int_equal(get(entry, 12, 4), 0);
	assert_int_equal(get(entry, 16, 4), 0);
}

static void check_interrupt(const uint8_t *entry, unsigned irq, unsigned cpus)
{
	assert_int_equal(entry[0], 3);
	assert_int_equal(entry[1], 0);	       /* vectored */
	assert_int_equal(get(entry, 2, 2), 5); /* active high, edge */
	assert_int_equal(entry[4], 0);	       /* the ISA bus */
	assert_int_equal(entry[5], irq);
	assert_int_equal(entry[6], cpus); /* the IOAPIC */
	assert_int_equal(entry[7], irq);  /* the pin */
}

static void check_table(unsigned cpus, unsigned devices, bool serial)
{
	const uint8_t *entry = table + POINTER + HEADER;
	size_t length = 0;

	write_table(cpus, devices, serial, &length);
	devices += serial;
	assert_int_equal(length, POINTER + HEADER + 20 * cpus + 8 + 8 + 8 * devices + 8);
	assert_true(length <= MPTABLE_SIZE_MAX);
	assert_int_equal(table[length], 0xaa);
	check_pointer();
	check_header(table + POINTER, length - POINTER, cpus + devices + 3);
	for (unsigned i = 0; i < cpus; i++, entry += 20)
		check_processor(entry, i);
	assert_memory_equal(entry, "\1\0ISA   ", 8);
	entry += 8;
	assert_int_equal(entry[0], 2);
	assert_int_equal(entry[1], cpus); /* an id that no local APIC has */
	assert_int_equal(entry[2], 0x11);
	assert_int_equal(entry[3], 1);
	assert_int_equal(get(entry, 4, 4), LAYOUT_IOAPIC_BASE);
	entry += 8;
	/* Linux takes no device with IRQ 0; a serial line has IRQ 4 and comes last */
	for (unsigned i = 0; i < devices; i++, entry += 8) {
		unsigned irq = serial && i == devices - 1 ? 4 : serial && i >= 3 ? i + 2 : i + 1;

		check_interrupt(entry, irq, cpus);
	}
	/* NMI at LINT1 of every local APIC */
	assert_memory_equal(entry, "\4\1\0\0\0\0\377\1", 8);
	assert_ptr_equal(entry + 8, table + length);
}

static void every_count_gives_a_whole_table(void **state)
{
	(void)state;
	for (unsigned cpus = 1; cpus <= LAYOUT_CPUS_MAX; cpus++)
		for (unsigned devices = 0; devices <= MPTABLE_DEVICES_MAX; devices++)
			for (unsigned serial = 0; serial <= (devices < MPTABLE_DEVICES_MAX); serial++)
				check_table(cpus, devices, serial);
}

static void what_cannot_be_told_is_refused(void **state)
{
	(void)state;
	static const struct {
		unsigned cpus, devices;
		gpa_t address;
		size_t size;
		int result;
	} cases[] = {
		{1, 0, ADDRESS, 104, 0},
		{1, 0, ADDRESS, 103, -ENOSPC},
		{1, 0, ADDRESS, 0, -ENOSPC},
		{0, 0, ADDRESS, sizeof(table), -EINVAL},
		{LAYOUT_CPUS_MAX + 1, 0, ADDRESS, sizeof(table), -EINVAL},
		{1, MPTABLE_DEVICES_MAX + 1, ADDRESS, sizeof(table), -EINVAL},
		{1, UINT32_MAX, ADDRESS, sizeof(table), -EINVAL},
		{1, 0, ADDRESS + 8, sizeof(table), -EINVAL},
		{1, 0, 1ull << 32, sizeof(table), -EINVAL},
		{1, 0, UINT64_MAX & ~15ull, sizeof(table), -EINVAL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct mptable_config config = {.cpus = cases[i].cpus, .devices = cases[i].devices};
		size_t length = 0;

		memset(table, 0xaa, sizeof(table));
		assert_int_equal(mptable_write(&config, cases[i].address, table, cases[i].size, &length),
			cases[i].result);
		assert_int_equal(length, cases[i].result < 0 ? 0 : 104);
		assert_int_equal(table[0] == 0xaa, cases[i].result < 0);
	}
}

static void raise_nothing(void *context, unsigned pin)
{
	(void)context;
	(void)pin;
}

static void route_nothing(void *context, unsigned pin, uint64_t address, uint32_t data)
{
	(void)context;
	(void)pin;
	(void)address;
	(void)data;
}

/* The version that the table tells is the one that the IOAPIC's register reads. */
static void the_table_tells_of_our_ioapic(void **state)
{
	(void)state;
	static const struct ioapic_ops ops = {.route = route_nothing, .raise = raise_nothing};
	struct ioapic ioapic;
	uint32_t value = IOAPIC_REG_VERSION;
	size_t length = 0;

	write_table(1, 0, false, &length);
	assert_int_equal(ioapic_init(&ioapic, 1, &ops, NULL), 0);
	ioapic_write(&ioapic, IOAPIC_REGSEL, &value, sizeof(value));
	ioapic_read(&ioapic, IOAPIC_WINDOW, &value, sizeof(value));
	assert_int_equal(table[POINTER + HEADER + 20 + 8 + 2], value & 0xff);
	ioapic.id = mptable_ioapic_id(LAYOUT_CPUS_MAX);
	value = IOAPIC_REG_ID;
	ioapic_write(&ioapic, IOAPIC_REGSEL, &value, sizeof(value));
	ioapic_read(&ioapic, IOAPIC_WINDOW, &value, sizeof(value));
	assert_int_equal(value, LAYOUT_CPUS_MAX << 24);
	ioapic_finish(&ioapic);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_count_gives_a_whole_table),
		cmocka_unit_test(what_cannot_be_told_is_refused),
		cmocka_unit_test(the_table_tells_of_our_ioapic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
