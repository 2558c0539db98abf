/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile driver of one virtio device, on fake guest memory and without KVM: the input is its program.
 *
 * Memory has two regions, as a guest beyond 4 GiB has, each with a page without access on either side, so
 * that a device that reaches outside dies. Inside, only what the driver gave it to write may change: see
 * driver_turn.
 */
#ifndef TESTS_FUZZ_SUPPORT_DRIVER_H
#define TESTS_FUZZ_SUPPORT_DRIVER_H

#include "tests/fuzz/support/fuzz.h"
#include "vmm/memory.h"
#include "vmm/virtio/mmio.h"
#include "vmm/virtio/virtio.h"

enum {
	DRIVER_LOW = 128 * 1024, /* bytes from 0 on */
	DRIVER_HIGH = 16 * 1024, /* bytes from DRIVER_HIGH_BASE on */
	DRIVER_MEMORY = DRIVER_LOW + DRIVER_HIGH,
	DRIVER_RING_STRIDE =
		0x2000,	       /* queue n has its rings from n times this on, unless the program moves it */
	DRIVER_AREA = 0x10000, /* buffers are from here to the end of the low region */
	DRIVER_CHAIN_MAX = 8,  /* descriptors of a chain that is made in one step */
};
#define DRIVER_HIGH_BASE (4ull << 30)

struct driver_ring {
	uint16_t size;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t next_desc; /* descriptors are taken in turn */
};

struct driver {
	struct fuzz_input *input;
	struct guest_memory memory;
	struct loop *loop;
	struct virtio_device *device; /* the transport's */
	struct virtio_mmio *mmio;
	struct driver_ring rings[VIRTIO_QUEUES_MAX];
	unsigned interrupts, faults; /* what the machine was asked for */
	bool unwatched;		     /* the device may change any byte of memory */
};

struct driver_buffer {
	gpa_t address;
	uint32_t length;
	bool writable;
};

/* Zeroed memory and a loop. */
void driver_init(struct driver *driver, struct fuzz_input *input);
/* The device goes to a transport of its own. */
void driver_attach(struct driver *driver, struct virtio_device *device);
/* False at the program's end, and after the machine was told to end the VM: nothing runs then. */
bool driver_goes_on(const struct driver *driver);
/* The program's end: the loop must come to rest; then everything is destroyed but the loop, which comes last.
 */
void driver_settle(struct driver *driver);
void driver_finish(struct driver *driver);

/* One step of the program that any driver could make. */
void driver_step(struct driver *driver);

/* Registers, all of 4 bytes. */
void driver_write(struct driver *driver, uint64_t offset, uint32_t value);
uint32_t driver_read(struct driver *driver, uint64_t offset);
/* From reset to DRIVER_OK, as a good driver does it, but for the features and sizes that the input chooses.
 */
void driver_bring_up(struct driver *driver);

/* Memory at a guest address, as much of length as there is behind it; NULL: none. */
void *driver_at(struct driver *driver, gpa_t address, size_t *length);
/* Mostly in the area for buffers; sometimes across an end of a region, or anywhere. */
gpa_t driver_some_address(struct driver *driver);
uint32_t driver_some_length(struct driver *driver);

/* Writes a chain into the next descriptors of a queue: its head. */
uint16_t driver_chain(
	struct driver *driver, unsigned queue, const struct driver_buffer *buffers, unsigned count);
/* Makes it available, `times` times. */
void driver_offer(struct driver *driver, unsigned queue, uint16_t head, unsigned times);
void driver_kick(struct driver *driver, unsigned queue);

/*
 * One round of the loop. After it nothing in memory may differ but used rings and what writable descriptors
 * say, as both were before it. (Not held where a device may write over descriptors, for then it follows what
 * it wrote.)
 */
void driver_turn(struct driver *driver);

#endif
