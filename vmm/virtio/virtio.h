/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a virtio device is to its transport, and what a transport is to a device.
 *
 * A device is a struct with struct virtio_device first. It sees its queues, guest memory through them, and
 * the functions below; never registers, the bus, KVM or the VM. All of its code but create runs on the
 * loop's thread with the transport's lock held: operations are called so, and a device's own fds and public
 * functions take the lock by virtio_device_enter. One operation, write_config, comes on a vCPU's thread.
 */
#ifndef VMM_VIRTIO_VIRTIO_H
#define VMM_VIRTIO_VIRTIO_H

#include "vmm/state.h"
#include "vmm/virtio/virtq.h"
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <stdbool.h>
#include <stdint.h>

enum { VIRTIO_QUEUES_MAX = 3, VIRTIO_REASON_MAX = 96 };

#define VIRTIO_FEATURE(bit) (UINT64_C(1) << (bit))
/* Offered by every device. */
#define VIRTIO_FEATURES_COMMON (VIRTIO_FEATURE(VIRTIO_F_VERSION_1) | VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX))

struct virtio_device;
struct virtio_transport;

struct virtio_device_ops {
	/*
	 * The driver notified the queue, or may have, or the device runs since just now. The queue is live.
	 * Serves at most a bounded number of chains; true: it stopped at that bound, call again soon. Chains
	 * of a queue are given back in the order in which they were taken: snapshots rest on it.
	 */
	bool (*notify)(struct virtio_device *device, unsigned queue);
	/*
	 * The driver reset the device: drop all that belongs to it. The queues are empty, also where the next
	 * driver has filled its own already: nothing of it was served before this. May be NULL.
	 */
	void (*reset)(struct virtio_device *device);
	/*
	 * The driver wrote bytes of the device's configuration, which lie wholly inside it. On a vCPU's
	 * thread: it may only store them. NULL: the configuration is read-only, and writes are lost.
	 */
	void (*write_config)(
		struct virtio_device *device, uint32_t offset, const void *data, uint32_t length);
	/*
	 * Snapshots: what the driver would miss if a new device went on in this one's place; queues and
	 * registers are the transport's. save puts it, between requests; load gets it into a device of the
	 * same kind that no driver has seen, with the features and queues of the driver in place, and refuses
	 * through the reader what it cannot bear. Both NULL: there is nothing.
	 */
	void (*save)(const struct virtio_device *device, struct state_writer *state);
	void (*load)(struct virtio_device *device, struct state_reader *state);
	/* Frees it. The loop is not inside it. */
	void (*destroy)(struct virtio_device *device);
};

struct virtio_device {
	/* set by the device's create, constant after it */
	const struct virtio_device_ops *ops;
	const char *name;   /* constant string, for logs and counters */
	uint32_t id;	    /* VIRTIO_ID_* */
	uint64_t features;  /* offered */
	const void *config; /* the device's configuration; changes with the transport's lock held only */
	uint32_t config_length;
	unsigned queue_count;
	struct virtq queues[VIRTIO_QUEUES_MAX]; /* size_max set by create */

	/* the transport's */
	struct virtio_transport *transport; /* NULL until one takes the device over */
	uint64_t driver_features;	    /* accepted by the driver; valid while running */
	bool running;			    /* DRIVER_OK, not failed: queues may be served */
};

/* What a transport does for its device: called by the functions below only. */
struct virtio_transport_ops {
	void (*enter)(struct virtio_transport *transport);
	void (*leave)(struct virtio_transport *transport);
	void (*interrupt)(struct virtio_transport *transport);
	void (*config_changed)(struct virtio_transport *transport);
	void (*needs_reset)(struct virtio_transport *transport, const char *reason);
	void (*fault)(struct virtio_transport *transport, const char *reason);
	void (*recall)(struct virtio_transport *transport, unsigned queue);
};

struct virtio_transport {
	const struct virtio_transport_ops *ops;
};

/*
 * Around everything a device does outside its operations. Loop's thread; not recursive. Does nothing while
 * no transport has taken the device.
 */
void virtio_device_enter(struct virtio_device *device);
void virtio_device_leave(struct virtio_device *device);

static inline bool virtio_device_has(const struct virtio_device *device, unsigned feature)
{
	return device->driver_features & VIRTIO_FEATURE(feature);
}

/*
 * virtq_pop that acts on what it refuses: a malformed chain sets DEVICE_NEEDS_RESET, an index too far ahead
 * ends the VM. 1: *chain is set; 0: none; -errno: the device no longer runs.
 */
int virtio_device_pop(struct virtio_device *device, unsigned queue, struct virtq_chain *chain);
/* virtq_publish, and the interrupt when it is wanted. */
void virtio_device_publish(struct virtio_device *device, unsigned queue);
/*
 * The device has changed its configuration, within the same enter and leave (or operation): the generation
 * moves on, and a driver that runs gets a configuration interrupt (4.2.2, ConfigGeneration).
 */
void virtio_device_config_changed(struct virtio_device *device);
/* The driver sent what cannot be answered: DEVICE_NEEDS_RESET; the queues are dead until a reset. */
void virtio_device_refuse(struct virtio_device *device, unsigned queue, const char *reason);
/* Has notify called for the queue in a later round of the loop. */
void virtio_device_recall(struct virtio_device *device, unsigned queue);

/* Takes NULL. For a device that no transport has taken over. */
void virtio_device_destroy(struct virtio_device *device);

#endif
