/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy-on-write disk for blk: a lower file that is only read, and may be many disks' at once, and an upper
 * file of this disk alone, sparse, in blocks of COW_BLOCK bytes. A block is in the upper from the first time
 * on that anything of it is written; till then it is the lower's. The upper takes the room of what was
 * written, at most the disk's size and the books.
 *
 * The upper file: a header of COW_BLOCK bytes (struct cow_header); the bitmap, a bit for each block that is
 * in the upper, in whole COW_BLOCKs; then the blocks, each at its own place. A block of which the bit is set
 * and that is a hole is zeros. docs/disks.md has the layout, and what a crash leaves.
 *
 * The bitmap is read once and kept; its new bits are written by flush alone, after the data that they stand
 * for is on stable storage. So after any end, be it SIGKILL or the loss of power, a block is what it was at
 * the last flush, or newer: one that was in the upper then, as on any disk; another one is the lower's.
 *
 * When the data could not be brought to stable storage, nobody knows what of it is there, so no flush
 * succeeds any more (the first one's error): the disk on storage stays what it was at the last flush that
 * did. A full host, or one at its quota, fails the write alone; with room again it goes on.
 */
#ifndef VMM_COW_H
#define VMM_COW_H

#include <stdint.h>

struct blk_disk;

enum { COW_BLOCK = 4096 };
#define COW_SIZE_MAX (UINT64_C(1) << 40) /* bytes of a disk: 32 MiB of bitmap */

/*
 * Whether upper can be the layer over lower, with nothing changed. 0: it can, or is new; else as cow_create's
 * refusals. The fds stay the caller's.
 */
int cow_check(int lower, int upper);
/*
 * Takes both fds over, on failure too: lower open for reading, upper for both. An upper that is new is made
 * one: an empty file, or one of the right length whose header and bitmap are zeros (its first flush never
 * came about). The disk is as large as the lower.
 *
 * 0, -ENOMEM, -errno of the host, or a refusal, that changes nothing:
 * -EINVAL: the lower is empty or not a multiple of BLK_SECTOR; -ENOTBLK: it is neither a regular file nor a
 * block device, or the upper is no regular file; -EACCES: an fd does not allow it; -EFBIG: more than
 * COW_SIZE_MAX, or than the host's files may have; -EMEDIUMTYPE: the upper is something else, or of another
 * version; -ESTALE: it is another lower's; -EBADMSG: it is damaged, or was cut; -EBUSY: another VM has it.
 */
int cow_create(int lower, int upper, struct blk_disk **out);

#endif
