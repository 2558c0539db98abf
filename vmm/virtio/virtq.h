/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A split virtqueue, device side (virtio 1.2, section 2.7), with VIRTIO_F_EVENT_IDX. INDIRECT descriptors
 * are not offered: a chain lies in the ring's own table, so its length is bounded by the queue's size.
 *
 * Every check of what the driver wrote is here. The rings are translated once, when the queue is enabled
 * (guest memory never moves); a descriptor is copied once and only the copy is looked at.
 *
 * One thread at a time. Users outside the transport reach a queue by virtio.h's functions, which also act
 * on what is refused here.
 */
#ifndef VMM_VIRTIO_VIRTQ_H
#define VMM_VIRTIO_VIRTQ_H

#include "vmm/memory.h"
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rings are read without swapping bytes");

enum { VIRTQ_SIZE_MAX = 256 }; /* entries of any queue, and descriptors of any chain */

struct virtq {
	uint16_t size_max; /* what the device offers */

	/* what the driver asks for, unchecked until virtq_enable */
	uint16_t size;
	gpa_t desc_address, avail_address, used_address;

	bool ready; /* enabled: the pointers below are valid */
	bool live;  /* ready, and the device runs: set by the transport; a queue that is not is empty */
	bool event_idx;
	const struct guest_memory *memory;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t next_avail;	 /* the next entry of avail to pop */
	uint16_t next_used;	 /* the next entry of used to fill; ahead of used->idx until virtq_publish */
	uint16_t published_used; /* used->idx as the driver sees it */
};

/* Guest bytes as pieces; consumed from the front. The pieces are inside guest memory for as long as it lives.
 */
struct virtq_bytes {
	struct iovec *iov;
	unsigned count;
	uint64_t length; /* of all pieces */
};

/* A chain of descriptors: what the device may read, then what it may write. Either may be empty, not both. */
struct virtq_chain {
	uint16_t head;
	struct virtq_bytes readable, writable; /* into iov: a chain must not be copied */
	struct iovec iov[VIRTQ_SIZE_MAX];
};

/*
 * Checks the size and the three addresses and begins at index 0. 0; -EBUSY: enabled already; -EINVAL: a size
 * that is 0, no power of 2 or above size_max, or an address that is not aligned (16, 2 and 4 bytes);
 * -EFAULT: a ring that is not wholly inside memory. Nothing changes on failure.
 */
int virtq_enable(struct virtq *queue, const struct guest_memory *memory, bool event_idx);
/*
 * After virtq_enable, for a queue that had used that many chains in a snapshot: goes on with the next one.
 * Chains that were taken and not given back then are taken again, for chains are given back in their order.
 */
void virtq_continue(struct virtq *queue, uint16_t used);
/*
 * The device runs: an enabled queue is live. The driver need not notify until virtq_want_notify, so each live
 * queue is to be looked at once after this.
 */
void virtq_start(struct virtq *queue);
/* Forgets all the driver asked for. */
void virtq_disable(struct virtq *queue);

/*
 * Takes the next chain. 1: *chain is set; 0: none (or not live).
 * -EOVERFLOW: the driver's index is more than the queue's size ahead;
 * -EPROTO: a head or a next index outside the table, a loop or a chain longer than the queue, a descriptor
 * of length 0, a readable descriptor after a writable one, or an INDIRECT one;
 * -EFAULT: a buffer that is not wholly inside one region of memory.
 * On failure the queue stays where it is.
 */
int virtq_pop(struct virtq *queue, struct virtq_chain *chain);
/* Puts back the chain popped last, which must not have been pushed; called again, the one before it. */
void virtq_unpop(struct virtq *queue);
/* True when a pop would find nothing. */
bool virtq_empty(const struct virtq *queue);

/* Gives a chain back; written: bytes from the start of its writable part. Seen by the driver after publish.
 */
void virtq_push(struct virtq *queue, uint16_t head, uint32_t written);
/* Shows the driver all that was pushed. True: it wants an interrupt for that. */
bool virtq_publish(struct virtq *queue);

/* Asks the driver to notify when it adds to an empty queue. True: it has added already, so pop again. */
bool virtq_want_notify(struct virtq *queue);
/*
 * For a device that waits for the driver to give something back, not for something to pop: the driver's index
 * now, and later whether it has moved on beyond one that lay at most a queue's size ahead; if not, asks to be
 * notified when it does.
 */
uint16_t virtq_available(const struct virtq *queue);
bool virtq_want_beyond(struct virtq *queue, uint16_t available);
/* The driver need not notify. (With EVENT_IDX nothing is to be done: the index that was asked for is passed.)
 */
void virtq_no_notify(struct virtq *queue);

/* The same bytes with pieces of their own (at least as many as there are), so that they are consumed apart.
 */
struct virtq_bytes virtq_bytes_view(const struct virtq_bytes *bytes, struct iovec *pieces);
/* The same of the first length bytes, of which there are as many; costs as many pieces as they are in. */
struct virtq_bytes virtq_bytes_front(const struct virtq_bytes *bytes, uint64_t length, struct iovec *pieces);
/* Copies length bytes out of, or into, the front and consumes them. 0, or -EMSGSIZE: there are fewer. */
int virtq_bytes_take(struct virtq_bytes *bytes, void *data, size_t length);
int virtq_bytes_put(struct virtq_bytes *bytes, const void *data, size_t length);
/* Consumes; length must not be more than there is. */
void virtq_bytes_skip(struct virtq_bytes *bytes, uint64_t length);
/* Cuts the end off, so that at most length bytes are left. */
void virtq_bytes_truncate(struct virtq_bytes *bytes, uint64_t length);
/* Cuts off the last byte and returns where it is; NULL when there is none. */
uint8_t *virtq_bytes_cut_last(struct virtq_bytes *bytes);

#endif
