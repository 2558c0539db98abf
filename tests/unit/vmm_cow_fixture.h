/* SPDX-License-Identifier: Apache-2.0 */
/* A lower file of numbered sectors, an upper file, and the disk of both. */
#ifndef TESTS_UNIT_VMM_COW_FIXTURE_H
#define TESTS_UNIT_VMM_COW_FIXTURE_H

#include "tests/support/unit.h"

#include "tests/support/fake_sync.h"
#include "tests/support/reopen.h"
#include "vmm/cow_parts.h"
#include "vmm/virtio/blk.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COW_SECTORS = COW_BLOCK / BLK_SECTOR };

static inline int cow_make_file(const char *name, uint64_t size)
{
	int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(file >= 0);
	assert_int_equal(ftruncate(file, (off_t)size), 0);
	return file;
}

/* A sector is a number, again and again. */
static inline void cow_fill(uint64_t *words, uint64_t value)
{
	for (unsigned i = 0; i < BLK_SECTOR / sizeof(*words); i++)
		words[i] = value;
}

static inline void cow_put_sector(int file, uint64_t sector, uint64_t value)
{
	uint64_t words[BLK_SECTOR / sizeof(uint64_t)];

	cow_fill(words, value);
	assert_int_equal(pwrite(file, words, sizeof(words), (off_t)(sector * BLK_SECTOR)), sizeof(words));
}

static inline int cow_open(int lower, int upper, struct blk_disk **disk)
{
	return cow_create(reopen(lower, O_RDONLY), reopen(upper, O_RDWR), disk);
}

static inline struct virtq_bytes cow_bytes(struct iovec *piece, void *data, uint64_t length)
{
	*piece = (struct iovec){.iov_base = data, .iov_len = length};
	return (struct virtq_bytes){.iov = piece, .count = 1, .length = length};
}

/* Sectors that all get that value. */
static inline int cow_write(struct blk_disk *disk, uint64_t sector, unsigned count, uint64_t value)
{
	uint64_t *words = malloc((size_t)count * BLK_SECTOR);
	struct iovec piece;
	struct virtq_bytes bytes = cow_bytes(&piece, words, (uint64_t)count * BLK_SECTOR);
	int r;

	assert_non_null(words);
	for (unsigned i = 0; i < count; i++)
		cow_fill(words + i * (BLK_SECTOR / sizeof(*words)), value);
	r = disk->ops->write(disk, &bytes, sector * BLK_SECTOR);
	free(words);
	return r;
}

/* The value that all of the sector has. */
static inline uint64_t cow_value(struct blk_disk *disk, uint64_t sector)
{
	uint64_t words[BLK_SECTOR / sizeof(uint64_t)];
	struct iovec piece;
	struct virtq_bytes bytes = cow_bytes(&piece, words, sizeof(words));

	assert_int_equal(disk->ops->read(disk, &bytes, sector * BLK_SECTOR), 0);
	for (unsigned i = 1; i < BLK_SECTOR / sizeof(*words); i++)
		assert_int_equal(words[i], words[0]);
	return words[0];
}

#endif
