/* SPDX-License-Identifier: Apache-2.0 */
/* The upper file's form: made, checked, read and written. Nothing in it is believed. */
#include "common/io.h"
#include "vmm/checksum.h"
#include "vmm/cow_parts.h"
#include "vmm/virtio/blk.h"
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int cow_find_shape(uint64_t size, struct cow_shape *shape)
{
	if (size == 0 || size % BLK_SECTOR)
		return -EINVAL;
	if (size > COW_SIZE_MAX)
		return -EFBIG;
	shape->size = size;
	shape->blocks = (size + COW_BLOCK - 1) / COW_BLOCK;
	shape->bitmap_pages = (shape->blocks + COW_PAGE_BLOCKS - 1) / COW_PAGE_BLOCKS;
	shape->data = COW_BLOCK * (1 + shape->bitmap_pages);
	shape->length = shape->data + shape->blocks * COW_BLOCK;
	return 0;
}

/* All of it; a file that ends before is -EIO. */
static int read_all(int fd, void *data, size_t length, uint64_t offset)
{
	ssize_t count = io_pread_full(fd, data, length, (off_t)offset);

	if (count < 0)
		return (int)count;
	return (size_t)count == length ? 0 : -EIO;
}

/* flat: where blocks may lie that hide those of the lower; NULL: nowhere. */
static int identify(int lower, const struct cow *flat, uint64_t size, uint64_t *identity)
{
	uint64_t length = size < COW_LOWER_HEAD ? size : COW_LOWER_HEAD;
	struct checksum *sum = checksum_create();
	uint8_t block[COW_BLOCK];
	int r = sum ? 0 : -ENOMEM;

	for (uint64_t at = 0; r == 0 && at < length; at += sizeof(block)) {
		size_t piece = length - at < sizeof(block) ? (size_t)(length - at) : sizeof(block);

		if (flat && cow_has(flat, at / COW_BLOCK))
			r = read_all(flat->upper, block, piece, flat->shape.data + at);
		else
			r = read_all(lower, block, piece, at);
		if (r == 0)
			checksum_add(sum, block, piece);
	}
	if (r == 0) {
		checksum_add(sum, &size, sizeof(size));
		*identity = checksum_value(sum);
	}
	checksum_destroy(sum);
	return r;
}

int cow_identify_lower(int lower, uint64_t size, uint64_t *identity)
{
	return identify(lower, NULL, size, identity);
}

int cow_identify_flat(const struct cow *cow, uint64_t *identity)
{
	return identify(cow->lower, cow, cow->shape.size, identity);
}

static struct cow_header make_header(const struct cow_shape *shape, uint64_t lower)
{
	struct cow_header header = {.version = COW_VERSION,
		.bytes = sizeof(header),
		.size = shape->size,
		.block = COW_BLOCK,
		.lower = lower};

	memcpy(header.magic, COW_MAGIC, sizeof(header.magic));
	header.checksum = checksum(&header, offsetof(struct cow_header, checksum));
	return header;
}

static int check_header(const struct cow_header *header, const struct cow_shape *shape, uint64_t lower)
{
	if (memcmp(header->magic, COW_MAGIC, sizeof(header->magic)) != 0)
		return -EMEDIUMTYPE;
	if (header->checksum != checksum(header, offsetof(struct cow_header, checksum)))
		return -EBADMSG;
	if (header->version != COW_VERSION || header->bytes != sizeof(*header) ||
		header->block != COW_BLOCK || header->reserved != 0)
		return -EMEDIUMTYPE;
	return header->size == shape->size && header->lower == lower ? 0 : -ESTALE;
}

static bool all_zero(const uint8_t *data, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (data[i])
			return false;
	return true;
}

/* Whole bytes only: holes are skipped where the file system tells of them. */
static int read_bitmap(int upper, const struct cow_shape *shape, uint8_t *bitmap)
{
	uint64_t end = shape->data, at = COW_BLOCK;

	while (at < end) {
		off_t from = lseek(upper, (off_t)at, SEEK_DATA), to;
		int r;

		if (from < 0 && errno == ENXIO)
			return 0;
		to = from < 0 ? -1 : lseek(upper, from, SEEK_HOLE);
		if (to < 0)
			return -errno;
		if ((uint64_t)from >= end)
			return 0;
		at = (uint64_t)to < end ? (uint64_t)to : end;
		r = read_all(
			upper, bitmap + (from - COW_BLOCK), (size_t)(at - (uint64_t)from), (uint64_t)from);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Bits behind the last block. */
static bool has_excess(const struct cow_shape *shape, const uint8_t *bitmap)
{
	uint64_t byte = shape->blocks / 8, bytes = shape->bitmap_pages * COW_BLOCK;

	if (shape->blocks % 8 && bitmap[byte++] >> (shape->blocks % 8))
		return true;
	return byte < bytes && !all_zero(bitmap + byte, (size_t)(bytes - byte));
}

/* The length first: a file with a header is whole. */
static int make_upper(int upper, const struct cow_shape *shape, uint64_t lower)
{
	struct cow_header header = make_header(shape, lower);

	if (ftruncate(upper, (off_t)shape->length) < 0)
		return errno == EINVAL ? -EFBIG : -errno;
	return io_pwrite_all(upper, &header, sizeof(header), 0);
}

int cow_read_upper(int upper, const struct cow_shape *shape, uint64_t lower, bool make, uint8_t *bitmap)
{
	uint8_t block[COW_BLOCK] = {0};
	struct cow_header header;
	struct stat status;
	bool fresh;
	int r = 0;

	if (fstat(upper, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -ENOTBLK;
	if (flock(upper, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (status.st_size == 0)
		return make ? make_upper(upper, shape, lower) : 0;
	if (status.st_size < COW_BLOCK)
		return -EMEDIUMTYPE;
	r = read_all(upper, block, sizeof(block), 0);
	fresh = (uint64_t)status.st_size == shape->length && all_zero(block, sizeof(block));
	memcpy(&header, block, sizeof(header));
	if (r == 0 && !fresh)
		r = check_header(&header, shape, lower);
	if (r == 0 && (uint64_t)status.st_size != shape->length)
		r = -EBADMSG;
	if (r == 0)
		r = read_bitmap(upper, shape, bitmap);
	if (r == 0 && has_excess(shape, bitmap))
		r = -EBADMSG;
	if (r < 0 || !fresh)
		return r;
	if (!all_zero(bitmap, (size_t)(shape->bitmap_pages * COW_BLOCK)))
		return -EMEDIUMTYPE;
	return make ? make_upper(upper, shape, lower) : 0;
}

int cow_write_bitmap(struct cow *cow)
{
	for (uint64_t page = 0; page < cow->shape.bitmap_pages; page++) {
		int r;

		if (!cow->dirty[page])
			continue;
		r = io_pwrite_all(
			cow->upper, cow->bitmap + page * COW_BLOCK, COW_BLOCK, COW_BLOCK * (1 + page));
		if (r < 0)
			return r;
		cow->dirty[page] = false;
	}
	return 0;
}
