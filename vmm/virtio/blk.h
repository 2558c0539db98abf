/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk (virtio 1.2, section 5.2): a raw file, read-only or read-write. Features: SIZE_MAX, SEG_MAX,
 * BLK_SIZE, RO on a read-only disk and FLUSH on a writable one, and VIRTIO_F_VERSION_1, EVENT_IDX. Requests
 * are served in order on the loop's thread. A driver that does not take FLUSH gets each write synced.
 *
 * A request that lies outside the disk, is longer than BLK_REQUEST_MAX, has no data or no whole sectors, a
 * wrong direction or a short header ends with VIRTIO_BLK_S_IOERR; an unknown type (discard and write-zeroes
 * too) with S_UNSUPP; a chain without room for a status byte sets DEVICE_NEEDS_RESET. A host error (EIO,
 * ENOSPC, a file that was cut) is S_IOERR to the guest and is logged once per kind.
 */
#ifndef VMM_VIRTIO_BLK_H
#define VMM_VIRTIO_BLK_H

#include <stdbool.h>
#include <stdint.h>

struct virtio_device;

enum {
	BLK_SECTOR = 512,
	BLK_ID_BYTES = 20,
	BLK_QUEUE_SIZE = 128,
	BLK_SEGMENTS_MAX = 126,	      /* with a header and a status: one chain fills the queue */
	BLK_SEGMENT_MAX = 256 * 1024, /* bytes */
	BLK_REQUEST_MAX = BLK_SEGMENTS_MAX * BLK_SEGMENT_MAX, /* bytes of one request's data */
	/* After as many bytes, or syncs, each of which takes what the host's disk takes, the loop's other
	 * work has its turn. */
	BLK_ROUND_BYTES = 4 * 1024 * 1024,
	BLK_ROUND_SYNCS = 4,
};

struct blk_config {
	int fd; /* taken over, on failure too */
	bool read_only;
	const char *id; /* serial, cut at BLK_ID_BYTES; NULL: empty. Copied. */
};

/* 0; -EINVAL: empty, or not a multiple of BLK_SECTOR; -ENOTBLK: neither a regular file nor a block device;
 * -EACCES: the fd does not allow what read_only says; -ENOMEM. */
int blk_create(const struct blk_config *config, struct virtio_device **out);

#endif
