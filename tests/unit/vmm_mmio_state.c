/* SPDX-License-Identifier: Apache-2.0 */
/* A transport in a snapshot: a new device goes on where another was, and what could not have been is refused.
 */
#include "tests/unit/vmm_mmio_fixture.h"

/* Where values stand in the bytes. */
enum {
	AT_STATUS = 0,
	AT_INTERRUPT = 4,
	AT_FEATURES = 20,
	AT_QUEUES = 32,
	AT_QUEUE_SIZE = 36,
	AT_DESC = 38,
	AT_AVAIL = 46,
	AT_USED = 54,
	AT_READY = 62,
	QUEUE_BYTES = 29,
	STATE_BYTES = 36 + QUEUES * QUEUE_BYTES,
};

static int move(struct fixture *f)
{
	int r;

	f->destroyed = 0;
	f->device = counter_create(&f->destroyed);
	r = fake_driver_move(&f->driver, &f->device->base);
	assert_int_equal(f->destroyed, 1);
	f->destroyed = 0;
	return r;
}

static void wake(struct fixture *f)
{
	virtio_mmio_wake(f->driver.mmio);
	fake_driver_run(&f->driver);
}

static unsigned count_used(struct fixture *f, unsigned queue)
{
	unsigned count = 0;
	uint32_t written;
	uint16_t head;

	while (fake_driver_used(&f->driver, queue, &head, &written))
		count++;
	return count;
}

static void run_some(struct fixture *f, uint64_t features)
{
	fake_driver_start(&f->driver, features);
	for (unsigned i = 0; i < 5; i++) {
		offer_one(f, 0);
		fake_driver_kick(&f->driver, 0);
	}
	assert_int_equal(count_used(f, 0), 5);
}

static void a_new_device_goes_on(void **state)
{
	struct fixture *f = *state;
	static const uint64_t features[] = {MINIMUM, FEATURES};

	for (size_t i = 0; i < 2; i++) {
		run_some(f, features[i]);
		assert_int_equal(move(f), 0);
		assert_int_equal(f->device->notified[0], 0); /* nothing is served before it is woken */
		wake(f);
		assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | DRIVER_OK);
		assert_int_equal(f->device->resets, 0);
		assert_true(f->device->base.driver_features == features[i]);
		assert_int_equal(count_used(f, 0), 0); /* and nothing twice */
		for (unsigned j = 0; j < 20; j++) {
			offer_one(f, 0);
			if (features[i] == FEATURES)
				assert_true(fake_driver_must_kick(&f->driver, 0));
			fake_driver_kick(&f->driver, 0);
			assert_int_equal(count_used(f, 0), 1);
		}
		assert_int_equal(f->driver.faults, 0);
	}
}

static void requests_that_wait_are_served_before(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, FEATURES);
	for (unsigned i = 0; i < 4; i++)
		offer_one(f, 1);
	assert_int_equal(move(f), 0);
	assert_int_equal(count_used(f, 1), 4);
	wake(f);
	assert_int_equal(f->device->popped, 0);
}

/* A buffer that a device holds ready is taken again, by the next one. */
static void chains_that_were_taken_are_taken_again(void **state)
{
	struct fixture *f = *state;

	run_some(f, FEATURES);
	f->device->keep = true;
	offer_one(f, 0);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->device->popped, 7);
	assert_int_equal(move(f), 0);
	wake(f);
	assert_int_equal(f->device->popped, 2);
	assert_int_equal(count_used(f, 0), 2);
}

/* What came while it was saved was lost with the eventfd. */
static void every_queue_is_looked_at_and_every_line_raised_once(void **state)
{
	struct fixture *f = *state;
	unsigned interrupts;

	run_some(f, FEATURES);
	fake_driver_write(&f->driver, VIRTIO_MMIO_INTERRUPT_ACK, 3);
	assert_int_equal(move(f), 0);
	offer_one(f, 0);
	interrupts = f->driver.interrupts;
	virtio_mmio_wake(f->driver.mmio);
	assert_int_equal(f->driver.interrupts, interrupts + 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_VRING);
	fake_driver_run(&f->driver);
	assert_int_equal(count_used(f, 0), 1);
	assert_true(f->device->notified[0] > 0 && f->device->notified[1] > 0);
	fake_driver_assert_idle(&f->driver);
}

/* Its cause is not lost when nobody has seen it yet. */
static void an_interrupt_that_was_pending_is_raised_again(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, FEATURES);
	fake_driver_write(&f->driver, VIRTIO_MMIO_INTERRUPT_ACK, 3);
	virtio_device_enter(f->driver.device);
	virtio_device_config_changed(f->driver.device);
	virtio_device_leave(f->driver.device);
	assert_int_equal(move(f), 0);
	wake(f);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS),
		VIRTIO_MMIO_INT_VRING | VIRTIO_MMIO_INT_CONFIG);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG_GENERATION), 1);
}

static void a_queue_never_set_up_stays_so(void **state)
{
	struct fixture *f = *state;

	fake_driver_negotiate(&f->driver, FEATURES);
	fake_driver_place_queue(&f->driver, 1, QUEUE_SIZE);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1);
	set_status(f, ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	assert_int_equal(move(f), 0);
	wake(f);
	assert_int_equal(f->device->notified[0], 0);
	assert_true(f->device->notified[1] > 0);
	offer_one(f, 1);
	fake_driver_kick(&f->driver, 1);
	assert_int_equal(count_used(f, 1), 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_SEL, 0);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_QUEUE_READY), 0);
}

/* In the middle of each step of set-up. */
static void a_driver_in_its_set_up_goes_on(void **state)
{
	struct fixture *f = *state;

	fake_driver_write(&f->driver, VIRTIO_MMIO_STATUS, 0);
	fake_driver_run(&f->driver);
	set_status(f, ACK);
	assert_int_equal(move(f), 0);
	set_status(f, ACK | DRIVER);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
	assert_int_equal(move(f), 0);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_DEVICE_FEATURES), FEATURES >> 32);
	fake_driver_write(&f->driver, VIRTIO_MMIO_DRIVER_FEATURES, FEATURES >> 32);
	assert_int_equal(move(f), 0);
	set_status(f, ACK | DRIVER | FEATURES_OK);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK);
	fake_driver_place_queue(&f->driver, 0, QUEUE_SIZE);
	assert_int_equal(move(f), 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_READY, 1); /* of the queue selected before */
	assert_int_equal(move(f), 0);
	wake(f);
	assert_int_equal(f->device->notified[0], 0);
	set_status(f, ACK | DRIVER | FEATURES_OK | DRIVER_OK);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(count_used(f, 0), 1);
}

static void a_driver_at_fault_stays_so(void **state)
{
	struct fixture *f = *state;
	unsigned interrupts;

	run_some(f, FEATURES);
	set_status(f, ACK);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | DRIVER_OK | NEEDS_RESET);
	fake_driver_write(&f->driver, VIRTIO_MMIO_INTERRUPT_ACK, 3);
	assert_int_equal(move(f), 0);
	interrupts = f->driver.interrupts;
	wake(f);
	assert_int_equal(f->driver.interrupts, interrupts);
	assert_int_equal(status(f), ACK | DRIVER | FEATURES_OK | DRIVER_OK | NEEDS_RESET);
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->device->notified[0], 0);
	set_status(f, 0);
	fake_driver_run(&f->driver);
	run_some(f, FEATURES);
}

/* A reset that the device has not heard of yet happens before. */
static void a_reset_that_is_pending_is_done_before(void **state)
{
	struct fixture *f = *state;
	struct counter *old = f->device;
	uint8_t bytes[FAKE_STATE_MAX];
	struct state_writer writer;

	run_some(f, FEATURES);
	set_status(f, 0);
	state_writer_init(&writer, bytes, sizeof(bytes));
	virtio_mmio_save(f->driver.mmio, &writer);
	assert_int_equal(old->resets, 2); /* one of them by fake_driver_start */
	assert_int_equal(writer.length, STATE_BYTES);
	for (size_t i = 0; i < AT_QUEUES; i++)
		assert_int_equal(bytes[i], 0);
}

/* --- bytes that could not have been saved --- */

struct saved {
	uint8_t bytes[FAKE_STATE_MAX];
	size_t length;
};

static void save(struct fixture *f, struct saved *saved)
{
	struct state_writer writer;

	state_writer_init(&writer, saved->bytes, sizeof(saved->bytes));
	virtio_mmio_save(f->driver.mmio, &writer);
	assert_int_equal(writer.error, 0);
	saved->length = writer.length;
	assert_int_equal(saved->length, STATE_BYTES);
}

static int load(struct fixture *f, const uint8_t *bytes, size_t length)
{
	int r;

	f->device = counter_create(&f->destroyed);
	r = fake_driver_load(&f->driver, &f->device->base, bytes, length);
	f->destroyed = 0;
	return r;
}

static void expect(
	struct fixture *f, const struct saved *saved, size_t offset, uint64_t value, size_t size, int wanted)
{
	struct saved changed = *saved;

	memcpy(changed.bytes + offset, &value, size);
	assert_int_equal(load(f, changed.bytes, changed.length), wanted);
}

static void bytes_cut_off_anywhere_are_refused(void **state)
{
	struct fixture *f = *state;
	struct saved saved;

	run_some(f, FEATURES);
	save(f, &saved);
	for (size_t length = 0; length < saved.length; length++)
		assert_int_equal(load(f, saved.bytes, length), -EBADMSG);
	assert_int_equal(load(f, saved.bytes, saved.length + 1), -EBADMSG);
	assert_int_equal(load(f, saved.bytes, saved.length), 0);
}

static void registers_that_cannot_be_are_refused(void **state)
{
	struct fixture *f = *state;
	struct saved saved;

	run_some(f, FEATURES);
	save(f, &saved);
	for (uint32_t value = 0; value < 256; value++) {
		uint32_t steps = value & ~(uint32_t)(FAILED | NEEDS_RESET);
		bool exists = steps == 0 || steps == ACK || steps == (ACK | DRIVER) ||
			      steps == (ACK | DRIVER | FEATURES_OK) ||
			      steps == (ACK | DRIVER | FEATURES_OK | DRIVER_OK);

		expect(f, &saved, AT_STATUS, value, 4, exists ? 0 : -EBADMSG);
	}
	expect(f, &saved, AT_STATUS, 0x10f, 4, -EBADMSG);
	for (uint32_t value = 0; value < 16; value++)
		expect(f, &saved, AT_INTERRUPT, value, 4, value < 4 ? 0 : -EBADMSG);
	expect(f, &saved, AT_FEATURES, FEATURES | VIRTIO_FEATURE(6), 8, -EBADMSG);
	expect(f, &saved, AT_FEATURES, FEATURES & ~MINIMUM, 8, -EBADMSG);
	expect(f, &saved, AT_QUEUES, QUEUES - 1, 4, -EBADMSG);
	expect(f, &saved, AT_QUEUES, QUEUES + 1, 4, -EBADMSG);
}

/* The rules of virtq_enable hold for what a file says, too. */
static void queues_that_cannot_be_are_refused(void **state)
{
	struct fixture *f = *state;
	struct saved saved;

	run_some(f, FEATURES);
	save(f, &saved);
	expect(f, &saved, AT_QUEUE_SIZE, QUEUE_SIZE, 2, 0);
	expect(f, &saved, AT_QUEUE_SIZE, QUEUE_SIZE * 2, 2, -EBADMSG);
	expect(f, &saved, AT_QUEUE_SIZE, QUEUE_SIZE - 1, 2, -EBADMSG);
	expect(f, &saved, AT_QUEUE_SIZE, 0, 2, -EBADMSG);
	for (size_t at = AT_DESC; at <= AT_USED; at += 8) {
		expect(f, &saved, at, FAKE_MEMORY, 8, -EBADMSG);
		expect(f, &saved, at, FAKE_MEMORY - 16, 8, -EBADMSG);
		expect(f, &saved, at, 0x10001, 8, -EBADMSG);
		expect(f, &saved, at, UINT64_MAX - 15, 8, -EBADMSG);
	}
	expect(f, &saved, AT_READY, 0, 1, 0);
	expect(f, &saved, AT_READY, 2, 1, -EBADMSG);
}

/* Any index is the driver's word against the ring's: what does not fit ends the VM, as ever. */
static void an_index_far_from_the_ring_ends_the_vm(void **state)
{
	struct fixture *f = *state;
	struct saved saved;

	run_some(f, FEATURES);
	save(f, &saved);
	expect(f, &saved, AT_READY + 1, 5 - QUEUE_SIZE - 1, 2, 0);
	wake(f);
	assert_int_equal(f->driver.faults, 1);
	assert_string_equal(f->driver.reason,
		"counter: queue 0: available index is further ahead than the queue is long");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_new_device_goes_on),
		CASE(requests_that_wait_are_served_before),
		CASE(chains_that_were_taken_are_taken_again),
		CASE(every_queue_is_looked_at_and_every_line_raised_once),
		CASE(an_interrupt_that_was_pending_is_raised_again),
		CASE(a_queue_never_set_up_stays_so),
		CASE(a_driver_in_its_set_up_goes_on),
		CASE(a_driver_at_fault_stays_so),
		CASE(a_reset_that_is_pending_is_done_before),
		CASE(bytes_cut_off_anywhere_are_refused),
		CASE(registers_that_cannot_be_are_refused),
		CASE(queues_that_cannot_be_are_refused),
		CASE(an_index_far_from_the_ring_ends_the_vm),
	};

	log_init("test", LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
