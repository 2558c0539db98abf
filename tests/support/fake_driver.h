/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's side of a virtio-mmio device, on guest memory that is just memory: no KVM, no guest. A test
 * builds rings as a good driver would, or writes any nonsense into them, and turns the device's loop.
 *
 * Guest memory has a page without access before and behind it, so that a device that reaches outside dies.
 */
#ifndef TESTS_SUPPORT_FAKE_DRIVER_H
#define TESTS_SUPPORT_FAKE_DRIVER_H

#include "common/loop.h"
#include "vmm/memory.h"
#include "vmm/state.h"
#include "vmm/virtio/mmio.h"
#include "vmm/virtio/virtio.h"

enum { FAKE_MEMORY = 32 * 1024 * 1024, FAKE_STATE_MAX = 4096 };

struct fake_queue {
	uint16_t size;
	gpa_t desc_address, avail_address, used_address;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t next_desc; /* descriptors are taken in turn */
	uint16_t seen_used;
};

struct fake_driver {
	struct guest_memory memory;
	struct loop *loop;
	struct virtio_device *device; /* the transport's */
	struct virtio_mmio *mmio;
	struct fake_queue queues[VIRTIO_QUEUES_MAX];
	gpa_t next_free;

	unsigned interrupts, faults; /* what the machine was asked for */
	char reason[VIRTIO_REASON_MAX];
};

struct fake_buffer {
	gpa_t address;
	uint32_t length;
	bool writable;
};

/* Memory and a loop; then the device goes to a transport of its own. */
void fake_driver_init(struct fake_driver *driver);
void fake_driver_attach(struct fake_driver *driver, struct virtio_device *device);
/* Destroys the transport if it is there. */
void fake_driver_finish(struct fake_driver *driver);

uint32_t fake_driver_read(struct fake_driver *driver, uint64_t offset);
void fake_driver_write(struct fake_driver *driver, uint64_t offset, uint32_t value);
uint32_t fake_driver_status(struct fake_driver *driver);
uint64_t fake_driver_features(struct fake_driver *driver);

/* Resets, negotiates these features and stops before the queues. */
void fake_driver_negotiate(struct fake_driver *driver, uint64_t features);
/* Rings for a queue, zeroed, of that size, and its registers but for QueueReady. */
void fake_driver_place_queue(struct fake_driver *driver, unsigned queue, uint16_t size);
/* All of it, up to DRIVER_OK; every queue at its largest. */
void fake_driver_start(struct fake_driver *driver, uint64_t features);

/* Fresh guest memory, zeroed; never given back. */
gpa_t fake_driver_alloc(struct fake_driver *driver, size_t length);
void *fake_driver_at(struct fake_driver *driver, gpa_t address, size_t length);

/* A well-formed chain in the next descriptors: its head. It is not offered yet. */
uint16_t fake_driver_chain(
	struct fake_driver *driver, unsigned queue, const struct fake_buffer *buffers, unsigned count);
/* Makes it available. */
void fake_driver_offer(struct fake_driver *driver, unsigned queue, uint16_t head);
/* Notifies the queue and lets the device do all that it can do. */
void fake_driver_kick(struct fake_driver *driver, unsigned queue);
void fake_driver_run(struct fake_driver *driver);
/* Then nothing may make the loop turn without a cause. */
void fake_driver_assert_idle(struct fake_driver *driver);
/* True: a chain came back; its head and the bytes written. */
bool fake_driver_used(struct fake_driver *driver, unsigned queue, uint16_t *head, uint32_t *written);
/* True when the driver would notify for the entry it made available last (2.7.10, with the event index). */
bool fake_driver_must_kick(struct fake_driver *driver, unsigned queue);
/* With the event index: asks for an interrupt when used entry number `index` (from 0) is filled. */
void fake_driver_set_used_event(struct fake_driver *driver, unsigned queue, uint16_t index);

/*
 * A snapshot: next, a device of the same kind, goes on in the place of the present one, as the state of that
 * says, or the bytes given. The driver does not see it. What the reader says at the end.
 */
int fake_driver_move(struct fake_driver *driver, struct virtio_device *next);
int fake_driver_load(
	struct fake_driver *driver, struct virtio_device *next, const uint8_t *bytes, size_t length);

#endif
