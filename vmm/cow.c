/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests are cut into runs: blocks in a row that are at the same place, or that a write covers whole, go in
 * one call. Only a part of a block that is not in the upper yet costs a copy.
 */
#include "vmm/cow.h"
#include "common/io.h"
#include "common/log.h"
#include "vmm/checksum.h"
#include "vmm/cow_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct cow *cow_of(struct blk_disk *disk)
{
	return (struct cow *)disk;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t block_end(const struct cow *cow, uint64_t block)
{
	return least((block + 1) * COW_BLOCK, cow->shape.size);
}

/* runs */

uint64_t cow_place_end(const struct cow *cow, uint64_t from, uint64_t limit)
{
	uint64_t block = from / COW_BLOCK;
	bool in_upper = cow_has(cow, block);

	do
		block++;
	while (block * COW_BLOCK < limit && cow_has(cow, block) == in_upper);
	return least(block * COW_BLOCK, limit);
}

/* Nothing of the block but what lies in [from, limit) matters any more, or all of it is in the upper. */
static bool goes_straight(const struct cow *cow, uint64_t block, uint64_t from, uint64_t limit)
{
	return cow_has(cow, block) || (block * COW_BLOCK >= from && block_end(cow, block) <= limit);
}

/* Where the run of blocks ends that can be written without a copy; from: the first one cannot. */
static uint64_t straight_end(const struct cow *cow, uint64_t from, uint64_t limit)
{
	uint64_t block = from / COW_BLOCK;

	if (!goes_straight(cow, block, from, limit))
		return from;
	do
		block++;
	while (block * COW_BLOCK < limit && goes_straight(cow, block, from, limit));
	return least(block * COW_BLOCK, limit);
}

/* The blocks of [from, to) are in the upper from now on. */
static void mark(struct cow *cow, uint64_t from, uint64_t to)
{
	for (uint64_t block = from / COW_BLOCK; block * COW_BLOCK < to; block++) {
		if (cow_has(cow, block))
			continue;
		cow->bitmap[block / 8] |= (uint8_t)(1u << (block % 8));
		cow->dirty[block / COW_PAGE_BLOCKS] = true;
	}
}

/* Moves the first length bytes, and consumes those that were moved. */
static int move(int fd, struct virtq_bytes *bytes, uint64_t length, uint64_t offset, bool to_file)
{
	struct iovec pieces[VIRTQ_SIZE_MAX];
	struct virtq_bytes part;
	int r;

	if (length == bytes->length)
		return blk_file_transfer(fd, bytes, offset, to_file);
	part = virtq_bytes_front(bytes, length, pieces);
	r = blk_file_transfer(fd, &part, offset, to_file);
	virtq_bytes_skip(bytes, length - part.length);
	return r;
}

/*
 * Brings a block into the upper, of which length bytes at offset are replaced: by the first ones of bytes, or
 * by zeros.
 */
static int copy_up(struct cow *cow, struct virtq_bytes *bytes, uint64_t offset, uint64_t length)
{
	uint64_t block = offset / COW_BLOCK, start = block * COW_BLOCK;
	size_t whole = (size_t)(block_end(cow, block) - start);
	uint8_t content[COW_BLOCK] = {0};
	ssize_t count = io_pread_full(cow->lower, content, whole, (off_t)start);
	int r;

	if (count < 0)
		return (int)count;
	if ((size_t)count != whole)
		return -EIO; /* the lower has been cut */
	if (bytes)
		(void)virtq_bytes_take(bytes, content + (offset - start), (size_t)length);
	else
		memset(content + (offset - start), 0, (size_t)length);
	r = io_pwrite_all(cow->upper, content, sizeof(content), cow->shape.data + start);
	if (r == 0)
		mark(cow, start, start + whole);
	return r;
}

/* operations */

static int read_cow(struct blk_disk *disk, struct virtq_bytes *bytes, uint64_t offset)
{
	struct cow *cow = cow_of(disk);
	int r = 0;

	while (r == 0 && bytes->length) {
		uint64_t end = cow_place_end(cow, offset, offset + bytes->length);
		bool in_upper = cow_has(cow, offset / COW_BLOCK);

		r = move(in_upper ? cow->upper : cow->lower, bytes, end - offset,
			offset + (in_upper ? cow->shape.data : 0), false);
		offset = end;
	}
	return r;
}

/* A change of [offset, limit), a run at a time: of bytes, or of zeros when bytes is NULL. */
static int change(struct cow *cow, struct virtq_bytes *bytes, uint64_t offset, uint64_t limit, bool unmap)
{
	int r = 0;

	cow->changed = true;
	while (r == 0 && offset < limit) {
		uint64_t end = straight_end(cow, offset, limit), at = cow->shape.data + offset;

		if (end == offset) {
			end = least(block_end(cow, offset / COW_BLOCK), limit);
			r = copy_up(cow, bytes, offset, end - offset);
		} else {
			r = bytes ? move(cow->upper, bytes, end - offset, at, true)
				  : blk_file_zero(cow->upper, at, end - offset, unmap);
			if (r == 0)
				mark(cow, offset, end);
		}
		offset = end;
	}
	return r;
}

static int write_cow(struct blk_disk *disk, struct virtq_bytes *bytes, uint64_t offset)
{
	return change(cow_of(disk), bytes, offset, offset + bytes->length, false);
}

static int zero_cow(struct blk_disk *disk, uint64_t offset, uint64_t length, bool unmap)
{
	return change(cow_of(disk), NULL, offset, offset + length, unmap);
}

/* Whole blocks of the upper become holes. What is the lower's stays so: nothing would be freed. */
static int discard_cow(struct blk_disk *disk, uint64_t offset, uint64_t length)
{
	struct cow *cow = cow_of(disk);
	uint64_t limit = offset + length;
	int r = 0;

	offset = (offset + COW_BLOCK - 1) / COW_BLOCK * COW_BLOCK;
	if (limit < cow->shape.size)
		limit = limit / COW_BLOCK * COW_BLOCK;
	while (r == 0 && offset < limit) {
		uint64_t end = cow_place_end(cow, offset, limit);

		if (cow_has(cow, offset / COW_BLOCK)) {
			cow->changed = true;
			r = blk_file_discard(cow->upper, cow->shape.data + offset, end - offset);
		}
		offset = end;
	}
	return r;
}

static int sync_upper(struct cow *cow)
{
	if (fdatasync(cow->upper) < 0)
		cow->failed = -errno;
	return cow->failed;
}

static bool is_dirty(const struct cow *cow)
{
	for (uint64_t page = 0; page < cow->shape.bitmap_pages; page++)
		if (cow->dirty[page])
			return true;
	return false;
}

/* The data before the bits that say that it is there, and these before the answer. */
static int flush_cow(struct blk_disk *disk)
{
	struct cow *cow = cow_of(disk);
	int r = cow->failed;

	if (r == 0 && cow->changed)
		r = sync_upper(cow);
	if (r == 0 && is_dirty(cow)) {
		r = cow_write_bitmap(cow);
		if (r == 0)
			r = sync_upper(cow);
	}
	if (r == 0)
		cow->changed = false;
	return r;
}

/* snapshots */

static uint64_t bitmap_identity(const struct cow *cow)
{
	return checksum(cow->bitmap, (size_t)(cow->shape.bitmap_pages * COW_BLOCK));
}

/* Of an upper that is new. 0 or -ENOMEM. */
static int empty_bitmap_identity(const struct cow *cow, uint64_t *identity)
{
	size_t bytes = (size_t)(cow->shape.bitmap_pages * COW_BLOCK);
	uint8_t *zeros = calloc(1, bytes);

	if (!zeros)
		return -ENOMEM;
	*identity = checksum(zeros, bytes);
	free(zeros);
	return 0;
}

/*
 * The upper of a restored VM must have the very blocks that this one has, over the same lower; or none, over
 * a copy of this disk.
 */
static void save_cow(struct blk_disk *disk, struct state_writer *state)
{
	struct cow *cow = cow_of(disk);
	uint64_t lower = cow->lower_identity, bitmap = 0;
	int r = flush_cow(disk);

	if (r == 0 && state->disks_copied)
		r = cow_identify_flat(cow, &lower);
	if (r == 0 && state->disks_copied)
		r = empty_bitmap_identity(cow, &bitmap);
	else
		bitmap = bitmap_identity(cow);
	if (r < 0)
		state_fail(state, r);
	state_put_u64(state, lower);
	state_put_u64(state, bitmap);
}

static int copy_cow(struct blk_disk *disk, int to, uint64_t *written)
{
	return cow_copy_flat(cow_of(disk), to, written);
}

/* Of a raw disk nothing is known: then its file is the lower now, and nothing is in the upper. */
static void load_cow(struct blk_disk *disk, struct state_reader *state)
{
	struct cow *cow = cow_of(disk);

	if (state_reader_is_empty(state) && cow_place_end(cow, 0, cow->shape.size) == cow->shape.size &&
		!cow_has(cow, 0))
		return;
	if (state_get_u64(state) != cow->lower_identity || state_get_u64(state) != bitmap_identity(cow))
		state_refuse(state);
}

static void free_cow(struct cow *cow)
{
	fd_close(&cow->lower);
	fd_close(&cow->upper);
	free(cow->bitmap);
	free(cow->dirty);
	free(cow);
}

/* A VM that ends in order keeps what it did not flush, as it would on a raw file. */
static void destroy_cow(struct blk_disk *disk)
{
	struct cow *cow = cow_of(disk);
	int r = flush_cow(disk);

	if (r < 0)
		log_error("blk: what was not flushed at the end is lost: %s", strerror(-r));
	free_cow(cow);
}

static const struct blk_disk_ops cow_ops = {
	.read = read_cow,
	.write = write_cow,
	.zero = zero_cow,
	.discard = discard_cow,
	.flush = flush_cow,
	.save = save_cow,
	.load = load_cow,
	.copy = copy_cow,
	.destroy = destroy_cow,
};

/* create */

static int check_access(int fd, bool writable)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	if ((flags & (O_PATH | O_APPEND)) || (flags & O_ACCMODE) == O_WRONLY)
		return -EACCES;
	return writable && (flags & O_ACCMODE) != O_RDWR ? -EACCES : 0;
}

static int find_lower(int lower, struct cow_shape *shape)
{
	uint64_t size = 0;
	int r = check_access(lower, false);

	if (r == 0)
		r = blk_file_size(lower, &size);
	return r < 0 ? r : cow_find_shape(size, shape);
}

static int make_books(struct cow *cow)
{
	size_t pages = (size_t)cow->shape.bitmap_pages;

	if (pages == 0)
		return -EINVAL;
	cow->bitmap = calloc(pages, COW_BLOCK);
	cow->dirty = calloc(pages, sizeof(*cow->dirty));
	return cow->bitmap && cow->dirty ? 0 : -ENOMEM;
}

/* Both fds are the disk's when it succeeds, and only then. */
static int open_cow(int lower, int upper, bool make, struct cow **out)
{
	struct cow *cow = calloc(1, sizeof(*cow));
	int r;

	if (!cow)
		return -ENOMEM;
	cow->lower = cow->upper = -1;
	r = find_lower(lower, &cow->shape);
	if (r == 0)
		r = check_access(upper, true);
	if (r == 0)
		r = cow_identify_lower(lower, cow->shape.size, &cow->lower_identity);
	if (r == 0)
		r = make_books(cow);
	if (r == 0)
		r = cow_read_upper(upper, &cow->shape, cow->lower_identity, make, cow->bitmap);
	if (r < 0)
		goto fail;
	cow->base = (struct blk_disk){.ops = &cow_ops, .size = cow->shape.size};
	cow->lower = lower;
	cow->upper = upper;
	*out = cow;
	return 0;
fail:
	free_cow(cow);
	return r;
}

int cow_check(int lower, int upper)
{
	struct cow *cow;
	int r = open_cow(lower, upper, false, &cow);

	if (r < 0)
		return r;
	cow->lower = cow->upper = -1;
	free_cow(cow);
	return 0;
}

int cow_create(int lower, int upper, struct blk_disk **out)
{
	struct cow *cow;
	int r = open_cow(lower, upper, true, &cow);

	if (r < 0) {
		fd_close(&lower);
		fd_close(&upper);
		return r;
	}
	*out = &cow->base;
	return 0;
}
