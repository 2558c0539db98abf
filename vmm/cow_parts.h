/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of cow: the disk, and the upper file's form. */
#ifndef VMM_COW_PARTS_H
#define VMM_COW_PARTS_H

#include "vmm/cow.h"
#include "vmm/virtio/blk_disk.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COW_MAGIC "TNDX-COW"
#define COW_VERSION 1u

enum {
	COW_LOWER_HEAD = 64 * 1024,	 /* bytes of the lower that tell it from others */
	COW_PAGE_BLOCKS = COW_BLOCK * 8, /* blocks that a COW_BLOCK of the bitmap stands for */
	COW_HEADER_BYTES = 48,
};

/* At offset 0, little-endian; zeros up to COW_BLOCK. */
struct cow_header {
	char magic[8];
	uint32_t version;
	uint32_t bytes; /* of this header */
	uint64_t size;	/* of the disk */
	uint32_t block; /* COW_BLOCK */
	uint32_t reserved;
	uint64_t lower;	   /* cow_identify_lower */
	uint64_t checksum; /* of all before */
};
_Static_assert(sizeof(struct cow_header) == COW_HEADER_BYTES, "without padding");
_Static_assert(offsetof(struct cow_header, checksum) == COW_HEADER_BYTES - 8, "the last");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the header is written as it is in memory");

/* What follows from a disk's size. */
struct cow_shape {
	uint64_t size;	       /* of the disk */
	uint64_t blocks;       /* the last one may be a part */
	uint64_t bitmap_pages; /* of COW_BLOCK bytes, the first at COW_BLOCK */
	uint64_t data;	       /* offset of block 0 */
	uint64_t length;       /* of the file */
};

struct cow {
	struct blk_disk base;
	struct cow_shape shape;
	int lower, upper;
	uint64_t lower_identity;
	uint8_t *bitmap; /* all pages */
	bool *dirty;	 /* of each page: it has bits that the file lacks */
	bool changed;	 /* anything was written since the last flush */
	int failed;	 /* 0, or -errno: no flush succeeds any more */
};

static inline bool cow_has(const struct cow *cow, uint64_t block)
{
	return cow->bitmap[block / 8] >> (block % 8) & 1;
}

/* cow.c: where the run of blocks ends that are (or are not) in the upper as that of `from` is; at most limit.
 */
uint64_t cow_place_end(const struct cow *cow, uint64_t from, uint64_t limit);

/* cow_flat.c: blk_disk_ops' copy. */
int cow_copy_flat(const struct cow *cow, int to, uint64_t *written);

/* cow_file.c */

/* 0, or cow_create's -EINVAL, -EFBIG. */
int cow_find_shape(uint64_t size, struct cow_shape *shape);
/* XXH3 of the first COW_LOWER_HEAD bytes and the size: another file, or one that was changed there, differs.
 * 0 or -errno. */
int cow_identify_lower(int lower, uint64_t size, uint64_t *identity);
/* The same of the file that cow_copy_flat makes. */
int cow_identify_flat(const struct cow *cow, uint64_t *identity);
/*
 * Takes a new upper (making it one if make is true) or one that there is, with its bitmap, which must be
 * zeroed memory of all pages. 0 or cow_create's errors.
 */
int cow_read_upper(int upper, const struct cow_shape *shape, uint64_t lower, bool make, uint8_t *bitmap);
/* Writes the pages that are dirty, and has them so no longer. 0 or -errno: the rest stays dirty. */
int cow_write_bitmap(struct cow *cow);

#endif
