/* SPDX-License-Identifier: Apache-2.0 */
/* The registers of a transport, driven well and badly, before a device that only counts. */
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
	bool keep;
};

struct fixture {
	struct fake_driver driver;
	struct counter *device;
	unsigned destroyed;
	atomic_bool done; /* the register thread */
};

static const uint8_t config[] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa};

static bool counter_notify(struct virtio_device *device, unsigned queue)
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

static void counter_reset(struct virtio_device *device)
{
	((struct counter *)device)->resets++;
}

static void counter_destroy(struct virtio_device *device)
{
	++*((struct counter *)device)->destroyed;
	free(device);
}

static const struct virtio_device_ops counter_ops = {
	.notify = counter_notify, .reset = counter_reset, .destroy = counter_destroy};

static struct counter *counter_create(unsigned *destroyed)
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

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_driver_init(&f->driver);
	f->device = counter_create(&f->destroyed);
	fake_driver_attach(&f->driver, &f->device->base);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_driver_finish(&f->driver);
	assert_int_equal(f->destroyed, 1);
	free(f);
	return 0;
}

static void set_status(struct fixture *f, uint32_t status)
{
	fake_driver_write(&f->driver, VIRTIO_MMIO_STATUS, status);
}

static uint32_t status(struct fixture *f)
{
	return fake_driver_status(&f->driver);
}

static void offer_one(struct fixture *f, unsigned queue)
{
	struct fake_buffer buffer = {.address = fake_driver_alloc(&f->driver, 16), .length = 16};

	fake_driver_offer(&f->driver, queue, fake_driver_chain(&f->driver, queue, &buffer, 1));
}

/* registers */

static void the_constant_registers_say_what_it_is(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_VERSION), 2);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_DEVICE_ID), 42);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG_GENERATION), 0);
	assert_true(fake_driver_features(&f->driver) == FEATURES);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 2);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES), 0);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_SHM_LEN_LOW), UINT32_MAX);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_SHM_LEN_HIGH), UINT32_MAX);
	assert_string_equal(virtio_mmio_name(f->driver.mmio), "counter");
	assert_int_equal(virtio_mmio_queue_count(f->driver.mmio), QUEUES);
	assert_int_equal(virtio_mmio_notify_fd(f->driver.mmio, QUEUES), -1);
	assert_true(virtio_mmio_notify_fd(f->driver.mmio, 1) >= 0);
}

static void a_wrong_width_reads_zero_and_writes_nothing(void **state)
{
	struct fixture *f = *state;
	static const uint32_t widths[] = {1, 2, 8};

	for (unsigned i = 0; i < 3; i++) {
		uint64_t value = UINT64_MAX,
			 mask = widths[i] == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * widths[i])) - 1;

		virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_MAGIC_VALUE, &value, widths[i]);
		assert_int_equal(value & mask, 0);
		value = ACK;
		virtio_mmio_write(f->driver.mmio, VIRTIO_MMIO_STATUS, &value, widths[i]);
		assert_int_equal(status(f), 0);
	}
	/* not the start of a register, no register, one that is only written */
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_MAGIC_VALUE + 2), 0);
	assert_int_equal(fake_driver_read(&f->driver, 0x0f0), 0);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY), 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_MAGIC_VALUE, 7);
	fake_driver_write(&f->driver, 0x0f0, 7);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_MAGIC_VALUE), 0x74726976);
	assert_int_equal(status(f), 0);
}

static void config_is_read_by_any_width_and_bounded(void **state)
{
	struct fixture *f = *state;
	uint8_t data[8];

	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG + 3, data, 1);
	assert_int_equal(data[0], 0x44);
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG + 1, data, 2);
	assert_memory_equal(data, config + 1, 2);
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG + 4, data, 4);
	assert_memory_equal(data, config + 4, 4);
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG, data, 8);
	assert_memory_equal(data, config, 8);
	memset(data, 0xff, sizeof(data));
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG + 8, data, 8); /* the end is inside */
	assert_memory_equal(data, "\x99\xaa\0\0\0\0\0\0", 8);
	memset(data, 0xff, sizeof(data));
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG + sizeof(config), data, 4);
	assert_memory_equal(data, "\0\0\0\0", 4);
	memset(data, 0xff, sizeof(data));
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_WINDOW - 8, data, 8);
	assert_memory_equal(data, "\0\0\0\0\0\0\0\0", 8);
	virtio_mmio_write(f->driver.mmio, VIRTIO_MMIO_CONFIG, "xxxxxxxx", 8);
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG, data, 8);
	assert_memory_equal(data, config, 8);
}

/* status */

static void the_status_goes_up_in_order(void **state)
{
	struct fixture *f = *state;

	set_status(f, ACK);
	assert_int_equal(status(f), ACK);
	set_status(f, ACK); /* again: nothing */
	set_status(f, ACK | DRIVER);
	assert_int_equal(status(f), ACK | DRIVER);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(MINIMUM >> 32));
	set_status(f, ACK | DRIVER | FEATURES_OK);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK);
	set_status(f, ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_true(f->device->base.running);
	set_status(f, 0);
	assert_int_equal(status(f), 0);
	assert_false(f->device->base.running);
}

static void a_status_out_of_order_needs_a_reset(void **state)
{
	static const uint32_t wrong[][2] = {
		{0, DRIVER},
		{0, ACK | DRIVER},
		{0, DRIVER_OK},
		{ACK, ACK | FEATURES_OK},
		{ACK, ACK | DRIVER_OK},
		{ACK, DRIVER},
		{ACK, ACK | NEEDS_RESET},
		{ACK, ACK | 0x10},
		{ACK, ACK | 0x100},
		{0, FAILED},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		set_status(f, 0);
		if (wrong[i][0])
			set_status(f, wrong[i][0]);
		set_status(f, wrong[i][1]);
		assert_int_equal(status(f), wrong[i][0] | NEEDS_RESET);
		set_status(f, wrong[i][0] | NEEDS_RESET | DRIVER); /* nothing but a reset helps */
		assert_int_equal(status(f), wrong[i][0] | NEEDS_RESET);
	}
	set_status(f, 0);
	assert_int_equal(status(f), 0);
	assert_int_equal(f->driver.interrupts, 0); /* the driver was never up */
}

static void bits_cleared_without_a_reset_need_one(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	set_status(f, ACK | DRIVER | FEATURES_OK);
	assert_int_equal(status(f), 0xf | NEEDS_RESET);
	assert_false(f->device->base.running);
	/* 2.1.2: told by a configuration change, for it was up */
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_CONFIG);
	assert_int_equal(f->driver.interrupts, 1);
	fake_driver_start(&f->driver, MINIMUM);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
}

static void features_we_do_not_offer_are_not_ok(void **state)
{
	struct fixture *f = *state;

	fake_driver_negotiate(&f->driver, MINIMUM | VIRTIO_FEATURE(6));
	assert_int_equal(status(f), ACK | DRIVER);
	fake_driver_negotiate(&f->driver, VIRTIO_FEATURE(5)); /* VERSION_1 is missing */
	assert_int_equal(status(f), ACK | DRIVER);
	fake_driver_negotiate(&f->driver, MINIMUM | VIRTIO_FEATURE(VIRTIO_F_RING_RESET));
	assert_int_equal(status(f), ACK | DRIVER);
	fake_driver_negotiate(&f->driver, FEATURES);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK);
}

static void features_change_only_before_features_ok(void **state)
{
	struct fixture *f = *state;

	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES, 0);
	assert_int_equal(status(f), NEEDS_RESET);
	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES, 1u << 5);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | NEEDS_RESET);
}

static void failed_stops_the_device(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	set_status(f, 0xf | FAILED);
	assert_int_equal(status(f), 0xf | FAILED);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->device->popped, 0);
}

/* queues */

static void an_unknown_queue_has_no_size(void **state)
{
	struct fixture *f = *state;

	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_SEL, 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_NUM_MAX), QUEUE_SIZE);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_SEL, QUEUES);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_NUM_MAX), 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_SEL, UINT32_MAX);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NUM, 8);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_READY), 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, QUEUES);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, UINT32_MAX);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK);
}

static void a_queue_is_enabled_and_disabled(void **state)
{
	struct fixture *f = *state;

	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_place_queue(&f->driver, 1, QUEUE_SIZE);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_READY), 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_READY), 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 0);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_READY), 0);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK);
}

/* From a queue that could be enabled: one step makes it need a reset. */
static void assert_queue_refused(struct fixture *f, uint64_t offset, uint32_t value)
{
	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_place_queue(&f->driver, 0, QUEUE_SIZE);
	fake_driver_write(&f->driver, offset, value);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | NEEDS_RESET);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_READY), 0);
}

static void a_bad_queue_needs_a_reset(void **state)
{
	struct fixture *f = *state;

	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_NUM, 0);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_NUM, 5);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_NUM, QUEUE_SIZE * 2);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_NUM, 0x10000 + QUEUE_SIZE); /* not cut to 16 bits */
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_USED_LOW, FAKE_MEMORY);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_USED_LOW, FAKE_MEMORY - 4);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_USED_HIGH, 1);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_AVAIL_LOW, FAKE_MEMORY - 2);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_DESC_HIGH, UINT32_MAX);
	assert_queue_refused(f, VIRTIO_MMIO_QUEUE_DESC_LOW, 0x10008);
}

static void a_queue_is_set_up_at_its_time_only(void **state)
{
	struct fixture *f = *state;

	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NUM, QUEUE_SIZE); /* before FEATURES_OK */
	assert_int_equal(status(f), NEEDS_RESET);
	set_status(f, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(status(f), NEEDS_RESET);
	set_status(f, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 0); /* as a driver that leaves does */
	assert_int_equal(status(f), 0);

	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_place_queue(&f->driver, 0, QUEUE_SIZE);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1); /* twice */
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | NEEDS_RESET);

	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_place_queue(&f->driver, 0, QUEUE_SIZE);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_DESC_LOW, 0x8000); /* while enabled */
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | NEEDS_RESET);

	fake_driver_start(&f->driver, MINIMUM); /* and not while the driver is up */
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_SEL, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	assert_int_equal(status(f), 0xf | NEEDS_RESET);
}

static void the_registers_of_a_queue_may_be_set_in_any_order(void **state)
{
	struct fixture *f = *state;
	struct fake_queue *queue = &f->driver.queues[0];
	struct virtq *ours = &f->device->base.queues[0];

	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_place_queue(&f->driver, 0, QUEUE_SIZE);
	/* again, from the last to the first: each sets itself only */
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_USED_HIGH, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_USED_LOW, (uint32_t)queue->used_address);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_AVAIL_LOW, (uint32_t)queue->avail_address);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_DESC_HIGH, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)queue->desc_address);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NUM, QUEUE_SIZE);
	assert_true(ours->desc_address == queue->desc_address);
	assert_true(ours->avail_address == queue->avail_address);
	assert_true(ours->used_address == queue->used_address);
	assert_int_equal(ours->size, QUEUE_SIZE);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_USED_HIGH, 7);
	assert_true(ours->used_address == (UINT64_C(7) << 32 | queue->used_address));
}

static void selecting_is_always_allowed(void **state)
{
	struct fixture *f = *state;

	for (unsigned up = 0; up < 2; up++) {
		fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_SEL, 1);
		fake_driver_write(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
		fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
		assert_int_equal(status(f), up ? 0xf : 0);
		fake_driver_start(&f->driver, MINIMUM);
	}
	fake_driver_write(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0); /* each has its own */
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES), (uint32_t)FEATURES);
}

static void a_reset_forgets_all_that_was_chosen(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, FEATURES);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_SEL, QUEUES);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	set_status(f, 0);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_NUM_MAX), QUEUE_SIZE);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_READY), 0);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES), (uint32_t)FEATURES);
	set_status(f, ACK);
	set_status(f, ACK | DRIVER);
	/* nothing chosen: VERSION_1 is not there. Chosen in the low half: neither */
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(MINIMUM >> 32));
	set_status(f, ACK | DRIVER | FEATURES_OK);
	assert_int_equal(status(f), ACK | DRIVER);
}

/* service */

static void a_notification_reaches_its_queue_either_way(void **state)
{
	struct fixture *f = *state;
	struct virtio_mmio_stats stats;

	fake_driver_start(&f->driver, MINIMUM);
	fake_driver_run(&f->driver);
	f->device->notified[0] = f->device->notified[1] = 0;
	fake_driver_kick(&f->driver, 1); /* by the register */
	assert_int_equal(f->device->notified[1], 1);
	assert_int_equal(eventfd_write(virtio_mmio_notify_fd(f->driver.mmio, 1), 1), 0); /* as KVM does */
	fake_driver_run(&f->driver);
	assert_int_equal(f->device->notified[1], 2);
	assert_int_equal(f->device->notified[0], 0);
	stats = virtio_mmio_stats(f->driver.mmio);
	assert_int_equal(stats.notifies, 4); /* and one each when the driver came up */
	assert_int_equal(stats.interrupts, 0);
	assert_true(stats.writes > 20 && stats.reads > 5);
}

static void nothing_is_served_before_the_driver_is_up(void **state)
{
	struct fixture *f = *state;
	uint16_t head;
	uint32_t written;

	fake_driver_negotiate(&f->driver, MINIMUM);
	fake_driver_place_queue(&f->driver, 0, QUEUE_SIZE);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->device->notified[0], 0);
	set_status(f, 0xf);
	fake_driver_run(&f->driver); /* without another notification */
	assert_int_equal(f->device->popped, 1);
	assert_true(fake_driver_used(&f->driver, 0, &head, &written));
	assert_int_equal(f->device->notified[1], 0); /* that one was not set up */
}

static void an_interrupt_stands_until_it_is_acknowledged(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->driver.interrupts, 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_VRING);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->driver.interrupts, 1); /* the handler has yet to look */
	fake_driver_write(&f->driver, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), 0);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->driver.interrupts, 2);
	assert_int_equal(virtio_mmio_stats(f->driver.mmio).interrupts, 2);
}

static void more_work_than_a_round_is_finished_without_the_driver(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	fake_driver_run(&f->driver);
	for (unsigned i = 0; i < QUEUE_SIZE; i++)
		offer_one(f, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_int_equal(f->device->popped, 1); /* others have their turn between */
	for (unsigned i = 1; i < QUEUE_SIZE; i++)
		assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_int_equal(f->device->popped, QUEUE_SIZE);
}

static void a_malformed_chain_needs_a_reset_and_a_reset_helps(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	fake_driver_offer(&f->driver, 0, QUEUE_SIZE); /* outside the table */
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->device->last_pop, -EPROTO);
	assert_int_equal(status(f), 0xf | NEEDS_RESET);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_CONFIG);
	assert_int_equal(f->driver.faults, 0);
	offer_one(f, 1); /* the other queue is dead too */
	fake_driver_kick(&f->driver, 1);
	assert_int_equal(f->device->popped, 0);
	fake_driver_start(&f->driver, MINIMUM);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->device->popped, 1);
}

static void a_refusal_is_logged_once_by_name(void **state)
{
	struct fixture *f = *state;
	char text[256] = "";
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	log_set_fd(fds[1]);
	for (unsigned i = 0; i < 3; i++) {
		fake_driver_start(&f->driver, MINIMUM);
		fake_driver_offer(&f->driver, 1, QUEUE_SIZE);
		fake_driver_kick(&f->driver, 1);
		assert_int_equal(status(f), 0xf | NEEDS_RESET);
	}
	log_set_fd(STDERR_FILENO);
	close(fds[1]);
	assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "counter: queue 1: malformed descriptor chain: the driver is refused "
				     "until it resets the device\n"));
	assert_null(strchr(strchr(text, '\n') + 1, '\n'));
	close(fds[0]);
}

static void an_index_far_ahead_ends_the_vm(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	f->driver.queues[1].avail->idx = QUEUE_SIZE + 1;
	fake_driver_kick(&f->driver, 1);
	assert_int_equal(f->device->last_pop, -EOVERFLOW);
	assert_int_equal(f->driver.faults, 1);
	assert_string_equal(f->driver.reason,
		"counter: queue 1: available index is further ahead than the queue is long");
	assert_false(f->device->base.running);
	fake_driver_kick(&f->driver, 1); /* only once */
	assert_int_equal(f->driver.faults, 1);
}

static void a_reset_takes_a_request_back(void **state)
{
	struct fixture *f = *state;
	uint16_t head;
	uint32_t written;

	f->device->keep = true;
	fake_driver_start(&f->driver, MINIMUM);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->device->popped, 1);
	set_status(f, 0);
	/* at once, before the device has heard of it: what it gives back now reaches nobody */
	virtq_push(&f->device->base.queues[0], 0, 16);
	virtio_device_publish(&f->device->base, 0);
	assert_false(fake_driver_used(&f->driver, 0, &head, &written));
	assert_int_equal(f->driver.interrupts, 0);
	f->device->resets = 0;
	fake_driver_run(&f->driver);
	assert_int_equal(f->device->resets, 1);
}

static void the_device_hears_of_a_reset_before_anything_else(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	fake_driver_run(&f->driver);
	f->device->resets = 0;
	fake_driver_start(&f->driver, MINIMUM); /* a reset and a new start before the loop turns */
	offer_one(f, 1);
	virtio_device_enter(&f->device->base);
	assert_int_equal(f->device->resets, 1);
	assert_int_equal(f->device->popped, 0);
	virtio_device_leave(&f->device->base);
	fake_driver_run(&f->driver);
	assert_int_equal(f->device->resets, 1);
	assert_int_equal(f->device->popped, 1);
}

/* threads */

/* While its own code runs, nothing of the device changes: the register thread waits. */
static bool steady_notify(struct virtio_device *device, unsigned queue)
{
	struct counter *counter = (struct counter *)device;
	struct virtq_chain chain;

	counter->notified[queue]++;
	for (unsigned i = 0; i < 20; i++) {
		assert_true(device->running && device->queues[queue].live);
		sched_yield();
	}
	while (virtio_device_pop(device, queue, &chain) > 0) {
		counter->popped++;
		virtq_push(&device->queues[queue], chain.head, 0);
	}
	virtio_device_publish(device, queue);
	return virtq_want_notify(&device->queues[queue]);
}

static void steady_reset(struct virtio_device *device)
{
	struct counter *counter = (struct counter *)device;

	counter->resets++;
}

static const struct virtio_device_ops steady_ops = {
	.notify = steady_notify, .reset = steady_reset, .destroy = counter_destroy};

enum { RESTARTS = 3000 };

static void *register_thread(void *context)
{
	struct fixture *f = context;
	gpa_t start = f->driver.next_free;

	for (unsigned i = 0; i < RESTARTS; i++) {
		f->driver.next_free = start;
		fake_driver_start(&f->driver, MINIMUM);
		offer_one(f, 0);
		fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
		if (i % 3 == 0)
			sched_yield();
		fake_driver_write(&f->driver, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
	}
	set_status(f, 0);
	atomic_store(&f->done, true);
	return NULL;
}

static void registers_and_loop_run_at_once(void **state)
{
	struct fixture *f = *state;
	pthread_t thread;

	f->device->base.ops = &steady_ops;
	assert_int_equal(pthread_create(&thread, NULL, register_thread, f), 0);
	while (!atomic_load(&f->done))
		assert_int_equal(loop_turn(f->driver.loop, 1), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	fake_driver_run(&f->driver);
	assert_true(f->device->popped > 0 && f->device->popped <= RESTARTS);
	assert_true(f->device->resets > 0 && f->device->resets <= RESTARTS + 1);
	assert_false(f->device->base.running);
}

static void creation_that_fails_destroys_the_device(void **state)
{
	struct fixture *f = *state;
	struct virtio_machine machine = {0};
	unsigned destroyed = 0;
	struct virtio_mmio *mmio = NULL;
	struct rlimit before, few;
	int next = dup(0);

	/* the first queue gets an eventfd, the second does not */
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(virtio_mmio_create(&counter_create(&destroyed)->base, &f->driver.memory,
				 f->driver.loop, &machine, &mmio),
		-EMFILE);
	assert_int_equal(destroyed, 1);
	assert_null(mmio);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(dup(0), next); /* and nothing was left open */
	close(next);
	assert_int_equal(virtio_mmio_create(&counter_create(&destroyed)->base, &f->driver.memory,
				 f->driver.loop, &machine, &mmio),
		0);
	virtio_mmio_destroy(mmio);
	assert_int_equal(destroyed, 2);
	virtio_mmio_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_constant_registers_say_what_it_is, setup, teardown),
		cmocka_unit_test_setup_teardown(a_wrong_width_reads_zero_and_writes_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(config_is_read_by_any_width_and_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(the_status_goes_up_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(a_status_out_of_order_needs_a_reset, setup, teardown),
		cmocka_unit_test_setup_teardown(bits_cleared_without_a_reset_need_one, setup, teardown),
		cmocka_unit_test_setup_teardown(features_we_do_not_offer_are_not_ok, setup, teardown),
		cmocka_unit_test_setup_teardown(features_change_only_before_features_ok, setup, teardown),
		cmocka_unit_test_setup_teardown(failed_stops_the_device, setup, teardown),
		cmocka_unit_test_setup_teardown(an_unknown_queue_has_no_size, setup, teardown),
		cmocka_unit_test_setup_teardown(a_queue_is_enabled_and_disabled, setup, teardown),
		cmocka_unit_test_setup_teardown(a_bad_queue_needs_a_reset, setup, teardown),
		cmocka_unit_test_setup_teardown(a_queue_is_set_up_at_its_time_only, setup, teardown),
		cmocka_unit_test_setup_teardown(a_notification_reaches_its_queue_either_way, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_served_before_the_driver_is_up, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_interrupt_stands_until_it_is_acknowledged, setup, teardown),
		cmocka_unit_test_setup_teardown(
			more_work_than_a_round_is_finished_without_the_driver, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_malformed_chain_needs_a_reset_and_a_reset_helps, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refusal_is_logged_once_by_name, setup, teardown),
		cmocka_unit_test_setup_teardown(an_index_far_ahead_ends_the_vm, setup, teardown),
		cmocka_unit_test_setup_teardown(a_reset_takes_a_request_back, setup, teardown),
		cmocka_unit_test_setup_teardown(
			the_device_hears_of_a_reset_before_anything_else, setup, teardown),
		cmocka_unit_test_setup_teardown(
			the_registers_of_a_queue_may_be_set_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(selecting_is_always_allowed, setup, teardown),
		cmocka_unit_test_setup_teardown(a_reset_forgets_all_that_was_chosen, setup, teardown),
		cmocka_unit_test_setup_teardown(registers_and_loop_run_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(creation_that_fails_destroys_the_device, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
