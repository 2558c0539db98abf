/* SPDX-License-Identifier: Apache-2.0 */
/* The state file as a whole: what is refused before any record is looked at, and in which words. */
#include "tests/support/unit.h"

#include "vmm/checksum.h"
#include "vmm/snapshot.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RECORD_BYTES = 12, FILE_BYTES = SNAPSHOT_HEADER + RECORD_BYTES + SNAPSHOT_CHECKSUM };
static const struct snapshot_memory written = {.size = 128 << 20, .sum = 0x0123456789abcdef};

struct fixture {
	uint8_t file[SNAPSHOT_STATE_MAX];
	size_t length;
	char why[SNAPSHOT_WHY_MAX];
};

/* A file with one record. */
static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct state_writer writer;
	size_t where;

	assert_non_null(f);
	snapshot_begin(&writer, f->file);
	where = state_begin_record(&writer, SNAPSHOT_CLOCK);
	state_put_u32(&writer, 42);
	state_end_record(&writer, where);
	assert_int_equal(snapshot_finish(&writer, &written), 0);
	f->length = writer.length;
	assert_int_equal(f->length, FILE_BYTES);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static int parse(struct fixture *f, size_t length)
{
	/* A copy of just that length: reading behind it is found out. */
	uint8_t *copy = malloc(length ? length : 1);
	struct snapshot_memory memory;
	struct state_reader records;
	int r;

	assert_non_null(copy);
	memcpy(copy, f->file, length);
	f->why[0] = '\0';
	r = snapshot_parse(copy, length, &memory, &records, f->why);
	assert_int_equal(r == 0, f->why[0] == '\0');
	free(copy);
	return r;
}

/* Makes the checksum right again: only what the test changed is wrong. */
static void seal(struct fixture *f)
{
	uint64_t sum = checksum(f->file, f->length - SNAPSHOT_CHECKSUM);

	memcpy(f->file + f->length - SNAPSHOT_CHECKSUM, &sum, sizeof(sum));
}

static void what_was_written_is_read(void **state)
{
	struct fixture *f = *state;
	struct snapshot_memory memory;
	struct state_reader records, record;

	assert_int_equal(snapshot_parse(f->file, f->length, &memory, &records, f->why), 0);
	assert_true(memory.size == written.size && memory.sum == written.sum);
	state_get_record(&records, SNAPSHOT_CLOCK, &record);
	assert_int_equal(state_get_u32(&record), 42);
	assert_int_equal(state_reader_finish(&record), 0);
	assert_int_equal(state_reader_finish(&records), 0);
}

static void a_file_cut_off_anywhere_is_refused(void **state)
{
	struct fixture *f = *state;

	for (size_t length = 0; length < f->length; length++) {
		int wanted = length < 8 ? -EINVAL : -EBADMSG;

		assert_int_equal(parse(f, length), wanted);
	}
	assert_int_equal(parse(f, f->length), 0);
	assert_int_equal(parse(f, f->length + 1), -EBADMSG);
	assert_string_equal(f->why, "has 61 bytes and its header speaks of 60");
}

static void every_bit_of_the_file_is_guarded(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < f->length * 8; i++) {
		int r;

		f->file[i / 8] ^= (uint8_t)(1 << i % 8);
		r = parse(f, f->length);
		assert_int_equal(r, i < 64 ? -EINVAL : i < 96 ? -ENOTSUP : -EBADMSG);
		f->file[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	assert_int_equal(parse(f, f->length), 0);
}

static void another_kind_of_file_is_named(void **state)
{
	struct fixture *f = *state;

	memcpy(f->file, "\177ELF", 4);
	assert_int_equal(parse(f, f->length), -EINVAL);
	assert_string_equal(f->why, "is not the state file of a snapshot");
}

static void a_newer_version_is_named(void **state)
{
	struct fixture *f = *state;

	f->file[8] = SNAPSHOT_VERSION_PAGES + 1;
	seal(f);
	assert_int_equal(parse(f, f->length), -ENOTSUP);
	assert_string_equal(f->why, "has version 3 of the format and this vmm knows versions 1 and 2");
	f->file[8] = 0;
	seal(f);
	assert_int_equal(parse(f, f->length), -ENOTSUP);
	assert_string_equal(f->why, "has version 0 of the format and this vmm knows versions 1 and 2");
}

/* The version says whether the memory is all of it. */
static void the_state_of_private_pages_has_a_version_of_its_own(void **state)
{
	struct fixture *f = *state;
	struct snapshot_memory memory, base = {.size = written.size, .sum = 7, .is_base = true};
	struct state_reader records;
	struct state_writer writer;

	assert_int_equal(f->file[8], SNAPSHOT_VERSION);
	assert_int_equal(snapshot_parse(f->file, f->length, &memory, &records, f->why), 0);
	assert_false(memory.is_base);
	snapshot_begin(&writer, f->file);
	assert_int_equal(snapshot_finish(&writer, &base), 0);
	assert_int_equal(f->file[8], SNAPSHOT_VERSION_PAGES);
	assert_int_equal(snapshot_parse(f->file, writer.length, &memory, &records, f->why), 0);
	assert_true(memory.is_base && memory.size == base.size && memory.sum == base.sum);
	assert_int_equal(state_reader_finish(&records), 0);
}

static void damage_is_named(void **state)
{
	struct fixture *f = *state;

	f->file[SNAPSHOT_HEADER + 9] ^= 1;
	assert_int_equal(parse(f, f->length), -EBADMSG);
	assert_string_equal(f->why, "is damaged: its checksum is another");
	seal(f);
	assert_int_equal(parse(f, f->length), 0);
}

static void another_length_is_refused(void **state)
{
	struct fixture *f = *state;
	static const uint64_t lengths[] = {0, RECORD_BYTES - 1, RECORD_BYTES + 1, SNAPSHOT_STATE_MAX + 1,
		(UINT64_C(1) << 32) + RECORD_BYTES, UINT64_MAX - SNAPSHOT_HEADER, UINT64_MAX};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		memcpy(f->file + 16, &lengths[i], sizeof(lengths[i]));
		seal(f);
		assert_int_equal(parse(f, f->length), -EBADMSG);
	}
}

static void a_header_of_another_length_is_refused(void **state)
{
	struct fixture *f = *state;

	f->file[12] = SNAPSHOT_HEADER + 8;
	seal(f);
	assert_int_equal(parse(f, f->length), -EBADMSG);
	assert_string_equal(f->why, "has a header of 48 bytes, not 40");
}

static void a_state_that_is_too_large_is_not_finished(void **state)
{
	struct fixture *f = *state;
	struct state_writer writer;

	snapshot_begin(&writer, f->file);
	while (writer.length < SNAPSHOT_STATE_MAX)
		state_put_u8(&writer, 1);
	assert_int_equal(writer.error, 0);
	assert_int_equal(snapshot_finish(&writer, &written), -ENOSPC);
	state_put_u8(&writer, 1);
	assert_int_equal(snapshot_finish(&writer, &written), -ENOSPC);
}

static int make_file(const void *data, size_t length)
{
	int fd = memfd_create("state", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, length), (ssize_t)length);
	return fd;
}

static void a_file_is_read_whole(void **state)
{
	struct fixture *f = *state;
	int fd = make_file(f->file, f->length);
	uint8_t *data;
	size_t length;

	/* Wherever its offset stands. */
	assert_int_equal(snapshot_read_file(fd, &data, &length), 0);
	assert_int_equal(length, f->length);
	assert_memory_equal(data, f->file, length);
	free(data);
	assert_int_equal(ftruncate(fd, SNAPSHOT_STATE_MAX), 0);
	assert_int_equal(snapshot_read_file(fd, &data, &length), 0);
	assert_int_equal(length, SNAPSHOT_STATE_MAX);
	free(data);
	assert_int_equal(ftruncate(fd, SNAPSHOT_STATE_MAX + 1), 0);
	assert_int_equal(snapshot_read_file(fd, &data, &length), -EFBIG);
	close(fd);
	assert_int_equal(snapshot_read_file(fd, &data, &length), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_written_is_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_cut_off_anywhere_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_bit_of_the_file_is_guarded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_kind_of_file_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_newer_version_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			the_state_of_private_pages_has_a_version_of_its_own, set_up, tear_down),
		cmocka_unit_test_setup_teardown(damage_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_length_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_header_of_another_length_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_state_that_is_too_large_is_not_finished, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_is_read_whole, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
