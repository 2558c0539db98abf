/* SPDX-License-Identifier: Apache-2.0 */
/* A transport before a device that only counts. */
#ifndef TESTS_UNIT_VMM_MMIO_FIXTURE_H
#define TESTS_UNIT_VMM_MMIO_FIXTURE_H

#include "tests/support/unit.h"

#include "common/log.h"
#include "tests/support/fake_driver.h"
#include <errno.h>
#include <linux/virtio_mmio.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	QUEUES = 2,
	QUEUE_SIZE = 8,
	ACK = VIRTIO_CONFIG_S_ACKNOWLEDGE,
	DRIVER = VIRTIO_CONFIG_S_DRIVER,
	FEATURES_OK = VIRTIO_CONFIG_S_FEATURES_OK,
	DRIVER_OK = VIRTIO_CONFIG_S_DRIVER_OK,
	FAILED = VIRTIO_CONFIG_S_FAILED,
	NEEDS_RESET = VIRTIO_CONFIG_S_NEEDS_RESET,
};
#define FEATURES (VIRTIO_FEATURES_COMMON | VIRTIO_FEATURE(5))
#define MINIMUM VIRTIO_FEATURE(VIRTIO_F_VERSION_1)

/* Pops one chain a call and gives it back; keeps one when told to. */
struct counter {
	struct virtio_device base;
	unsigned *destroyed;
	unsigned notified[QUEUES], resets, popped;
	int last_pop;
	bool keep, live_at_reset;
};

struct fixture {
	struct fake_driver driver;
	struct counter *device;
	unsigned destroyed;
	atomic_bool done; /* the register thread */
};

static const uint8_t config[] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa};

static inline bool counter_notify(struct virtio_device *device, unsigned queue)
{
	struct counter *counter = (struct counter *)device;
	struct virtq_chain chain;

	counter->notified[queue]++;
	counter->last_pop = virtio_device_pop(device, queue, &chain);
	if (counter->last_pop <= 0)
		return false;
	counter->popped++;
	if (!counter->keep)
		virtq_push(&device->queues[queue], chain.head, 0);
	virtio_device_publish(device, queue);
	return virtq_want_notify(&device->queues[queue]);
}

static inline void counter_reset(struct virtio_device *device)
{
	struct counter *counter = (struct counter *)device;

	counter->resets++;
	counter->live_at_reset |= device->running;
	for (unsigned i = 0; i < QUEUES; i++)
		counter->live_at_reset |= device->queues[i].live;
}

static inline void counter_destroy(struct virtio_device *device)
{
	++*((struct counter *)device)->destroyed;
	free(device);
}

static const struct virtio_device_ops counter_ops = {
	.notify = counter_notify, .reset = counter_reset, .destroy = counter_destroy};

static inline struct counter *counter_create(unsigned *destroyed)
{
	struct counter *counter = calloc(1, sizeof(*counter));

	assert_non_null(counter);
	counter->destroyed = destroyed;
	counter->base = (struct virtio_device){
		.ops = &counter_ops,
		.name = "counter",
		.id = 42,
		.features = FEATURES,
		.config = config,
		.config_length = sizeof(config),
		.queue_count = QUEUES,
	};
	for (unsigned i = 0; i < QUEUES; i++)
		counter->base.queues[i].size_max = QUEUE_SIZE;
	return counter;
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_driver_init(&f->driver);
	f->device = counter_create(&f->destroyed);
	fake_driver_attach(&f->driver, &f->device->base);
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	fake_driver_finish(&f->driver);
	assert_int_equal(f->destroyed, 1);
	free(f);
	return 0;
}

static inline void set_status(struct fixture *f, uint32_t status)
{
	fake_driver_write(&f->driver, VIRTIO_MMIO_STATUS, status);
}

static inline uint32_t status(struct fixture *f)
{
	return fake_driver_status(&f->driver);
}

static inline void offer_one(struct fixture *f, unsigned queue)
{
	struct fake_buffer buffer = {.address = fake_driver_alloc(&f->driver, 16), .length = 16};

	fake_driver_offer(&f->driver, queue, fake_driver_chain(&f->driver, queue, &buffer, 1));
}

#endif
