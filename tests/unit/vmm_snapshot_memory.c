/* SPDX-License-Identifier: Apache-2.0 */
/* The memory file: sparse, checked, mapped privately. */
#include "tests/support/unit.h"

#include "vmm/snapshot_memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = SNAPSHOT_PAGE, FIRST = 2 << 20, SECOND = 1 << 20, WHOLE = FIRST + SECOND };
#define SECOND_BASE (UINT64_C(1) << 32)

struct fixture {
	struct guest_memory memory;
	int file;
	struct snapshot_memory what;
	uint64_t written;
	char why[SNAPSHOT_WHY_MAX];
};

static uint8_t *map_region(size_t size)
{
	uint8_t *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(host != MAP_FAILED);
	return host;
}

static int make_file(void)
{
	int fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	return fd;
}

/* Two regions, with something on the first and last page of each and on three in the middle. */
static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	uint8_t *first = map_region(FIRST), *second = map_region(SECOND);

	assert_non_null(f);
	f->memory.regions[0] = (struct guest_region){.base = 0, .size = FIRST, .host = first};
	f->memory.regions[1] = (struct guest_region){.base = SECOND_BASE, .size = SECOND, .host = second};
	f->memory.count = 2;
	first[0] = 1;
	first[FIRST - 1] = 2;
	memset(first + 100 * PAGE + 8, 3, 2 * PAGE);
	second[0] = 4;
	second[SECOND - PAGE + 4000] = 5;
	f->file = make_file();
	assert_int_equal(snapshot_memory_save(&f->memory, f->file, &f->what, &f->written), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	guest_memory_finish(&f->memory);
	close(f->file);
	free(f);
	return 0;
}

static int check(struct fixture *f)
{
	f->why[0] = '\0';
	return snapshot_memory_check(f->file, &f->what, WHOLE, f->why);
}

static void zero_pages_are_holes(void **state)
{
	struct fixture *f = *state;
	struct stat status;

	assert_true(f->what.size == WHOLE);
	assert_int_equal(f->written, 7 * PAGE);
	assert_int_equal(fstat(f->file, &status), 0);
	assert_int_equal(status.st_size, WHOLE);
	assert_int_equal(status.st_blocks * 512, 7 * PAGE);
	assert_int_equal(check(f), 0);
}

static void an_empty_memory_is_one_hole(void **state)
{
	struct fixture *f = *state;
	struct stat status;
	int file = make_file();

	for (unsigned i = 0; i < 2; i++)
		memset(f->memory.regions[i].host, 0, f->memory.regions[i].size);
	assert_int_equal(snapshot_memory_save(&f->memory, file, &f->what, &f->written), 0);
	assert_int_equal(f->written, 0);
	assert_int_equal(fstat(file, &status), 0);
	assert_int_equal(status.st_size, WHOLE);
	assert_int_equal(status.st_blocks, 0);
	close(f->file);
	f->file = file;
	assert_int_equal(check(f), 0);
}

/* Restored: the same bytes at the same addresses, each guest's own from then on. */
static void a_mapped_file_is_the_memory_it_was(void **state)
{
	struct fixture *f = *state;
	struct guest_memory copy = f->memory;
	uint8_t byte;

	for (unsigned i = 0; i < 2; i++) {
		copy.regions[i].host = map_region(copy.regions[i].size);
		copy.regions[i].host[7] = 99; /* what was there before is gone */
	}
	assert_int_equal(snapshot_memory_map(&copy, f->file), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_memory_equal(copy.regions[i].host, f->memory.regions[i].host, copy.regions[i].size);
	/* What the guest gives back is zeros then, and not the file's bytes again; less than a block stays.
	 */
	assert_true(guest_memory_discard(&copy, copy.regions[0].host + 100 * PAGE, 2 * PAGE) == 0);
	assert_true(guest_memory_discard(&copy, copy.regions[0].host + 95 * PAGE, 17 * PAGE) == 16 * PAGE);
	assert_memory_equal(copy.regions[0].host, f->memory.regions[0].host, 96 * PAGE);
	for (size_t i = 96 * PAGE; i < 112 * PAGE; i++)
		assert_int_equal(copy.regions[0].host[i], 0);
	copy.regions[1].host[0] = 77;
	assert_int_equal(pread(f->file, &byte, 1, FIRST), 1);
	assert_int_equal(byte, 4);
	assert_int_equal(check(f), 0);
	guest_memory_finish(&copy);
}

static uint64_t held(int file)
{
	struct stat status;

	assert_int_equal(fstat(file, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

/* What a guest touches of the file's large holes does not come to be in the file, which is in memory itself:
 * at each border of data, and with a size that is not in whole blocks. */
static void holes_stay_holes(void **state)
{
	enum { BLOCK = SNAPSHOT_BLOCK_MIN, SIZE = 9 * BLOCK + 3 * PAGE };
	static const size_t data[] = {
		BLOCK + 5, 2 * BLOCK - 1, 2 * BLOCK, 4 * BLOCK, 4 * BLOCK + 7 * PAGE, 9 * BLOCK + PAGE};
	struct guest_memory memory = {.count = 1};
	uint64_t before;
	int file = make_file();

	(void)state;
	assert_int_equal(ftruncate(file, SIZE), 0);
	for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++)
		assert_int_equal(pwrite(file, "d", 1, (off_t)data[i]), 1);
	before = held(file);
	memory.regions[0] = (struct guest_region){.size = SIZE, .host = map_region(SIZE)};
	assert_int_equal(snapshot_memory_map(&memory, file), 0);
	for (size_t at = 0; at < SIZE; at++) {
		bool wanted = false;

		for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++)
			wanted = wanted || data[i] == at;
		if (memory.regions[0].host[at] != (wanted ? 'd' : 0))
			fail_msg("byte %zu is %d", at, memory.regions[0].host[at]);
	}
	/* Three blocks with data, and the last, which is none. */
	assert_true(held(file) <= before + 3 * BLOCK + 3 * PAGE);
	memset(memory.regions[0].host, 1, SIZE);
	assert_true(held(file) <= before + 3 * BLOCK + 3 * PAGE);
	guest_memory_finish(&memory);
	close(file);
}

static void every_byte_is_guarded(void **state)
{
	struct fixture *f = *state;
	static const off_t where[] = {
		0, 1, PAGE - 1, PAGE, 99 * PAGE, 100 * PAGE, FIRST - 1, FIRST, WHOLE - 1};

	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
		uint8_t was, is;

		assert_int_equal(pread(f->file, &was, 1, where[i]), 1);
		is = was ^ 0x80;
		assert_int_equal(pwrite(f->file, &is, 1, where[i]), 1);
		assert_int_equal(check(f), -EBADMSG);
		assert_string_equal(f->why,
			"is damaged, or not the one that was saved with this state: its checksum is another");
		assert_int_equal(pwrite(f->file, &was, 1, where[i]), 1);
		assert_int_equal(check(f), 0);
	}
}

/* Pages that changed places: the checksum knows of offsets. */
static void a_page_elsewhere_is_another_memory(void **state)
{
	struct fixture *f = *state;
	uint8_t page[PAGE], zeros[PAGE] = {0};

	assert_int_equal(pread(f->file, page, PAGE, 0), PAGE);
	assert_int_equal(pwrite(f->file, zeros, PAGE, 0), PAGE);
	assert_int_equal(pwrite(f->file, page, PAGE, PAGE), PAGE);
	assert_int_equal(check(f), -EBADMSG);
}

static void a_copy_without_holes_is_as_good(void **state)
{
	struct fixture *f = *state;
	int copy = make_file();
	uint8_t page[PAGE];

	for (off_t at = 0; at < WHOLE; at += PAGE) {
		assert_int_equal(pread(f->file, page, PAGE, at), PAGE);
		assert_int_equal(pwrite(copy, page, PAGE, at), PAGE);
	}
	close(f->file);
	f->file = copy;
	assert_int_equal(check(f), 0);
}

static void another_size_is_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(snapshot_memory_check(f->file, &f->what, WHOLE + PAGE, f->why), -EINVAL);
	assert_string_equal(
		f->why, "is to have 3145728 bytes by its state file, whose machine has 3149824 of memory");
	assert_int_equal(ftruncate(f->file, WHOLE - 1), 0);
	assert_int_equal(check(f), -EINVAL);
	assert_string_equal(f->why, "has 3145727 bytes, not 3145728");
	assert_int_equal(ftruncate(f->file, WHOLE + 1), 0);
	assert_int_equal(check(f), -EINVAL);
	assert_int_equal(ftruncate(f->file, 0), 0);
	assert_int_equal(check(f), -EINVAL);
}

static void what_is_no_file_is_refused(void **state)
{
	struct fixture *f = *state;
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(snapshot_memory_check(pipes[0], &f->what, WHOLE, f->why), -EINVAL);
	assert_string_equal(f->why, "is no regular file");
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(snapshot_memory_check(pipes[0], &f->what, WHOLE, f->why), -EBADF);
}

/* Whoever sealed it has checked it: that is the rule for clones, which must not read it all. */
static void a_sealed_file_is_not_read(void **state)
{
	struct fixture *f = *state;

	f->what.sum++;
	assert_int_equal(check(f), -EBADMSG);
	assert_int_equal(fcntl(f->file, F_ADD_SEALS, F_SEAL_GROW), 0);
	assert_int_equal(check(f), -EBADMSG);
	assert_int_equal(fcntl(f->file, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(check(f), -EBADMSG); /* it could still be cut off */
	assert_int_equal(fcntl(f->file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(check(f), 0);
	assert_int_equal(snapshot_memory_check(f->file, &f->what, FIRST, f->why), -EINVAL);
}

static void a_file_that_takes_no_more_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct snapshot_memory what;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	assert_true(full >= 0);
	assert_int_equal(snapshot_memory_save(&f->memory, full, &what, &f->written), -ENOSPC);
	close(full);
	full = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(snapshot_memory_save(&f->memory, full, &what, &f->written), -EBADF);
	close(full);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(zero_pages_are_holes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_empty_memory_is_one_hole, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_mapped_file_is_the_memory_it_was, set_up, tear_down),
		cmocka_unit_test(holes_stay_holes),
		cmocka_unit_test_setup_teardown(every_byte_is_guarded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_page_elsewhere_is_another_memory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_copy_without_holes_is_as_good, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_size_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_no_file_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_sealed_file_is_not_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_that_takes_no_more_is_an_error, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
