/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a disk's bytes are, for blk: what a request asks of them, and nothing of requests. blk has checked
 * that a range is whole sectors, not empty and inside the disk, and calls one operation at a time.
 *
 * Operations return 0 or -errno of the host; what a write, zero or discard that failed has left of its own
 * range is undefined, as on any disk, and all else is as it was.
 */
#ifndef VMM_VIRTIO_BLK_DISK_H
#define VMM_VIRTIO_BLK_DISK_H

#include "vmm/state.h"
#include "vmm/virtio/virtq.h"
#include <stdbool.h>
#include <stdint.h>

struct blk_disk;

/* Offsets and lengths in bytes. A read-only disk has read, flush and destroy. */
struct blk_disk_ops {
	/* Move all of bytes, from offset on; what is left of bytes tells how far a read came. */
	int (*read)(struct blk_disk *disk, struct virtq_bytes *bytes, uint64_t offset);
	int (*write)(struct blk_disk *disk, struct virtq_bytes *bytes, uint64_t offset);
	/* The range reads as zeros after it; unmap: it need not keep its room on the host. */
	int (*zero)(struct blk_disk *disk, uint64_t offset, uint64_t length, bool unmap);
	/* What the range has is not needed any more: each sector reads as before, or as zeros. */
	int (*discard)(struct blk_disk *disk, uint64_t offset, uint64_t length);
	/* All that was done is on stable storage after it. */
	int (*flush)(struct blk_disk *disk);
	/*
	 * Snapshots: what tells this disk's content from another's. save brings the files to what a copy of
	 * them must have. Both NULL: the content is the owner's business, and the state has nothing of it.
	 */
	void (*save)(struct blk_disk *disk, struct state_writer *state);
	void (*load)(struct blk_disk *disk, struct state_reader *state);
	/*
	 * All that the disk has into a file, which is empty, open for writing, and stays the caller's: of the
	 * disk's size, with holes. *written: bytes, holes left out. After an error the file has anything. A
	 * state with disks_copied is of a disk that lies upon that file. NULL: it cannot be copied.
	 */
	int (*copy)(struct blk_disk *disk, int to, uint64_t *written);
	void (*destroy)(struct blk_disk *disk);
};

struct blk_disk {
	const struct blk_disk_ops *ops;
	uint64_t size; /* bytes; whole sectors, not 0 */
};

/* blk_raw.c: the file is the disk. Takes fd over, on failure too. Errors as blk_create's. */
int blk_raw_create(int fd, bool read_only, struct blk_disk **out);

/* The same file operations for every kind of disk; 0 or -errno. */

/* Bytes. -ENOTBLK: it is neither a regular file nor a block device. */
int blk_file_size(int fd, uint64_t *size);
/* Moves all the bytes; -EIO: the file ends before. */
int blk_file_transfer(int fd, struct virtq_bytes *bytes, uint64_t offset, bool to_file);
/* By a hole, by unwritten extents or, where the file system has neither, by writing them. */
int blk_file_zero(int fd, uint64_t offset, uint64_t length, bool unmap);
/* Gives the room back to the host; where the file system can't, nothing happens and that is no error. */
int blk_file_discard(int fd, uint64_t offset, uint64_t length);

#endif
