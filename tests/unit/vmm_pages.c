/* SPDX-License-Identifier: Apache-2.0 */
/* Private pages: what differs from the base is saved, no more, and is there again; each wrong file is named.
 */
#include "tests/support/unit.h"

#include "tests/support/fail_alloc.h"
#include "vmm/checksum.h"
#include "vmm/pagemap.h"
#include "vmm/pages.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PAGE = SNAPSHOT_PAGE,
	FIRST = 8 << 20,
	SECOND = 2 << 20,
	WHOLE = FIRST + SECOND,
	PAGES = WHOLE / PAGE,
	DATA_END = 6 << 20, /* of the base: then it is a hole up to the second region */
	START = 4096,	    /* of the first page in the file: the maps are small */
	MAPS = PAGES_HEADER,
	MAP_BYTES = PAGES / 8,
	CYCLES = 20,
	CHANGES = 40, /* in each */
};
#define SECOND_BASE (UINT64_C(1) << 32)

struct fixture {
	struct pages_base base;
	uint8_t *model; /* what memory is to be */
	struct guest_memory memory;
	int pagemap, file;
	struct pages_what what;
	uint8_t *original; /* the base */
	char why[SNAPSHOT_WHY_MAX];
};

static int make_file(void)
{
	int fd = memfd_create("pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	return fd;
}

static void seal(int fd)
{
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
}

static uint8_t *allocate(void)
{
	uint8_t *bytes = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(bytes != MAP_FAILED);
	return bytes;
}

/* Memory that is the base's. */
static void map(struct fixture *f, struct guest_memory *memory)
{
	assert_int_equal(guest_memory_init(memory, FIRST), 0);
	memory->regions[1] = (struct guest_region){.base = SECOND_BASE,
		.size = SECOND,
		.host = mmap(NULL, SECOND, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
	assert_true(memory->regions[1].host != MAP_FAILED);
	memory->count = 2;
	assert_int_equal(snapshot_memory_map(memory, f->base.fd), 0);
}

static uint8_t *at(const struct guest_memory *memory, unsigned page)
{
	size_t offset = (size_t)page * PAGE;

	return offset < FIRST ? memory->regions[0].host + offset : memory->regions[1].host + offset - FIRST;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->original = allocate();
	f->model = allocate();
	for (size_t page = 0; page < PAGES; page++)
		if (page * PAGE < DATA_END || page * PAGE >= FIRST)
			memset(f->original + page * PAGE, (int)(page % 255) + 1, PAGE);
	memcpy(f->model, f->original, WHOLE);
	f->base.fd = make_file();
	assert_int_equal(pwrite(f->base.fd, f->original, DATA_END, 0), DATA_END);
	assert_int_equal(pwrite(f->base.fd, f->original + FIRST, SECOND, FIRST), SECOND);
	f->base.what = (struct snapshot_memory){.size = WHOLE, .sum = 0x1234, .is_base = true};
	f->pagemap = pagemap_open();
	assert_true(f->pagemap >= 0);
	f->file = make_file();
	map(f, &f->memory);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	guest_memory_finish(&f->memory);
	munmap(f->original, WHOLE);
	munmap(f->model, WHOLE);
	close(f->base.fd);
	close(f->pagemap);
	close(f->file);
	free(f);
	return 0;
}

static void write_page(struct fixture *f, unsigned page, int value)
{
	memset(at(&f->memory, page), value, PAGE);
	memset(f->model + (size_t)page * PAGE, value, PAGE);
}

/* Whatever was there, it differs. */
static void flip(struct fixture *f, unsigned page)
{
	at(&f->memory, page)[8] ^= 1;
	f->model[(size_t)page * PAGE + 8] ^= 1;
}

static void discard(struct fixture *f, unsigned page, unsigned count)
{
	assert_true(guest_memory_discard(&f->memory, at(&f->memory, page), (uint64_t)count * PAGE) ==
		    (int64_t)count * PAGE);
	memset(f->model + (size_t)page * PAGE, 0, (size_t)count * PAGE);
}

static void expect_model(const struct fixture *f, const struct guest_memory *memory)
{
	assert_int_equal(memcmp(memory->regions[0].host, f->model, FIRST), 0);
	assert_int_equal(memcmp(memory->regions[1].host, f->model + FIRST, SECOND), 0);
}

/* What the file is to have, by comparing all. */
static void count_differences(const struct fixture *f, uint64_t *stored, uint64_t *zero)
{
	static const uint8_t zeros[PAGE];

	*stored = *zero = 0;
	for (size_t page = 0; page < PAGES; page++) {
		const uint8_t *is = f->model + page * PAGE;

		if (memcmp(is, f->original + page * PAGE, PAGE) == 0)
			continue;
		*(memcmp(is, zeros, PAGE) == 0 ? zero : stored) += 1;
	}
}

static void save(struct fixture *f)
{
	assert_int_equal(ftruncate(f->file, 0), 0);
	assert_int_equal(pages_save(&f->memory, &f->base, f->pagemap, f->file, &f->what), 0);
}

static int try_open(struct fixture *f, struct pages_table *table)
{
	int r;

	f->why[0] = '\0';
	r = pages_open(f->file, &f->what, &f->base.what, table, f->why);
	assert_int_equal(r == 0, f->why[0] == '\0');
	assert_int_equal(r == 0, table->stored != NULL);
	return r;
}

static int try_load(struct fixture *f, struct guest_memory *memory)
{
	struct pages_table table;
	int r;

	assert_int_equal(try_open(f, &table), 0);
	r = pages_load(memory, &table, f->file, &f->what, f->why);
	pages_table_finish(&table);
	return r;
}

/* From now on the memory is what was saved. */
static void restore(struct fixture *f)
{
	guest_memory_finish(&f->memory);
	map(f, &f->memory);
	assert_int_equal(try_load(f, &f->memory), 0);
	expect_model(f, &f->memory);
}

static void expect_counts(struct fixture *f, uint64_t stored, uint64_t zero)
{
	struct pages_table table;
	uint64_t wanted_stored, wanted_zero;

	count_differences(f, &wanted_stored, &wanted_zero);
	assert_int_equal(wanted_stored, stored);
	assert_int_equal(wanted_zero, zero);
	assert_int_equal(try_open(f, &table), 0);
	assert_int_equal(table.stored_count, stored);
	assert_int_equal(table.zero_count, zero);
	assert_int_equal(f->what.bytes, START + stored * PAGE);
	pages_table_finish(&table);
}

static void some_changes(struct fixture *f)
{
	write_page(f, 0, 77);
	write_page(f, FIRST / PAGE - 1, 78); /* in a hole, next to the other region */
	write_page(f, FIRST / PAGE, 79);
	write_page(f, PAGES - 1, 80);
	for (unsigned page = 100; page < 140; page++)
		write_page(f, page, 81);
	at(&f->memory, 200)[PAGE - 1] = 1;
	f->model[200 * PAGE + PAGE - 1] = 1;
	write_page(f, 201, 0);
}

static void what_has_not_changed_is_not_saved(void **state)
{
	struct fixture *f = *state;

	/* Read, written back as it was, and copied before anyone wrote to it. */
	assert_int_equal(*at(&f->memory, 3), 4);
	*(volatile uint8_t *)at(&f->memory, 5) = *at(&f->memory, 5);
	assert_int_equal(guest_memory_populate(at(&f->memory, 50), 30 * PAGE, true), 0);
	/* In a hole: looked at only, and written with zeros. */
	assert_int_equal(*at(&f->memory, DATA_END / PAGE + 300), 0);
	write_page(f, DATA_END / PAGE + 301, 0);
	save(f);
	expect_counts(f, 0, 0);
	restore(f);
}

static void what_has_changed_is_saved_and_restored(void **state)
{
	struct fixture *f = *state;

	some_changes(f);
	save(f);
	expect_counts(f, 45, 1);
	expect_model(f, &f->memory);
	restore(f);
}

static void what_was_given_back_is_zeros(void **state)
{
	struct fixture *f = *state;

	some_changes(f);
	discard(f, 96, 64);
	discard(f, 512, 256);
	discard(f, DATA_END / PAGE + 64, 64); /* zeros already */
	write_page(f, 520, 9);
	save(f);
	expect_counts(f, 6, 64 + 255 + 1);
	restore(f);
	/* Restored, they are given back again, but for a part of a block. */
	save(f);
	expect_counts(f, 6, 64 + 255 + 1);
	restore(f);
	write_page(f, 97, 98); /* as the base has it */
	save(f);
	expect_counts(f, 6, 63 + 255 + 1);
}

static void without_a_pagemap_all_is_compared(void **state)
{
	struct fixture *f = *state;
	struct pages_what what;
	int other = make_file();
	uint8_t *a, *b;

	some_changes(f);
	discard(f, 512, 16);
	save(f);
	assert_int_equal(pages_save(&f->memory, &f->base, -1, other, &what), 0);
	assert_memory_equal(&what, &f->what, sizeof(what));
	a = mmap(NULL, what.bytes, PROT_READ, MAP_PRIVATE, f->file, 0);
	b = mmap(NULL, what.bytes, PROT_READ, MAP_PRIVATE, other, 0);
	assert_memory_equal(a, b, what.bytes);
	munmap(a, what.bytes);
	munmap(b, what.bytes);
	close(other);
}

/* Always against the one base: what comes back to be as it was there is left out again. */
static void a_chain_does_not_grow_by_more_than_what_changed(void **state)
{
	struct fixture *f = *state;
	unsigned seed = 1;

	for (int cycle = 0; cycle < CYCLES; cycle++) {
		uint64_t stored, zero;

		for (int change = 0; change < CHANGES; change++) {
			unsigned page;

			seed = seed * 1103515245 + 12345;
			page = seed / 65536 % PAGES;
			if (change == 0)
				discard(f, page / 32 * 32, 32);
			else if (change % 8 == 1)
				write_page(f, page, f->original[(size_t)page * PAGE]);
			else
				write_page(f, page, change % 8 == 2 ? 0 : cycle + 100);
		}
		count_differences(f, &stored, &zero);
		close(f->file);
		f->file = make_file();
		save(f);
		expect_counts(f, stored, zero);
		if (cycle % 2 == 0)
			seal(f->file);
		restore(f);
	}
}

/* --- sealed files --- */

static unsigned count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned lines = 0;
	int byte;

	assert_non_null(maps);
	while ((byte = getc(maps)) != EOF)
		lines += byte == '\n';
	fclose(maps);
	return lines;
}

/* Long runs stay the file's until they are written to: many VMs share them. They belong to what is saved. */
static void long_runs_of_a_sealed_file_are_mapped(void **state)
{
	struct fixture *f = *state;
	bool own[PAGEMAP_PAGES_MAX];

	some_changes(f);
	save(f);
	seal(f->file);
	restore(f);
	assert_int_equal(pagemap_read(f->pagemap, at(&f->memory, 99), 42, own), 0);
	for (unsigned i = 0; i < 42; i++)
		assert_false(own[i]);
	assert_int_equal(pagemap_read(f->pagemap, at(&f->memory, 0), 1, own), 0);
	assert_true(own[0]); /* short ones are read */
	write_page(f, 110, 5);
	close(f->file);
	f->file = make_file();
	save(f);
	expect_counts(f, 45, 1);
	restore(f);
	assert_int_equal(pagemap_read(f->pagemap, at(&f->memory, 100), 40, own), 0);
	for (unsigned i = 0; i < 40; i++)
		assert_true(own[i]); /* this one is not sealed */
}

static void mappings_are_bounded(void **state)
{
	struct fixture *f = *state;
	bool own[PAGEMAP_PAGES_MAX];
	unsigned before;

	/* Of every 17 pages 16: more runs than may be mapped, so that only a longer one is. */
	for (unsigned page = 0; page < PAGES; page++)
		if (page % (PAGES_RUN_MIN + 1) < PAGES_RUN_MIN || page < 3 * PAGES_RUN_MIN)
			flip(f, page);
	assert_true(PAGES / (PAGES_RUN_MIN + 1) > PAGES_MAPPINGS_MAX);
	save(f);
	seal(f->file);
	guest_memory_finish(&f->memory);
	map(f, &f->memory);
	before = count_mappings();
	assert_int_equal(try_load(f, &f->memory), 0);
	assert_true(count_mappings() <= before + 2);
	expect_model(f, &f->memory);
	assert_int_equal(pagemap_read(f->pagemap, at(&f->memory, 0), 100, own), 0);
	assert_false(own[0] || own[3 * PAGES_RUN_MIN - 1]);
	assert_true(own[5 * PAGES_RUN_MIN]);
}

static void a_sealed_file_is_not_read_for_its_checksum(void **state)
{
	struct fixture *f = *state;
	struct guest_memory memory;

	some_changes(f);
	save(f);
	f->what.pages_sum++;
	map(f, &memory);
	assert_int_equal(try_load(f, &memory), -EBADMSG);
	assert_string_equal(f->why, "is damaged, or not the one that was saved with this state: the checksum "
				    "of its pages is another");
	guest_memory_finish(&memory);
	seal(f->file);
	restore(f);
}

static void every_page_is_guarded(void **state)
{
	struct fixture *f = *state;

	some_changes(f);
	save(f);
	for (unsigned page = 0; page < 45; page++) {
		off_t where = START + (off_t)page * PAGE + page * 91 % PAGE;
		struct guest_memory memory;
		uint8_t was, is;

		assert_int_equal(pread(f->file, &was, 1, where), 1);
		is = was ^ 1;
		assert_int_equal(pwrite(f->file, &is, 1, where), 1);
		map(f, &memory);
		assert_int_equal(try_load(f, &memory), -EBADMSG);
		guest_memory_finish(&memory);
		assert_int_equal(pwrite(f->file, &was, 1, where), 1);
	}
	restore(f);
}

/* --- refused --- */

/* Changes what is before the pages, with the checksum made right again: an enemy can do that. */
static void change(struct fixture *f, off_t where, const void *bytes, size_t length)
{
	uint8_t table[START];

	assert_int_equal(pwrite(f->file, bytes, length, where), length);
	assert_int_equal(pread(f->file, table, START, 0), START);
	f->what.table_sum = checksum(table, START);
}

static void expect_refused(struct fixture *f, int error, const char *why)
{
	struct pages_table table;

	assert_int_equal(try_open(f, &table), error);
	assert_string_equal(f->why, why);
}

static void change_u32(struct fixture *f, off_t where, uint32_t value, int error, const char *why)
{
	uint32_t was;

	assert_int_equal(pread(f->file, &was, sizeof(was), where), sizeof(was));
	change(f, where, &value, sizeof(value));
	expect_refused(f, error, why);
	change(f, where, &was, sizeof(was));
}

static void change_u64(struct fixture *f, off_t where, uint64_t value, int error, const char *why)
{
	uint64_t was;

	assert_int_equal(pread(f->file, &was, sizeof(was), where), sizeof(was));
	change(f, where, &value, sizeof(value));
	expect_refused(f, error, why);
	change(f, where, &was, sizeof(was));
}

static void every_field_is_checked(void **state)
{
	struct fixture *f = *state;
	struct pages_table table;

	some_changes(f);
	save(f);
	change_u32(f, 0, 0, -EINVAL, "is not a file of private pages");
	change_u32(f, 8, 2, -ENOTSUP, "has version 2 of the format and this vmm knows version 1");
	change_u32(f, 12, 64, -EBADMSG, "has a header of 64 bytes, not 56");
	change_u64(f, 16, 2 * WHOLE, -EINVAL, "is of a memory of 20971520 bytes, not 10485760");
	change_u64(f, 24, 0x99, -EINVAL,
		"lies upon a memory with the checksum 0000000000000099, not 0000000000001234");
	change_u64(f, 32, 46, -EBADMSG, "speaks of 46 pages and 1 of zeros, and its maps have 45 and 1");
	change_u64(f, 32, UINT64_MAX, -EBADMSG,
		"speaks of 18446744073709551615 pages and 1 of zeros, and its maps have 45 and 1");
	change_u64(f, 40, 0, -EBADMSG, "speaks of 45 pages and 0 of zeros, and its maps have 45 and 1");
	change_u64(f, 48, 2 * START, -EBADMSG, "has its first page at 8192, not 4096");
	change_u64(f, 48, UINT64_MAX, -EBADMSG, "has its first page at 18446744073709551615, not 4096");
	change_u64(f, MAPS + MAP_BYTES, 1, -EBADMSG, "has page 0 twice, as itself and as zeros");
	change_u64(f, MAPS + MAP_BYTES + 24, 3 << 9, -EBADMSG,
		"speaks of 45 pages and 1 of zeros, and its maps have 45 and 2");
	assert_int_equal(try_open(f, &table), 0);
	pages_table_finish(&table);
}

/* One more page in the map than in the file, and the count is right. */
static void maps_and_pages_must_agree(void **state)
{
	struct fixture *f = *state;
	uint64_t bits = ~UINT64_C(0), count = 45 + 64;

	some_changes(f);
	save(f);
	change(f, MAPS + 64, &bits, sizeof(bits));
	change(f, 32, &count, sizeof(count));
	expect_refused(f, -EBADMSG, "has 184320 bytes behind its maps, not those of 109 pages");
}

static void every_bit_before_the_pages_is_guarded(void **state)
{
	struct fixture *f = *state;

	some_changes(f);
	save(f);
	for (unsigned i = 0; i < START * 8; i += i < (MAPS + 2 * MAP_BYTES) * 8 ? 1 : 37) {
		struct pages_table table;
		uint8_t was, is;

		assert_int_equal(pread(f->file, &was, 1, i / 8), 1);
		is = was ^ (uint8_t)(1 << i % 8);
		assert_int_equal(pwrite(f->file, &is, 1, i / 8), 1);
		assert_true(try_open(f, &table) < 0);
		assert_int_equal(pwrite(f->file, &was, 1, i / 8), 1);
	}
	f->what.table_sum++;
	expect_refused(f, -EBADMSG,
		"is damaged, or not the one that was saved with this state: the checksum of its maps is "
		"another");
}

static void a_file_of_another_length_is_refused(void **state)
{
	struct fixture *f = *state;
	uint64_t whole;

	some_changes(f);
	save(f);
	whole = f->what.bytes;
	for (uint64_t length = 0; length < whole; length += 1021) {
		struct pages_table table;

		assert_int_equal(ftruncate(f->file, (off_t)length), 0);
		f->what.bytes = whole;
		assert_int_equal(try_open(f, &table), -EINVAL);
		/* And where the state goes along with it. */
		f->what.bytes = length;
		assert_true(try_open(f, &table) < 0);
	}
	assert_int_equal(ftruncate(f->file, 100), 0);
	f->what.bytes = whole;
	expect_refused(f, -EINVAL, "has 100 bytes, not 188416");
	f->what.bytes = 100;
	expect_refused(f, -EBADMSG, "has 100 bytes, too few for its maps");
}

static void another_base_is_refused(void **state)
{
	struct fixture *f = *state;

	some_changes(f);
	save(f);
	f->base.what.sum = 0x77;
	expect_refused(
		f, -EINVAL, "lies upon a memory with the checksum 0000000000001234, not 0000000000000077");
}

static void what_is_no_file_is_refused(void **state)
{
	struct fixture *f = *state;
	int pipes[2], file = f->file;

	save(f);
	assert_int_equal(pipe(pipes), 0);
	f->file = pipes[0];
	expect_refused(f, -EINVAL, "is no regular file");
	close(pipes[0]);
	close(pipes[1]);
	expect_refused(f, -EBADF, "cannot be looked at: Bad file descriptor");
	f->file = file;
}

/* Between the look at its header and its pages. */
static void a_file_that_is_cut_off_just_now_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct pages_table table;

	some_changes(f);
	save(f);
	assert_int_equal(try_open(f, &table), 0);
	assert_int_equal(ftruncate(f->file, START + 3 * PAGE), 0);
	assert_int_equal(pages_load(&f->memory, &table, f->file, &f->what, f->why), -EIO);
	assert_string_equal(f->why, "cannot be read: Input/output error");
	pages_table_finish(&table);
}

static void files_that_fail_are_errors(void **state)
{
	struct fixture *f = *state;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), base = f->base.fd;

	some_changes(f);
	assert_true(full >= 0);
	assert_int_equal(pages_save(&f->memory, &f->base, f->pagemap, full, &f->what), -ENOSPC);
	close(full);
	assert_int_equal(pages_save(&f->memory, &f->base, base, f->file, &f->what), -EIO); /* no pagemap */
	f->base.fd = make_file();
	assert_int_equal(pages_save(&f->memory, &f->base, f->pagemap, f->file, &f->what), -EIO);
	assert_int_equal(f->what.bytes, 0);
	close(f->base.fd);
	f->base.fd = base;
}

static int save_and_open(struct fixture *f)
{
	struct pages_table table;
	int r = pages_save(&f->memory, &f->base, f->pagemap, f->file, &f->what);

	if (r == 0)
		r = pages_open(f->file, &f->what, &f->base.what, &table, f->why);
	if (r < 0)
		return r;
	r = pages_load(&f->memory, &table, f->file, &f->what, f->why);
	pages_table_finish(&table);
	return r;
}

static void each_allocation_may_fail(void **state)
{
	struct fixture *f = *state;
	unsigned n = 0;
	int r;

	some_changes(f);
	do {
		fail_alloc(n++);
		r = save_and_open(f);
		assert_true(r == 0 || r == -ENOMEM);
	} while (fail_alloc_end());
	assert_int_equal(r, 0);
	assert_true(n > 6);
	expect_model(f, &f->memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_has_not_changed_is_not_saved, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_has_changed_is_saved_and_restored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_was_given_back_is_zeros, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_a_pagemap_all_is_compared, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_chain_does_not_grow_by_more_than_what_changed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(long_runs_of_a_sealed_file_are_mapped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(mappings_are_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_sealed_file_is_not_read_for_its_checksum, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_page_is_guarded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_field_is_checked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(maps_and_pages_must_agree, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_bit_before_the_pages_is_guarded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_of_another_length_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_base_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_no_file_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_file_that_is_cut_off_just_now_is_an_error, set_up, tear_down),
		cmocka_unit_test_setup_teardown(files_that_fail_are_errors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(each_allocation_may_fail, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
