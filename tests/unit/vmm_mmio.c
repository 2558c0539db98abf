/* SPDX-License-Identifier: Apache-2.0 */
/* The registers of a transport, driven well and badly. */
#include "tests/unit/vmm_mmio_fixture.h"

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
		cmocka_unit_test_setup_teardown(
			the_registers_of_a_queue_may_be_set_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(selecting_is_always_allowed, setup, teardown),
		cmocka_unit_test_setup_teardown(a_reset_forgets_all_that_was_chosen, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
