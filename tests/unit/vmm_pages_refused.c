/* SPDX-License-Identifier: Apache-2.0 */
/* Files of private pages that are not what they should be: each is refused, with its words. */
#include "tests/unit/vmm_pages_fixture.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_field_is_checked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(maps_and_pages_must_agree, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_bit_before_the_pages_is_guarded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_of_another_length_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_base_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_no_file_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_file_that_is_cut_off_just_now_is_an_error, set_up, tear_down),
		cmocka_unit_test_setup_teardown(files_that_fail_are_errors, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
