/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/unit.h"

#include "guest-init/ring.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 7 + offset / 251);
}

static void put_pattern(struct ring *ring, size_t length)
{
	uint8_t *bytes = malloc(length);

	assert_non_null(bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = byte_at(ring->end + i);
	ring_put(ring, bytes, length);
	free(bytes);
}

static void expect_pattern(const struct ring *ring, uint64_t from, size_t limit, size_t length, size_t first)
{
	struct iovec iov[2];

	assert_int_equal(ring_span(ring, from, limit, iov), length);
	assert_int_equal(iov[0].iov_len, first);
	assert_int_equal(iov[1].iov_len, length - first);
	for (size_t i = 0; i < length; i++) {
		const uint8_t *bytes = i < first ? iov[0].iov_base : iov[1].iov_base;

		assert_int_equal(bytes[i < first ? i : i - first], byte_at(from + i));
	}
}

static int setup(void **state)
{
	struct ring *ring = calloc(1, sizeof(*ring));

	ring->bytes = malloc(RING_SIZE);
	*state = ring;
	return ring->bytes ? 0 : -1;
}

static int teardown(void **state)
{
	struct ring *ring = *state;

	free(ring->bytes);
	free(ring);
	return 0;
}

static void holds_the_newest_bytes(void **state)
{
	struct ring *ring = *state;

	assert_int_equal(ring_oldest(ring), 0);
	expect_pattern(ring, 0, RING_SIZE, 0, 0);
	put_pattern(ring, 100);
	assert_int_equal(ring_oldest(ring), 0);
	expect_pattern(ring, 0, RING_SIZE, 100, 100);
	expect_pattern(ring, 40, 20, 20, 20);
	expect_pattern(ring, 100, 20, 0, 0);
	put_pattern(ring, RING_SIZE - 100);
	assert_int_equal(ring_oldest(ring), 0);
	expect_pattern(ring, 0, RING_SIZE, RING_SIZE, RING_SIZE);
	put_pattern(ring, 1);
	assert_int_equal(ring_oldest(ring), 1);
	expect_pattern(ring, 1, RING_SIZE, RING_SIZE, RING_SIZE - 1);
	put_pattern(ring, RING_SIZE);
	assert_int_equal(ring_oldest(ring), RING_SIZE + 1);
	expect_pattern(ring, RING_SIZE + 1, RING_SIZE, RING_SIZE, RING_SIZE - 1);
	expect_pattern(ring, RING_SIZE * 2 - 1, 64, 2, 1);
}

static void offsets_beyond_4_gib_work(void **state)
{
	struct ring *ring = *state;

	ring_skip(ring, (1ULL << 40) - 10);
	put_pattern(ring, 20);
	assert_int_equal(ring->end, (1ULL << 40) + 10);
	expect_pattern(ring, (1ULL << 40) - 10, 20, 20, 10);
}

static void reads_and_writes_across_its_edge(void **state)
{
	struct ring *ring = *state;
	uint8_t bytes[64];
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	ring_skip(ring, RING_SIZE - 30);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = byte_at(ring->end + i);
	assert_int_equal(ring_read(ring, fds[0], 10), -EAGAIN);
	assert_int_equal(write(fds[1], bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(ring_read(ring, fds[0], 50), 50);
	expect_pattern(ring, RING_SIZE - 30, 50, 50, 30);
	assert_int_equal(ring_read(ring, fds[0], 50), 14);
	assert_int_equal(ring_write(ring, RING_SIZE - 20, fds[1]), 54);
	assert_int_equal(read(fds[0], bytes, sizeof(bytes)), 54);
	for (size_t i = 0; i < 54; i++)
		assert_int_equal(bytes[i], byte_at(RING_SIZE - 20 + i));
	close(fds[1]);
	assert_int_equal(ring_read(ring, fds[0], 50), 0);
	assert_int_equal(ring->end, RING_SIZE + 34);
	close(fds[0]);
	assert_int_equal(ring_read(ring, fds[0], 50), -EBADF);
	assert_int_equal(ring_write(ring, RING_SIZE - 20, fds[1]), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(holds_the_newest_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(offsets_beyond_4_gib_work, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_and_writes_across_its_edge, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
