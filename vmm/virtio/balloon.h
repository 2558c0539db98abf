/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-balloon, the traditional one (virtio 1.2, section 5.5): memory that the guest does not need goes
 * back to the host. By a target: the driver takes as many pages from the guest and names them (inflate); and
 * without being asked: the driver reports ranges that are free (reporting).
 *
 * Features, with VIRTIO_F_VERSION_1 and EVENT_IDX:
 * - DEFLATE_ON_OOM: a guest that runs out of memory takes pages back by itself before it kills a process.
 * - REPORTING, and PAGE_POISON: a driver whose free pages hold a pattern says so. While that is not zero,
 *   reported ranges are left as they are (5.5.6.7.2); Linux reports none without this feature then.
 * - not MUST_TELL_HOST: a page that the guest uses again comes by a fault, whether we were told or not.
 * - not STATS_VQ: nobody here asks for a guest's statistics.
 * - not FREE_PAGE_HINT: it is for migration.
 *
 * The reporting queue is number 2: drivers number the queues that exist without gaps. A driver that takes the
 * list of 5.5.2 by its numbers (4) finds no such queue there.
 *
 * What a misbehaving guest gets. A page outside of memory is ignored, a page named twice is given back once,
 * pages of the kernel or of the rings are the guest's own loss: it finds zeros there (and a ring index that
 * is then out of range ends the VM). What a list has beyond BALLOON_REQUEST_PFNS, and a report beyond the
 * size of memory, is ignored. A writable part in a list, or a readable one in a report, sets
 * DEVICE_NEEDS_RESET. "actual" is what the driver says: any number, cut at the size of memory when it is told
 * to others. One round of the loop ends when BALLOON_ROUND_BYTES are given back or BALLOON_ROUND_CALLS calls
 * of the kernel are made: a list that was begun before is served whole, a report goes on in the next round.
 */
#ifndef VMM_VIRTIO_BALLOON_H
#define VMM_VIRTIO_BALLOON_H

#include "vmm/memory.h"
#include <stdint.h>

struct virtio_device;

enum {
	BALLOON_PAGE = 4096,	 /* the unit of 5.5.6, whatever the guest's pages are */
	BALLOON_QUEUE_SIZE = 32, /* Linux reports 32 ranges at once, and refuses a shorter queue */
	BALLOON_REQUEST_PFNS = 1024,
	BALLOON_ROUND_CALLS = 512,
	BALLOON_ROUND_BYTES = 32 * 1024 * 1024,
};

struct balloon_config {
	const struct guest_memory *memory; /* outlives the device */
	uint64_t target;		   /* at first; bytes, as balloon_set_target */
};

/* Bytes. */
struct balloon_status {
	uint64_t target;
	uint64_t actual;   /* what the guest says that it has given up; at most its memory */
	uint64_t reported; /* given back by reports, since the start */
};

/* 0, -EINVAL: the target; -ENOMEM. */
int balloon_create(const struct balloon_config *config, struct virtio_device **out);

/*
 * The guest is asked to have given up that much, rounded down to whole pages; it moves there by itself, if it
 * can. 0, or -EINVAL: more than its memory. Loop's thread, as the next.
 */
int balloon_set_target(struct virtio_device *device, uint64_t bytes);
struct balloon_status balloon_status(struct virtio_device *device);

#endif
