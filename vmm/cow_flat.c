/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk as one file: of each block what the guest sees, from where it is. Only data is copied, so the file
 * has holes where the disk's files have them; within one file system that knows how, nothing is copied at
 * all, and the files share their blocks.
 */
#include "common/io.h"
#include "vmm/cow.h"
#include "vmm/cow_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 64 * 1024 }; /* bytes, where the kernel does not copy by itself */

/* A file's part, to where it goes. */
struct flat_copy {
	int from, to;
	bool by_hand; /* the kernel does not copy between these two */
	uint64_t written;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Bytes that were copied, 0 at the file's end, or -errno. */
static ssize_t copy_piece(struct flat_copy *copy, uint64_t from, uint64_t to, uint64_t length)
{
	uint8_t bytes[PIECE];
	ssize_t count;
	int r;

	if (!copy->by_hand) {
		off_t in = (off_t)from, out = (off_t)to;

		count = copy_file_range(copy->from, &in, copy->to, &out, (size_t)length, 0);
		if (count >= 0)
			return count;
		if (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS)
			return -errno;
		copy->by_hand = true;
	}
	count = io_pread_full(copy->from, bytes, (size_t)least(length, sizeof(bytes)), (off_t)from);
	if (count <= 0)
		return count;
	r = io_pwrite_all(copy->to, bytes, (size_t)count, to);
	return r < 0 ? r : count;
}

static int copy_data(struct flat_copy *copy, uint64_t from, uint64_t to, uint64_t length)
{
	while (length) {
		ssize_t count = copy_piece(copy, from, to, length);

		if (count == -EINTR)
			continue;
		if (count <= 0)
			return count < 0 ? (int)count : -EIO; /* the file has been cut */
		copy->written += (uint64_t)count;
		from += (uint64_t)count;
		to += (uint64_t)count;
		length -= (uint64_t)count;
	}
	return 0;
}

/*
 * The next data in [at, limit): where it begins and ends; limit twice: none. What does not tell of its holes,
 * as a block device, is data.
 */
static int find_data(int fd, uint64_t at, uint64_t limit, uint64_t *begin, uint64_t *end)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;

	*begin = *end = limit;
	if (data < 0 && errno == EINVAL)
		*begin = at;
	else if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	else if ((uint64_t)data < limit) {
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		*begin = (uint64_t)data;
		*end = least((uint64_t)hole, limit);
	}
	return 0;
}

/* The disk's [at, end), which lies in the one file, offset bytes further on than in the other. */
static int copy_run(struct flat_copy *copy, uint64_t offset, uint64_t at, uint64_t end)
{
	int r = 0;

	while (r == 0 && at < end) {
		uint64_t data, hole;

		r = find_data(copy->from, at + offset, end + offset, &data, &hole);
		if (r == 0)
			r = copy_data(copy, data, data - offset, hole - data);
		at = hole - offset;
	}
	return r;
}

/* What is missing behind a file's end would look like a hole. 0, -EIO: it has been cut, or -errno. */
static int check_length(int fd, uint64_t length)
{
	off_t end = lseek(fd, 0, SEEK_END);

	if (end < 0)
		return -errno;
	return (uint64_t)end < length ? -EIO : 0;
}

int cow_copy_flat(const struct cow *cow, int to, uint64_t *written)
{
	struct flat_copy lower = {.from = cow->lower, .to = to}, upper = {.from = cow->upper, .to = to};
	uint64_t size = cow->shape.size, end;
	int r = check_length(cow->lower, size);

	if (r == 0)
		r = check_length(cow->upper, cow->shape.length);
	if (r == 0 && ftruncate(to, (off_t)size) < 0)
		r = -errno;
	for (uint64_t at = 0; r == 0 && at < size; at = end) {
		bool in_upper = cow_has(cow, at / COW_BLOCK);

		end = cow_place_end(cow, at, size);
		r = copy_run(in_upper ? &upper : &lower, in_upper ? cow->shape.data : 0, at, end);
	}
	*written = lower.written + upper.written;
	return r;
}
