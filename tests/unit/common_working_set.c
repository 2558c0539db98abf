/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a working set: what is written is read again, and each thing that it cannot be is refused. */
#include "tests/support/unit.h"

#include "common/working_set.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY (UINT64_C(128) << 20)
enum { PAGES = 32768 };

struct fixture {
	struct working_set *set;
	int file;
	char why[WORKING_SET_WHY_MAX];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->set = calloc(1, sizeof(*f->set));
	assert_non_null(f->set);
	f->set->memory_bytes = MEMORY;
	f->file = memfd_create("working-set", MFD_CLOEXEC);
	assert_true(f->file >= 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	close(f->file);
	free(f->set);
	free(f);
	return 0;
}

static void add(struct fixture *f, enum working_set_kind kind, uint64_t first, uint64_t pages)
{
	for (uint64_t i = 0; i < pages; i++)
		assert_int_equal(working_set_add(f->set, kind, first + i), 0);
}

/* Three runs of written pages, two of read ones. */
static void write_example(struct fixture *f)
{
	add(f, WORKING_SET_WRITTEN, 0, 1);
	add(f, WORKING_SET_WRITTEN, 10, 5);
	add(f, WORKING_SET_WRITTEN, PAGES - 2, 2);
	add(f, WORKING_SET_READ, 2, 3);
	add(f, WORKING_SET_READ, 100, 16);
	assert_int_equal(working_set_write(f->file, f->set), 0);
}

static int read_set(struct fixture *f, struct working_set **set)
{
	f->why[0] = '\0';
	return working_set_read(f->file, MEMORY, set, f->why);
}

static void expect_refused(struct fixture *f, int error, const char *why)
{
	struct working_set *set = NULL;

	assert_int_equal(read_set(f, &set), error);
	assert_string_equal(f->why, why);
	assert_null(set);
}

static void put(struct fixture *f, off_t at, uint32_t value)
{
	assert_int_equal(pwrite(f->file, &value, sizeof(value), at), sizeof(value));
}

static void what_is_written_is_read_again(void **state)
{
	struct fixture *f = *state;
	struct working_set *set = NULL;

	write_example(f);
	assert_int_equal(lseek(f->file, 0, SEEK_END), WORKING_SET_HEADER + 5 * WORKING_SET_RUN);
	assert_int_equal(read_set(f, &set), 0);
	assert_memory_equal(set, f->set, sizeof(*set));
	assert_int_equal(set->kinds[WORKING_SET_WRITTEN].count, 3);
	assert_int_equal(set->kinds[WORKING_SET_WRITTEN].pages, 8);
	assert_int_equal(set->kinds[WORKING_SET_READ].count, 2);
	assert_int_equal(set->kinds[WORKING_SET_READ].pages, 19);
	free(set);
}

static void an_empty_one_is_one(void **state)
{
	struct fixture *f = *state;
	struct working_set *set = NULL;

	assert_int_equal(working_set_write(f->file, f->set), 0);
	assert_int_equal(read_set(f, &set), 0);
	assert_int_equal(set->kinds[WORKING_SET_WRITTEN].count + set->kinds[WORKING_SET_READ].count, 0);
	free(set);
}

static void pages_are_taken_in_ascending_order_only(void **state)
{
	struct fixture *f = *state;

	add(f, WORKING_SET_READ, 5, 2);
	assert_int_equal(working_set_add(f->set, WORKING_SET_READ, 6), -ERANGE);
	assert_int_equal(working_set_add(f->set, WORKING_SET_READ, 0), -ERANGE);
	assert_int_equal(working_set_add(f->set, WORKING_SET_READ, PAGES), -ERANGE);
	assert_int_equal(working_set_add(f->set, WORKING_SET_READ, PAGES - 1), 0);
	assert_int_equal(f->set->kinds[WORKING_SET_READ].count, 2);
}

static void runs_and_written_pages_are_bounded(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < WORKING_SET_RUNS_MAX; i++)
		add(f, WORKING_SET_READ, 2 * i, 1);
	assert_int_equal(working_set_add(f->set, WORKING_SET_READ, 2 * WORKING_SET_RUNS_MAX), -ENOSPC);
	assert_int_equal(working_set_add(f->set, WORKING_SET_READ, 2 * WORKING_SET_RUNS_MAX - 1), 0);
	add(f, WORKING_SET_WRITTEN, 0, WORKING_SET_WRITTEN_MAX);
	assert_int_equal(working_set_add(f->set, WORKING_SET_WRITTEN, WORKING_SET_WRITTEN_MAX), -ENOSPC);
}

static void the_largest_is_read(void **state)
{
	struct fixture *f = *state;
	struct working_set *set = NULL;

	for (unsigned i = 0; i < WORKING_SET_RUNS_MAX; i++) {
		add(f, WORKING_SET_READ, 2 * i, 1);
		add(f, WORKING_SET_WRITTEN, 2 * i, 1);
	}
	assert_int_equal(working_set_write(f->file, f->set), 0);
	assert_int_equal(lseek(f->file, 0, SEEK_END), WORKING_SET_FILE_MAX);
	assert_int_equal(read_set(f, &set), 0);
	assert_memory_equal(set, f->set, sizeof(*set));
	free(set);
	assert_int_equal(ftruncate(f->file, WORKING_SET_FILE_MAX + 1), 0);
	expect_refused(f, -EBADMSG, "has more than 65568 bytes");
}

/* A word of the example replaced. */
static const struct {
	off_t at;
	uint32_t value;
	int error;
	const char *why;
} changes[] = {
	{0, 0x58444e55, -EINVAL, "is not a working set"},
	{4, 0, -EINVAL, "is not a working set"},
	{8, 2, -ENOTSUP, "has version 2 of the format and this program knows version 1"},
	{8, 0, -ENOTSUP, "has version 0 of the format and this program knows version 1"},
	{12, 40, -EBADMSG, "has a header of 40 bytes, not 32"},
	{16, 4096, -EINVAL, "is of a memory of 4096 bytes, not 134217728"},
	{20, 1, -EINVAL, "is of a memory of 4429185024 bytes, not 134217728"},
	{24, 4, -EBADMSG, "has 72 bytes and its header speaks of 80"},
	{24, 2, -EBADMSG, "has 72 bytes and its header speaks of 64"},
	{28, 4097, -EBADMSG, "has 4097 runs of a kind, more than 4096"},
	{24, UINT32_MAX, -EBADMSG, "has 4294967295 runs of a kind, more than 4096"},
	{36, 0, -EBADMSG, "has a run of 0 pages from page 0, and memory has 32768"},
	{36, 10, -EBADMSG, "has a run from page 10 out of order"},
	{32, 11, -EBADMSG, "has a run from page 10 out of order"},
	{48, PAGES - 1, -EBADMSG, "has a run of 2 pages from page 32767, and memory has 32768"},
	{48, UINT32_MAX, -EBADMSG, "has a run of 2 pages from page 4294967295, and memory has 32768"},
	{52, UINT32_MAX, -EBADMSG, "has a run of 4294967295 pages from page 32766, and memory has 32768"},
	{44, WORKING_SET_WRITTEN_MAX, -EBADMSG, "has more than 16384 written pages"},
	{64, 4, -EBADMSG, "has a run from page 4 out of order"},
	{64, 5, -EBADMSG, "has a run from page 5 out of order"},
};

static void what_it_cannot_say_is_refused(void **state)
{
	struct fixture *f = *state;
	uint32_t before;

	write_example(f);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		assert_int_equal(pread(f->file, &before, sizeof(before), changes[i].at), sizeof(before));
		put(f, changes[i].at, changes[i].value);
		expect_refused(f, changes[i].error, changes[i].why);
		put(f, changes[i].at, before);
	}
}

static void every_length_but_its_own_is_refused(void **state)
{
	struct fixture *f = *state;
	struct working_set *set = NULL;
	char data[WORKING_SET_HEADER + 5 * WORKING_SET_RUN];

	write_example(f);
	assert_int_equal(pread(f->file, data, sizeof(data), 0), sizeof(data));
	for (size_t length = 0; length < sizeof(data); length++) {
		assert_int_equal(pwrite(f->file, data, sizeof(data), 0), sizeof(data));
		assert_int_equal(ftruncate(f->file, (off_t)length), 0);
		assert_int_equal(read_set(f, &set), length < WORKING_SET_HEADER ? -EINVAL : -EBADMSG);
	}
	assert_int_equal(pwrite(f->file, data, sizeof(data), 0), sizeof(data));
	assert_int_equal(ftruncate(f->file, sizeof(data) + 1), 0);
	expect_refused(f, -EBADMSG, "has 73 bytes and its header speaks of 72");
}

static void a_file_that_cannot_be_read_is_said(void **state)
{
	struct fixture *f = *state;
	struct working_set *set = NULL;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(working_set_read(ends[0], MEMORY, &set, f->why), -ESPIPE);
	assert_string_equal(f->why, "cannot be read: Illegal seek");
	close(ends[0]);
	close(ends[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_written_is_read_again),
		TEST(an_empty_one_is_one),
		TEST(pages_are_taken_in_ascending_order_only),
		TEST(runs_and_written_pages_are_bounded),
		TEST(the_largest_is_read),
		TEST(what_it_cannot_say_is_refused),
		TEST(every_length_but_its_own_is_refused),
		TEST(a_file_that_cannot_be_read_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
