/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the transport: mmio.c is its queues and interrupts, mmio_registers.c what a driver reads and
 * writes, mmio_state.c what of both is in a snapshot. */
#ifndef VMM_VIRTIO_MMIO_PARTS_H
#define VMM_VIRTIO_MMIO_PARTS_H

#include "vmm/virtio/mmio.h"
#include "vmm/virtio/virtio.h"
#include <pthread.h>
#include <stdatomic.h>

struct mmio_queue {
	struct virtio_mmio *mmio;
	int fd; /* eventfd */
	struct loop_source *source;
};

struct virtio_mmio {
	struct virtio_transport base;
	struct virtio_device *device;
	const struct guest_memory *memory;
	struct virtio_machine machine;
	struct mmio_queue queues[VIRTIO_QUEUES_MAX];
	pthread_mutex_t lock;

	uint32_t status;
	uint32_t queue_select;
	uint32_t device_features_select, driver_features_select;
	uint64_t driver_features;
	uint32_t config_generation;
	bool reset_pending; /* the device has not been told yet */
	bool complained;    /* one line of log for each transport is enough */
	bool paused;	    /* notifications are left for the resumption; loop's thread only */

	atomic_uint interrupt_status;
	atomic_uint_fast64_t reads, writes, notifies, interrupts;
};

/* One of the counters of --stats, which nothing is ordered by. */
static inline void mmio_count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* --- mmio.c --- */

/* The loop's thread will look at that queue, which the device has. Any thread. */
void mmio_kick(struct virtio_mmio *mmio, unsigned queue);
/* The device serves none of them from now on. With the lock held. */
void mmio_stop_queues(struct virtio_mmio *mmio);
/* DEVICE_NEEDS_RESET (2.1.2): nothing is served until the driver resets the device. The first reason of a
 * transport's is logged, and is valid in the call. With the lock held. */
void mmio_set_needs_reset(struct virtio_mmio *mmio, const char *reason);

/* --- mmio_registers.c --- */

/* 3.1.1 step 5: can we live with what the driver chose? */
bool mmio_features_acceptable(const struct virtio_mmio *mmio);

#endif
