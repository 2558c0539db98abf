/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk (virtio 1.2, section 5.2): a disk, read-only or read-write. Features: SIZE_MAX, SEG_MAX,
 * BLK_SIZE, RO on a read-only disk, FLUSH, DISCARD and WRITE_ZEROES on a writable one, and
 * VIRTIO_F_VERSION_1, EVENT_IDX. Requests are served in order on the loop's thread. A driver that does not
 * take FLUSH gets each change synced.
 *
 * A request that lies outside the disk, is longer than BLK_REQUEST_MAX, has no data or no whole sectors, a
 * wrong direction or a short header ends with VIRTIO_BLK_S_IOERR, and so do a discard and a write-zeroes with
 * more or longer ranges than the configuration says, of which then none is acted on. An unknown type, a flag
 * of a range that is unknown (or a discard's unmap), and what belongs to a feature that the driver did not
 * take end with S_UNSUPP. A chain without room for a status byte sets DEVICE_NEEDS_RESET. A host error (EIO,
 * ENOSPC, EDQUOT, a file that was cut) is S_IOERR to the guest and is logged once per kind.
 */
#ifndef VMM_VIRTIO_BLK_H
#define VMM_VIRTIO_BLK_H

#include <stdbool.h>
#include <stdint.h>

struct blk_disk;
struct virtio_device;

enum {
	BLK_SECTOR = 512,
	BLK_ID_BYTES = 20,
	BLK_QUEUE_SIZE = 128,
	BLK_SEGMENTS_MAX = 126,	      /* with a header and a status: one chain fills the queue */
	BLK_SEGMENT_MAX = 256 * 1024, /* bytes */
	BLK_REQUEST_MAX = BLK_SEGMENTS_MAX * BLK_SEGMENT_MAX, /* bytes of one request's data */
	/* Where the host cannot make a hole, zeros are written: no more than other data in one request. */
	BLK_ZEROES_MAX = 16 * 1024 * 1024,   /* bytes of a write-zeroes, which has one range */
	BLK_DISCARD_MAX = 128 * 1024 * 1024, /* bytes of a discard's range */
	BLK_DISCARD_RANGES = 16,
	BLK_DISCARD_ALIGNMENT = 4096, /* smaller parts free nothing on the host */
	/* After as many bytes, or syncs and discards, each of which takes what the host's disk takes, the
	 * loop's other work has its turn. */
	BLK_ROUND_BYTES = 4 * 1024 * 1024,
	BLK_ROUND_SYNCS = 4,
};

struct blk_config {
	int fd; /* a raw file; taken over, on failure too. Not looked at beside disk */
	bool read_only;
	struct blk_disk *disk; /* NULL: fd is it. A writable one, taken over, on failure too (blk_disk.h) */
	const char *id;	       /* serial, cut at BLK_ID_BYTES; NULL: empty. Copied. */
};

/* 0; -ENOMEM; of fd: -EINVAL: empty, or not a multiple of BLK_SECTOR; -ENOTBLK: neither a regular file nor a
 * block device; -EACCES: the fd does not allow what read_only says. */
int blk_create(const struct blk_config *config, struct virtio_device **out);

/* Between requests: blk_disk_ops' copy. Its errors, or -EOPNOTSUPP: this disk has none. */
int blk_copy(struct virtio_device *device, int to, uint64_t *written);

#endif
