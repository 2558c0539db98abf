/* SPDX-License-Identifier: Apache-2.0 */
/* rng: bounded bytes into what the driver offers, and nothing else. */
#include "tests/support/unit.h"

#include "tests/support/fake_driver.h"
#include "vmm/virtio/rng.h"
#include <linux/virtio_mmio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
	struct fake_driver driver;
	gpa_t data;
};

enum { DATA_BYTES = 2 * RNG_REQUEST_MAX };

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct virtio_device *device;

	assert_non_null(f);
	assert_int_equal(rng_create(&device), 0);
	fake_driver_init(&f->driver);
	fake_driver_attach(&f->driver, device);
	f->data = fake_driver_alloc(&f->driver, DATA_BYTES);
	fake_driver_start(&f->driver, VIRTIO_FEATURES_COMMON);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_driver_finish(&f->driver);
	free(f);
	return 0;
}

static uint32_t request(struct fixture *f, const struct fake_buffer *buffers, unsigned count)
{
	uint16_t head;
	uint32_t written;

	fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, count));
	fake_driver_kick(&f->driver, 0);
	assert_true(fake_driver_used(&f->driver, 0, &head, &written));
	return written;
}

/* Random bytes: of this many, hardly more than 1 in 32 is zero. */
static bool looks_filled(struct fixture *f, uint32_t offset, uint32_t length)
{
	const uint8_t *bytes = fake_driver_at(&f->driver, f->data + offset, length);
	uint32_t zeros = 0;

	for (uint32_t i = 0; i < length; i++)
		zeros += bytes[i] == 0;
	return zeros < length / 32;
}

static bool is_untouched(struct fixture *f, uint32_t offset, uint32_t length)
{
	const uint8_t *bytes = fake_driver_at(&f->driver, f->data + offset, length);

	for (uint32_t i = 0; i < length; i++)
		if (bytes[i])
			return false;
	return true;
}

static void the_first_request_is_notified(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffer = {.address = f->data, .length = 64, .writable = true};

	fake_driver_run(&f->driver);
	fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, &buffer, 1));
	assert_true(fake_driver_must_kick(&f->driver, 0));
}

static void a_buffer_is_filled(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffer = {.address = f->data, .length = 1024, .writable = true};

	assert_true(fake_driver_features(&f->driver) == VIRTIO_FEATURES_COMMON);
	assert_int_equal(request(f, &buffer, 1), 1024);
	assert_true(looks_filled(f, 0, 1024));
	assert_true(is_untouched(f, 1024, 1024));
	assert_int_equal(f->driver.interrupts, 1);
	buffer.length = 1;
	assert_int_equal(request(f, &buffer, 1), 1);
}

static void a_request_is_bounded(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffer = {.address = f->data, .length = DATA_BYTES, .writable = true};

	assert_int_equal(request(f, &buffer, 1), RNG_REQUEST_MAX);
	assert_true(looks_filled(f, 0, RNG_REQUEST_MAX));
	assert_true(is_untouched(f, RNG_REQUEST_MAX, RNG_REQUEST_MAX));
}

static void pieces_are_filled_in_order(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[3] = {
		{.address = f->data + 1024, .length = 512, .writable = true},
		{.address = f->data, .length = 512, .writable = true},
		{.address = f->data + 2048, .length = 4096, .writable = true},
	};

	assert_int_equal(request(f, buffers, 3), RNG_REQUEST_MAX);
	assert_true(looks_filled(f, 0, 512));
	assert_true(is_untouched(f, 512, 512));
	assert_true(looks_filled(f, 1024, 512));
	assert_true(looks_filled(f, 2048, RNG_REQUEST_MAX - 1024));
	assert_true(is_untouched(f, 2048 + RNG_REQUEST_MAX - 1024, 1024));
}

static void a_full_queue_is_served_in_one_round(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffer = {.address = f->data, .length = 64, .writable = true};

	for (unsigned i = 0; i < RNG_QUEUE_SIZE; i++)
		fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, &buffer, 1));
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->driver.queues[0].used->idx, RNG_QUEUE_SIZE);
	assert_int_equal(f->driver.interrupts, 1);
}

/* The chain is refused, no byte is written, and a reset helps. */
static void assert_refused(struct fixture *f, const struct fake_buffer *buffers, unsigned count)
{
	struct fake_buffer good = {.address = f->data, .length = 64, .writable = true};

	fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, count));
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(fake_driver_status(&f->driver), 0xf | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_int_equal(f->driver.queues[0].used->idx, 0);
	assert_true(is_untouched(f, 0, DATA_BYTES));
	assert_int_equal(f->driver.faults, 0);
	fake_driver_start(&f->driver, VIRTIO_FEATURES_COMMON);
	assert_int_equal(request(f, &good, 1), 64);
	memset(fake_driver_at(&f->driver, f->data, 64), 0, 64);
	fake_driver_start(&f->driver, VIRTIO_FEATURES_COMMON);
}

static void wrong_buffers_need_a_reset(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[2] = {{.address = f->data, .length = 64},
		{.address = f->data + 64, .length = 64, .writable = true}};

	assert_refused(f, buffers, 1); /* only readable */
	assert_refused(f, buffers, 2); /* readable before writable */
	buffers[0] = (struct fake_buffer){.address = FAKE_MEMORY - 63, .length = 64, .writable = true};
	assert_refused(f, buffers, 1);
	buffers[0].address = UINT64_MAX - 10;
	assert_refused(f, buffers, 1);
	buffers[0] = (struct fake_buffer){.address = f->data, .length = 0, .writable = true};
	assert_refused(f, buffers, 1);
}

static void a_loop_of_descriptors_needs_a_reset(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffer = {.address = f->data, .length = 64, .writable = true};
	uint16_t head = fake_driver_chain(&f->driver, 0, &buffer, 1);

	f->driver.queues[0].desc[head].flags |= VRING_DESC_F_NEXT;
	f->driver.queues[0].desc[head].next = head;
	fake_driver_offer(&f->driver, 0, head);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(fake_driver_status(&f->driver), 0xf | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_true(is_untouched(f, 0, DATA_BYTES));
}

static void an_index_far_ahead_ends_the_vm(void **state)
{
	struct fixture *f = *state;

	f->driver.queues[0].avail->idx = RNG_QUEUE_SIZE + 1;
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->driver.faults, 1);
	assert_string_equal(
		f->driver.reason, "rng: queue 0: available index is further ahead than the queue is long");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_first_request_is_notified),
		CASE(a_buffer_is_filled),
		CASE(a_request_is_bounded),
		CASE(pieces_are_filled_in_order),
		CASE(a_full_queue_is_served_in_one_round),
		CASE(wrong_buffers_need_a_reset),
		CASE(a_loop_of_descriptors_needs_a_reset),
		CASE(an_index_far_ahead_ends_the_vm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
