/* SPDX-License-Identifier: Apache-2.0 */
/* Private pages: what differs from the base is saved, no more, and is there again. */
#include "tests/unit/vmm_pages_fixture.h"

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
		cmocka_unit_test_setup_teardown(each_allocation_may_fail, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
