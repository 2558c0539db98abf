/* SPDX-License-Identifier: Apache-2.0 */
/* What the boot code leaves in memory, read as a processor and a kernel would read it. */
#include "tests/support/unit.h"

#include "vmm/boot_x86_64.h"
#include "vmm/layout.h"
#include <asm/bootparam.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MEMORY (64ull << 20)
#define ENTRY 0x1000000ull

struct machine {
	struct guest_memory memory;
	struct boot_config config;
	struct boot_state state;
	struct boot_params params;
};

static void start(struct machine *machine, uint64_t size)
{
	memset(machine, 0, sizeof(*machine));
	assert_int_equal(guest_memory_init(&machine->memory, size), 0);
	machine->config.entry = ENTRY;
	machine->config.cmdline = "panic=-1";
}

static int boot(struct machine *machine)
{
	int r = boot_write(&machine->memory, &machine->config, &machine->state);

	if (r == 0)
		assert_int_equal(guest_memory_read(&machine->memory, machine->state.rsi, &machine->params,
					 sizeof(machine->params)),
			0);
	return r;
}

static void finish(struct machine *machine)
{
	guest_memory_finish(&machine->memory);
}

static uint64_t load64(const struct machine *machine, gpa_t address)
{
	uint64_t value = 0;

	assert_int_equal(guest_memory_read(&machine->memory, address, &value, sizeof(value)), 0);
	return value;
}

/* Walks the tables as the processor does; UINT64_MAX where nothing is mapped. */
static uint64_t translate(const struct machine *machine, uint64_t address)
{
	uint64_t entry, table = machine->state.cr3;

	for (int shift = 39;; shift -= 9) {
		entry = load64(machine, table + (address >> shift & 511) * 8);
		if ((entry & 1) == 0)
			return UINT64_MAX;
		assert_int_equal(entry & 2, 2); /* writable */
		if (shift == 21)
			break;
		assert_int_equal(entry & 0x80, 0); /* 1 GiB pages are not assumed */
		table = entry & 0x000ffffffffff000;
	}
	assert_int_equal(entry & 0x80, 0x80);
	return (entry & 0x000fffffffe00000) + (address & 0x1fffff);
}

static void the_vcpu_enters_as_the_protocol_says(void **state)
{
	(void)state;
	struct machine machine;

	start(&machine, MEMORY);
	assert_int_equal(boot(&machine), 0);
	assert_int_equal(machine.state.rip, ENTRY);
	assert_int_equal(machine.state.rsi, BOOT_PARAMS);
	assert_int_equal(machine.state.rflags, 2); /* interrupts are off */
	assert_int_equal(machine.state.cr0, 0x80000011);
	assert_int_equal(machine.state.cr4, 0x20);
	assert_int_equal(machine.state.efer, 0x500);
	assert_int_equal(machine.state.code.selector, 0x10);
	assert_int_equal(machine.state.code.l, 1);
	assert_int_equal(machine.state.code.db, 0);
	assert_int_equal(machine.state.data.selector, 0x18);
	assert_int_equal(machine.state.data.l, 0);
	assert_int_equal(machine.state.task.selector, 0x20);
	assert_int_equal(machine.state.task.type, 11); /* a busy 64-bit TSS */
	finish(&machine);
}

/* The descriptors in memory and the hidden parts given to the vCPU are the same segments. */
static void the_descriptors_are_flat(void **state)
{
	(void)state;
	struct machine machine;

	start(&machine, MEMORY);
	assert_int_equal(boot(&machine), 0);
	assert_int_equal(machine.state.gdt_base, BOOT_GDT);
	assert_int_equal(machine.state.gdt_limit, 6 * 8 - 1);
	assert_int_equal(load64(&machine, BOOT_GDT), 0);
	assert_int_equal(load64(&machine, BOOT_GDT + 0x10), 0x00af9b000000ffff);
	assert_int_equal(load64(&machine, BOOT_GDT + 0x18), 0x00cf93000000ffff);
	assert_int_equal(load64(&machine, BOOT_GDT + 0x20), 0x00008b0000000067);
	assert_int_equal(load64(&machine, BOOT_GDT + 0x28), 0);
	assert_int_equal(machine.state.code.limit, 0xffffffff);
	assert_int_equal(machine.state.code.g, 1);
	finish(&machine);
}

static void memory_below_the_hole_is_mapped_to_itself(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {16ull << 20, 17ull << 20, 1023ull << 20, 1ull << 30, 1025ull << 20,
		2ull << 30, 3ull << 30, (3ull << 30) + 4096, 4ull << 30, 6ull << 30, LAYOUT_MEMORY_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const uint64_t low = sizes[i] < GUEST_HOLE_START ? sizes[i] : GUEST_HOLE_START;
		const uint64_t top = (low + 0x1fffff) & ~0x1fffffull;
		struct machine machine;

		start(&machine, sizes[i]);
		machine.config.entry = BOOT_HIGH_START;
		assert_int_equal(boot(&machine), 0);
		for (uint64_t address = 0; address < low; address += 0x1ff000)
			assert_int_equal(translate(&machine, address), address);
		assert_int_equal(translate(&machine, low - 1), low - 1);
		assert_int_equal(translate(&machine, top), UINT64_MAX);
		assert_int_equal(translate(&machine, 4ull << 30), UINT64_MAX);
		assert_int_equal(translate(&machine, 1ull << 39), UINT64_MAX);
		finish(&machine);
	}
}

static void the_parameters_carry_the_header(void **state)
{
	(void)state;
	struct machine machine;
	char line[16] = "";

	start(&machine, MEMORY);
	machine.config.initrd = (struct initrd){.address = MEMORY - 8192, .size = 5000};
	assert_int_equal(boot(&machine), 0);
	assert_int_equal(machine.params.hdr.boot_flag, 0xaa55);
	assert_int_equal(machine.params.hdr.header, 0x53726448);
	assert_true(machine.params.hdr.version >= 0x0209); /* setup_data is read from here on */
	assert_int_equal(machine.params.hdr.type_of_loader, 0xff);
	assert_int_equal(machine.params.hdr.loadflags & LOADED_HIGH, LOADED_HIGH);
	assert_int_equal(machine.params.hdr.ramdisk_image, MEMORY - 8192);
	assert_int_equal(machine.params.hdr.ramdisk_size, 5000);
	assert_int_equal(machine.params.ext_ramdisk_image, 0);
	assert_int_equal(machine.params.sentinel, 0); /* or Linux clears half of what is here */
	assert_int_equal(
		guest_memory_read(&machine.memory, machine.params.hdr.cmd_line_ptr, line, sizeof(line)), 0);
	assert_string_equal(line, "panic=-1");
	assert_int_equal(machine.params.hdr.setup_data, 0);
	finish(&machine);
}

static void without_an_initrd_there_is_none(void **state)
{
	(void)state;
	struct machine machine;

	start(&machine, MEMORY);
	assert_int_equal(boot(&machine), 0);
	assert_int_equal(machine.params.hdr.ramdisk_image, 0);
	assert_int_equal(machine.params.hdr.ramdisk_size, 0);
	finish(&machine);
}

static void the_memory_map_leaves_out_the_hole(void **state)
{
	(void)state;
	struct machine machine;

	start(&machine, MEMORY);
	assert_int_equal(boot(&machine), 0);
	assert_int_equal(machine.params.e820_entries, 2);
	assert_int_equal(machine.params.e820_table[0].addr, 0);
	assert_int_equal(machine.params.e820_table[0].size, 0xa0000);
	assert_int_equal(machine.params.e820_table[0].type, 1);
	assert_int_equal(machine.params.e820_table[1].addr, 0x100000);
	assert_int_equal(machine.params.e820_table[1].size, MEMORY - 0x100000);
	assert_int_equal(machine.params.e820_table[1].type, 1);
	finish(&machine);
}

static void the_memory_map_goes_on_above_the_hole(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {
		3ull << 30, (3ull << 30) + (1 << 20), 4ull << 30, 6ull << 30, LAYOUT_MEMORY_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct machine machine;

		start(&machine, sizes[i]);
		assert_int_equal(boot(&machine), 0);
		assert_int_equal(machine.params.e820_entries, sizes[i] > GUEST_HOLE_START ? 3 : 2);
		assert_int_equal(machine.params.e820_table[1].addr, 0x100000);
		assert_int_equal(machine.params.e820_table[1].size, 0xc0000000 - 0x100000);
		assert_int_equal(machine.params.e820_table[2].addr, i > 0 ? 0x100000000 : 0);
		assert_int_equal(machine.params.e820_table[2].size, sizes[i] - 0xc0000000);
		assert_int_equal(machine.params.e820_table[2].type, i > 0);
		finish(&machine);
	}
}

/* An MP table lies in the last KiB of base memory, which is no memory to use then. */
static void an_mp_table_is_reserved(void **state)
{
	(void)state;
	static uint8_t table[BOOT_MPTABLE_MAX + 1], bytes[BOOT_MPTABLE_MAX];
	struct machine machine;

	memset(table, 0x33, sizeof(table));
	start(&machine, 6ull << 30);
	machine.config.mptable = table;
	machine.config.mptable_size = BOOT_MPTABLE_MAX + 1;
	assert_int_equal(boot(&machine), -E2BIG);
	machine.config.mptable_size = BOOT_MPTABLE_MAX;
	assert_int_equal(boot(&machine), 0);
	assert_int_equal(guest_memory_read(&machine.memory, 639 * 1024, bytes, sizeof(bytes)), 0);
	assert_memory_equal(bytes, table, sizeof(bytes));
	assert_int_equal(machine.params.e820_entries, 4);
	assert_int_equal(machine.params.e820_table[0].addr, 0);
	assert_int_equal(machine.params.e820_table[0].size, 639 * 1024);
	assert_int_equal(machine.params.e820_table[0].type, 1);
	assert_int_equal(machine.params.e820_table[1].addr, 639 * 1024);
	assert_int_equal(machine.params.e820_table[1].size, 1024);
	assert_int_equal(machine.params.e820_table[1].type, 2); /* reserved */
	assert_int_equal(machine.params.e820_table[2].addr, 0x100000);
	assert_int_equal(machine.params.e820_table[3].addr, 0x100000000);
	finish(&machine);
}

static void check_setup_data(
	const struct machine *machine, gpa_t at, uint32_t type, const void *data, size_t size, gpa_t *next)
{
	struct setup_data header;
	static uint8_t bytes[FDT_SIZE_MAX];

	assert_int_equal(at % 8, 0);
	assert_int_equal(guest_memory_read(&machine->memory, at, &header, sizeof(header)), 0);
	assert_int_equal(header.type, type);
	assert_int_equal(header.len, size);
	assert_int_equal(guest_memory_read(&machine->memory, at + sizeof(header), bytes, size), 0);
	assert_memory_equal(bytes, data, size);
	assert_true(at >= BOOT_SETUP_DATA && at + sizeof(header) + size <= BOOT_MPTABLE);
	*next = header.next;
}

static void tree_and_seed_are_chained(void **state)
{
	(void)state;
	static uint8_t tree[FDT_SIZE_MAX], seed[BOOT_SEED_MAX];
	struct machine machine;
	gpa_t next = 0;

	memset(tree, 0x17, sizeof(tree));
	memset(seed, 0x42, sizeof(seed));
	start(&machine, MEMORY);
	machine.config.tree = tree;
	machine.config.tree_size = sizeof(tree);
	machine.config.seed = seed;
	machine.config.seed_size = 33; /* what follows is aligned all the same */
	assert_int_equal(boot(&machine), 0);
	check_setup_data(&machine, machine.params.hdr.setup_data, SETUP_DTB, tree, sizeof(tree), &next);
	check_setup_data(&machine, next, SETUP_RNG_SEED, seed, 33, &next);
	assert_int_equal(next, 0);
	finish(&machine);
}

static void a_tree_goes_alone(void **state)
{
	(void)state;
	struct machine machine;
	gpa_t next = 1;

	start(&machine, MEMORY);
	machine.config.tree = "tree";
	machine.config.tree_size = 4;
	assert_int_equal(boot(&machine), 0);
	check_setup_data(&machine, machine.params.hdr.setup_data, SETUP_DTB, "tree", 4, &next);
	assert_int_equal(next, 0);
	finish(&machine);
}

static void the_command_line_is_bounded(void **state)
{
	(void)state;
	static char line[BOOT_CMDLINE_MAX + 1];
	struct machine machine;
	char last[2] = "??";

	memset(line, 'a', BOOT_CMDLINE_MAX);
	start(&machine, MEMORY);
	machine.config.cmdline = line;
	assert_int_equal(boot(&machine), -E2BIG);
	line[BOOT_CMDLINE_MAX - 1] = '\0';
	assert_int_equal(boot(&machine), 0);
	assert_int_equal(guest_memory_read(&machine.memory,
				 machine.params.hdr.cmd_line_ptr + BOOT_CMDLINE_MAX - 2, last, 2),
		0);
	assert_string_equal(last, "a");
	/* boot_params begin right behind it and are whole */
	assert_int_equal(machine.params.hdr.boot_flag, 0xaa55);
	finish(&machine);
}

static void what_is_too_large_or_outside_is_refused(void **state)
{
	(void)state;
	static const struct {
		gpa_t entry;
		struct initrd initrd;
		size_t tree_size, seed_size;
		uint64_t memory;
		int result;
	} cases[] = {
		{ENTRY, {0, 0}, 0, 0, MEMORY, 0},
		{MEMORY - 1, {0, 0}, 0, 0, MEMORY, 0},
		{MEMORY, {0, 0}, 0, 0, MEMORY, -EINVAL},
		{UINT64_MAX, {0, 0}, 0, 0, MEMORY, -EINVAL},
		{BOOT_HIGH_START - 1, {0, 0}, 0, 0, MEMORY, -EINVAL},
		{ENTRY, {MEMORY - 4096, 4096}, 0, 0, MEMORY, 0},
		{ENTRY, {MEMORY - 4096, 4097}, 0, 0, MEMORY, -EINVAL},
		{ENTRY, {BOOT_HIGH_START - 4096, 4096}, 0, 0, MEMORY, -EINVAL},
		{ENTRY, {UINT64_MAX - 4095, 8192}, 0, 0, MEMORY, -EINVAL},
		{ENTRY, {0, 0}, FDT_SIZE_MAX + 1, 0, MEMORY, -E2BIG},
		{ENTRY, {0, 0}, 0, BOOT_SEED_MAX + 1, MEMORY, -E2BIG},
		{ENTRY, {0, 0}, SIZE_MAX, SIZE_MAX, MEMORY, -E2BIG},
		{BOOT_HIGH_START, {0, 0}, 0, 0, BOOT_HIGH_START, -EFAULT},
		{BOOT_HIGH_START, {0, 0}, 0, 0, BOOT_HIGH_START + 4096, 0},
		{ENTRY, {0, 0}, 0, 0, LAYOUT_MEMORY_MAX, 0},
		{ENTRY, {0, 0}, 0, 0, LAYOUT_MEMORY_MAX + 4096, -EFAULT},
		/* the hole, and what is above it */
		{GUEST_HOLE_START - 1, {0, 0}, 0, 0, 6ull << 30, 0},
		{GUEST_HOLE_START, {0, 0}, 0, 0, 6ull << 30, -EINVAL},
		{GUEST_HOLE_END, {0, 0}, 0, 0, 6ull << 30, -EINVAL},
		{ENTRY, {GUEST_HOLE_START - 4096, 4096}, 0, 0, 6ull << 30, 0},
		{ENTRY, {GUEST_HOLE_START - 4096, 4097}, 0, 0, 6ull << 30, -EINVAL},
		{ENTRY, {GUEST_HOLE_END, 4096}, 0, 0, 6ull << 30, -EINVAL},
	};
	static const uint8_t bytes[FDT_SIZE_MAX];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct machine machine;

		start(&machine, cases[i].memory);
		machine.config.entry = cases[i].entry;
		machine.config.initrd = cases[i].initrd;
		machine.config.tree = bytes;
		machine.config.tree_size = cases[i].tree_size;
		machine.config.seed = bytes;
		machine.config.seed_size = cases[i].seed_size;
		assert_int_equal(boot(&machine), cases[i].result);
		finish(&machine);
	}
}

/* Pages that a parked VM pays for: one each for descriptors and command line, boot_params, three tables and
 * setup_data. */
static void six_pages_are_written(void **state)
{
	(void)state;
	static const uint8_t zeroes[LAYOUT_PAGE];
	struct machine machine;
	unsigned count = 0;

	start(&machine, MEMORY);
	machine.config.tree = "tree";
	machine.config.tree_size = 4;
	assert_int_equal(boot(&machine), 0);
	for (gpa_t page = 0; page < MEMORY; page += LAYOUT_PAGE) {
		uint8_t bytes[LAYOUT_PAGE];

		assert_int_equal(guest_memory_read(&machine.memory, page, bytes, sizeof(bytes)), 0);
		count += memcmp(bytes, zeroes, sizeof(bytes)) != 0;
	}
	assert_int_equal(count, 6);
	finish(&machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_vcpu_enters_as_the_protocol_says),
		cmocka_unit_test(the_descriptors_are_flat),
		cmocka_unit_test(memory_below_the_hole_is_mapped_to_itself),
		cmocka_unit_test(the_parameters_carry_the_header),
		cmocka_unit_test(without_an_initrd_there_is_none),
		cmocka_unit_test(the_memory_map_leaves_out_the_hole),
		cmocka_unit_test(the_memory_map_goes_on_above_the_hole),
		cmocka_unit_test(an_mp_table_is_reserved),
		cmocka_unit_test(tree_and_seed_are_chained),
		cmocka_unit_test(a_tree_goes_alone),
		cmocka_unit_test(the_command_line_is_bounded),
		cmocka_unit_test(what_is_too_large_or_outside_is_refused),
		cmocka_unit_test(six_pages_are_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
