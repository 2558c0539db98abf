/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk (virtio 1.2, section 5.2): a raw file, read-only or read-write. Features: RO, FLUSH, SEG_MAX,
 * BLK_SIZE, and VIRTIO_F_VERSION_1, EVENT_IDX. Requests are served in order on the loop's thread.
 *
 * A request that lies outside the disk, has a wrong direction or no status byte where it can still be
 * answered ends with VIRTIO_BLK_S_IOERR; an unknown type with S_UNSUPP; a chain without room for a status
 * byte sets DEVICE_NEEDS_RESET. A host error (EIO, ENOSPC) is S_IOERR to the guest and is logged once per
 * kind.
 */
#ifndef VMM_VIRTIO_BLK_H
#define VMM_VIRTIO_BLK_H

#include <stdbool.h>
#include <stdint.h>

struct virtio_device;

enum { BLK_SECTOR = 512, BLK_ID_BYTES = 20, BLK_QUEUE_SIZE = 128, BLK_SEGMENTS_MAX = 126 };

struct blk_config {
	int fd; /* taken over, on failure too */
	bool read_only;
	const char *id; /* serial, cut at BLK_ID_BYTES; NULL: empty. Copied. */
};

/* 0; -EINVAL: empty, or not a multiple of BLK_SECTOR; -ENOTBLK: neither a regular file nor a block device;
 * -EACCES: the fd does not allow what read_only says; -ENOMEM. */
int blk_create(const struct blk_config *config, struct virtio_device **out);

#endif
