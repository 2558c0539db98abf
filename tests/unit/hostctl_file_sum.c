/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of a file: what it tells apart, and what it does not. */
#include "tests/support/unit.h"

#include "host-ctl/support/file_sum.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 300 /* more than are read at once */ };

static int new_file(off_t length)
{
	char path[] = "/tmp/tinderbox-sum.XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ftruncate(fd, length), 0);
	return fd;
}

static void put(int fd, off_t at, char byte, size_t length)
{
	char bytes[BLOCK];

	memset(bytes, byte, sizeof bytes);
	assert_int_equal(pwrite(fd, bytes, length, at), length);
}

static uint64_t sum_of(int fd)
{
	uint64_t sum = 0;

	assert_int_equal(file_sum(fd, NULL, &sum), 0);
	return sum;
}

/* Holes are zeros, however they are kept. */
static void test_a_copy_without_holes(void **state)
{
	int sparse = new_file((off_t)BLOCKS * BLOCK), full = new_file((off_t)BLOCKS * BLOCK);

	(void)state;
	for (off_t block = 0; block < BLOCKS; block++)
		put(full, block * BLOCK, 0, BLOCK);
	assert_int_equal(sum_of(sparse), sum_of(full));
	for (off_t block = 0; block < BLOCKS; block += 7) {
		put(sparse, block * BLOCK, (char)('a' + block % 20), BLOCK);
		put(full, block * BLOCK, (char)('a' + block % 20), BLOCK);
	}
	assert_int_equal(sum_of(sparse), sum_of(full));
	close(sparse);
	close(full);
}

static void test_what_differs(void **state)
{
	int fd = new_file((off_t)BLOCKS * BLOCK);
	uint64_t none = sum_of(fd), there, elsewhere;

	(void)state;
	put(fd, 5 * BLOCK, 'x', BLOCK);
	there = sum_of(fd);
	assert_int_not_equal(there, none);
	/* The same block at another place, */
	put(fd, 5 * BLOCK, 0, BLOCK);
	put(fd, 6 * BLOCK, 'x', BLOCK);
	elsewhere = sum_of(fd);
	assert_int_not_equal(elsewhere, there);
	/* one byte of it, */
	put(fd, 6 * BLOCK + 77, 'y', 1);
	assert_int_not_equal(sum_of(fd), elsewhere);
	put(fd, 6 * BLOCK + 77, 'x', 1);
	assert_int_equal(sum_of(fd), elsewhere);
	/* the last byte of all, */
	put(fd, (off_t)BLOCKS * BLOCK - 1, 'z', 1);
	assert_int_not_equal(sum_of(fd), elsewhere);
	put(fd, (off_t)BLOCKS * BLOCK - 1, 0, 1);
	assert_int_equal(sum_of(fd), elsewhere);
	/* and one of a block that is not whole. */
	assert_int_equal(ftruncate(fd, (off_t)BLOCKS * BLOCK + 100), 0);
	assert_int_equal(sum_of(fd), elsewhere);
	put(fd, (off_t)BLOCKS * BLOCK + 99, 'z', 1);
	assert_int_not_equal(sum_of(fd), elsewhere);
	close(fd);
}

static void test_it_is_stopped(void **state)
{
	int fd = new_file((off_t)BLOCKS * BLOCK);
	atomic_bool stop = false;
	uint64_t sum = 1;

	(void)state;
	put(fd, 0, 'x', BLOCK);
	assert_int_equal(file_sum(fd, &stop, &sum), 0);
	assert_int_equal(sum, sum_of(fd));
	stop = true;
	assert_int_equal(file_sum(fd, &stop, &sum), -ECANCELED);
	/* Of nothing there is nothing to stop. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(file_sum(fd, &stop, &sum), 0);
	close(fd);
}

static void test_what_cannot_be_read(void **state)
{
	char path[] = "/tmp/tinderbox-sum.XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC), only;
	uint64_t sum;

	(void)state;
	put(fd, 0, 'x', BLOCK);
	only = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(file_sum(only, NULL, &sum), -EBADF);
	close(only);
	close(fd);
	assert_int_equal(file_sum(-1, NULL, &sum), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_copy_without_holes),
		cmocka_unit_test(test_what_differs),
		cmocka_unit_test(test_it_is_stopped),
		cmocka_unit_test(test_what_cannot_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
