/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtio-mmio transport, version 2 (virtio 1.2, section 4.2): registers of one device, its queue
 * notifications and its interrupt status. Knows the device by its ops only; the machine knows the
 * transport by this header only.
 *
 * Threads: register accesses come from a vCPU's thread, queue notifications and the device's own fds
 * from the loop's thread. One lock per transport is held around each of them, but for InterruptStatus and
 * InterruptACK, which are atomic. A reset by the driver empties the queues at once; the device hears of it on
 * the loop's thread, before anything else.
 *
 * A driver that breaks the register protocol (an order of status, a queue enabled twice, a ring outside
 * memory) gets DEVICE_NEEDS_RESET; a wrong width or offset reads as zero and writes nothing. A ring whose
 * index is further ahead than its size stops the VM by the machine's fault function.
 */
#ifndef VMM_VIRTIO_MMIO_H
#define VMM_VIRTIO_MMIO_H

#include "common/loop.h"
#include "vmm/memory.h"
#include <stdbool.h>
#include <stdint.h>

struct state_reader;
struct state_writer;
struct virtio_device;
struct virtio_mmio;

enum {
	VIRTIO_MMIO_WINDOW = 0x1000,	  /* bytes of address space a transport takes */
	VIRTIO_MMIO_QUEUE_NOTIFY = 0x050, /* an ioeventfd goes here, one for each queue, by value (4 bytes) */
};

/* What the machine does for a transport. Both may be called on any thread, with the transport's lock held. */
struct virtio_machine {
	void *context;
	void (*interrupt)(void *context); /* one edge on the device's line; latched while masked */
	/* End the VM as VMM_END_GUEST_FAULT; returns; only the first counts. reason is valid in the call. */
	void (*fault)(void *context, const char *reason);
};

/* Counters for --stats; read without the lock, so they may lag. */
struct virtio_mmio_stats {
	uint64_t reads, writes; /* register accesses that reached us */
	uint64_t notifies;	/* queue notifications handled */
	uint64_t interrupts;	/* edges raised */
};

/*
 * Takes the device over (destroys it with itself, and on failure too). memory and loop must outlive it. Adds
 * its notification eventfds to the loop. 0, -ENOMEM, -EMFILE.
 */
int virtio_mmio_create(struct virtio_device *device, const struct guest_memory *memory, struct loop *loop,
	const struct virtio_machine *machine, struct virtio_mmio **out);
/* Takes NULL. Neither vCPU nor loop may be inside it. */
void virtio_mmio_destroy(struct virtio_mmio *mmio);

/* An access of 1, 2, 4 or 8 bytes at offset < VIRTIO_MMIO_WINDOW. Never fails: see above. */
void virtio_mmio_read(struct virtio_mmio *mmio, uint64_t offset, void *data, uint32_t length);
void virtio_mmio_write(struct virtio_mmio *mmio, uint64_t offset, const void *data, uint32_t length);

/* Queues the device has, and the eventfd (the transport's) to bind to QueueNotify with datamatch = queue. */
unsigned virtio_mmio_queue_count(const struct virtio_mmio *mmio);
int virtio_mmio_notify_fd(const struct virtio_mmio *mmio, unsigned queue);

/*
 * Between the two, notifications are not served. The VM's pause stops its vCPUs, but a guest can make
 * requests that bring about the next ones (a disk read over the ring it stands in), and these shall stop,
 * too. What the host sends still goes into buffers that wait. Loop's thread.
 */
void virtio_mmio_pause(struct virtio_mmio *mmio);
/* Each queue is looked at, whether it was notified meanwhile or not. */
void virtio_mmio_resume(struct virtio_mmio *mmio);

const char *virtio_mmio_name(const struct virtio_mmio *mmio);
struct virtio_mmio_stats virtio_mmio_stats(const struct virtio_mmio *mmio);

/*
 * Snapshots (mmio_state.c). All on the loop's thread, while no vCPU runs.
 *
 * Serves all that waits in the queues, so that no request is in flight. A driver at fault gets then what it
 * would have got later. Requests that bring about the next ones are not followed further than queues are long
 * (VIRTQ_SIZE_MAX rounds): what they brought about waits for the restored guest.
 */
void virtio_mmio_drain(struct virtio_mmio *mmio);
/* Puts registers and queues of the transport, then what the device has of its own. */
void virtio_mmio_save(struct virtio_mmio *mmio, struct state_writer *state);
/*
 * Gets them into a transport that no driver has seen, on the memory that belongs to them; nothing is served
 * or raised yet. Refuses through the reader what could not have been saved; the transport is of no use then.
 */
void virtio_mmio_load(struct virtio_mmio *mmio, struct state_reader *state);
/* The restored guest is about to run: each queue is looked at, and the interrupt raised once. */
void virtio_mmio_wake(struct virtio_mmio *mmio);

/* What must be the same when a snapshot is restored. */
struct virtio_identity {
	uint32_t id; /* VIRTIO_ID_* */
	uint64_t features;
	const void *config; /* the device's */
	uint32_t config_length;
	bool own_state; /* the configuration may differ: the device brings its own back */
};
struct virtio_identity virtio_mmio_identity(const struct virtio_mmio *mmio);

#endif
