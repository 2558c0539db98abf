/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the transport: mmio.c is the registers and queues, mmio_state.c what of them is in a snapshot. */
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

/* 3.1.1 step 5: can we live with what the driver chose? */
bool mmio_features_acceptable(const struct virtio_mmio *mmio);

#endif
