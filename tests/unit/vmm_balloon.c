/* SPDX-License-Identifier: Apache-2.0 */
/* balloon: lists of pages and reports of ranges, good and hostile; which pages are given back, and how many.
 */
#include "tests/support/unit.h"

#include "tests/support/fake_driver.h"
#include "vmm/virtio/balloon.h"
#include <errno.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_mmio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
	INFLATE,
	DEFLATE,
	REPORTING,
	PAGES = 1024, /* of the area that is given back */
	PAGE = BALLOON_PAGE,
	TOUCHED = 0x5a,
};

#define FEATURES                                                                                             \
	(VIRTIO_FEATURES_COMMON | VIRTIO_FEATURE(VIRTIO_BALLOON_F_DEFLATE_ON_OOM) |                          \
		VIRTIO_FEATURE(VIRTIO_BALLOON_F_PAGE_POISON) | VIRTIO_FEATURE(VIRTIO_BALLOON_F_REPORTING))
#define WITHOUT_POISON (FEATURES & ~VIRTIO_FEATURE(VIRTIO_BALLOON_F_PAGE_POISON))

struct fixture {
	struct fake_driver driver;
	gpa_t list, area; /* the area begins at a page */
};

static uint8_t *page_at(struct fixture *f, unsigned page)
{
	return fake_driver_at(&f->driver, f->area + (gpa_t)page * PAGE, PAGE);
}

/* Every page of the area holds bytes that are not zero. */
static void touch_area(struct fixture *f)
{
	memset(fake_driver_at(&f->driver, f->area, PAGES * PAGE), TOUCHED, PAGES * PAGE);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct balloon_config config = {.target = 0};
	struct virtio_device *device;

	assert_non_null(f);
	fake_driver_init(&f->driver);
	config.memory = &f->driver.memory;
	assert_int_equal(balloon_create(&config, &device), 0);
	fake_driver_attach(&f->driver, device);
	f->list = fake_driver_alloc(&f->driver, 4 * BALLOON_REQUEST_PFNS * sizeof(uint32_t));
	f->area = (fake_driver_alloc(&f->driver, (PAGES + 1) * PAGE) + PAGE - 1) / PAGE * PAGE;
	fake_driver_start(&f->driver, WITHOUT_POISON);
	touch_area(f);
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

/* All of the page is zero, or all of it is as it was; anything else fails. */
static bool is_gone(struct fixture *f, unsigned page)
{
	const uint8_t *bytes = page_at(f, page);

	for (unsigned i = 1; i < PAGE; i++)
		assert_int_equal(bytes[i], bytes[0]);
	assert_true(bytes[0] == 0 || bytes[0] == TOUCHED);
	return bytes[0] == 0;
}

/* Exactly the pages first..last of the area are gone. */
static void assert_gone(struct fixture *f, unsigned first, unsigned last)
{
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(is_gone(f, i), i >= first && i <= last);
}

static void assert_none_gone(struct fixture *f)
{
	assert_gone(f, PAGES, PAGES);
}

static uint32_t pfn_of(struct fixture *f, unsigned page)
{
	return (uint32_t)(f->area / PAGE + page);
}

static void write_list(struct fixture *f, const uint32_t *pfns, unsigned count)
{
	memcpy(fake_driver_at(&f->driver, f->list, count * sizeof(*pfns)), pfns, count * sizeof(*pfns));
}

static void send_chain(struct fixture *f, unsigned queue, const struct fake_buffer *buffers, unsigned count)
{
	uint16_t sent = fake_driver_chain(&f->driver, queue, buffers, count), head;
	uint32_t written;

	fake_driver_offer(&f->driver, queue, sent);
	fake_driver_kick(&f->driver, queue);
	assert_true(fake_driver_used(&f->driver, queue, &head, &written));
	assert_int_equal(head, sent);
	assert_int_equal(written, 0);
	fake_driver_assert_idle(&f->driver);
}

static void send_list(struct fixture *f, unsigned queue, const uint32_t *pfns, unsigned count)
{
	struct fake_buffer buffer = {.address = f->list, .length = (uint32_t)(count * sizeof(*pfns))};

	write_list(f, pfns, count);
	send_chain(f, queue, &buffer, 1);
}

static struct fake_buffer range(struct fixture *f, uint64_t offset, uint32_t length)
{
	return (struct fake_buffer){.address = f->area + offset, .length = length, .writable = true};
}

static uint32_t config_word(struct fixture *f, size_t offset)
{
	return fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG + offset);
}

#define NUM_PAGES offsetof(struct virtio_balloon_config, num_pages)
#define ACTUAL offsetof(struct virtio_balloon_config, actual)
#define POISON offsetof(struct virtio_balloon_config, poison_val)

/* lists */

static void pages_of_a_list_are_given_back(void **state)
{
	struct fixture *f = *state;
	uint32_t pfns[] = {pfn_of(f, 7), pfn_of(f, 5), pfn_of(f, 6)};

	assert_true(fake_driver_features(&f->driver) == FEATURES);
	send_list(f, INFLATE, pfns, 3);
	assert_gone(f, 5, 7);
	assert_int_equal(balloon_status(f->driver.device).reported, 0);
	assert_int_equal(f->driver.interrupts, 1);
}

static void a_list_may_lie_in_pieces_at_any_address(void **state)
{
	struct fixture *f = *state;
	uint32_t pfns[] = {pfn_of(f, 1), pfn_of(f, 2)};
	struct fake_buffer buffers[] = {
		{.address = f->list + 1, .length = 3}, {.address = f->list + 4, .length = 5}};

	memcpy(fake_driver_at(&f->driver, f->list + 1, sizeof(pfns)), pfns, sizeof(pfns));
	send_chain(f, INFLATE, buffers, 2);
	assert_gone(f, 1, 2);
}

static void deflating_takes_nothing_away(void **state)
{
	struct fixture *f = *state;
	uint32_t pfns[] = {pfn_of(f, 0), pfn_of(f, 1)};

	send_list(f, DEFLATE, pfns, 2);
	assert_none_gone(f);
}

static void pages_named_again_and_apart_are_given_back_once(void **state)
{
	struct fixture *f = *state;
	uint32_t pfns[] = {pfn_of(f, 9), pfn_of(f, 8), pfn_of(f, 9), pfn_of(f, 8), pfn_of(f, 9)};

	send_list(f, INFLATE, pfns, 5);
	assert_gone(f, 8, 9);
	touch_area(f);
	pfns[0] = pfn_of(f, 1000);
	send_list(f, INFLATE, pfns, 1);
	assert_gone(f, 1000, 1000);
}

static void pages_outside_of_memory_are_ignored(void **state)
{
	struct fixture *f = *state;
	uint32_t pfns[] = {FAKE_MEMORY / PAGE, UINT32_MAX, pfn_of(f, 3), FAKE_MEMORY / PAGE + 1, 0x80000000};

	send_list(f, INFLATE, pfns, 5);
	assert_gone(f, 3, 3);
	assert_int_equal(f->driver.faults, 0);
	/* the very last page is inside */
	*(uint8_t *)fake_driver_at(&f->driver, FAKE_MEMORY - PAGE, 1) = 1;
	pfns[2] = FAKE_MEMORY / PAGE - 1;
	send_list(f, INFLATE, pfns, 5);
	assert_int_equal(*(uint8_t *)fake_driver_at(&f->driver, FAKE_MEMORY - PAGE, 1), 0);
}

static void what_a_list_has_too_much_is_ignored(void **state)
{
	struct fixture *f = *state;
	static uint32_t pfns[BALLOON_REQUEST_PFNS + 1];
	struct fake_buffer odd = {.address = f->list, .length = 7};

	for (unsigned i = 0; i < BALLOON_REQUEST_PFNS; i++)
		pfns[i] = pfn_of(f, 2);
	pfns[BALLOON_REQUEST_PFNS] = pfn_of(f, 4);
	send_list(f, INFLATE, pfns, BALLOON_REQUEST_PFNS + 1);
	assert_gone(f, 2, 2);
	/* a part of a number */
	touch_area(f);
	pfns[1] = pfn_of(f, 4);
	write_list(f, pfns, 2);
	send_chain(f, INFLATE, &odd, 1);
	assert_gone(f, 2, 2);
	touch_area(f);
	odd.length = 3;
	send_chain(f, INFLATE, &odd, 1);
	assert_none_gone(f);
}

/* reports */

static void ranges_of_a_report_are_given_back(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer ranges[] = {range(f, 16 * PAGE, 16 * PAGE), range(f, 32 * PAGE, 8 * PAGE)};

	send_chain(f, REPORTING, ranges, 2);
	assert_gone(f, 16, 39);
	assert_int_equal(balloon_status(f->driver.device).reported, 24 * PAGE);
}

static void only_whole_pages_of_a_report_are_given_back(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer ranges[] = {range(f, 1, 3 * PAGE - 2)};

	send_chain(f, REPORTING, ranges, 1);
	assert_gone(f, 1, 1);
	touch_area(f);
	ranges[0] = range(f, 10 * PAGE + 1, 2 * PAGE - 2);
	send_chain(f, REPORTING, ranges, 1);
	ranges[0] = range(f, 10 * PAGE + 1, 1);
	send_chain(f, REPORTING, ranges, 1);
	assert_none_gone(f);
	assert_int_equal(balloon_status(f->driver.device).reported, PAGE);
}

/*
 * Offers two reports of nearly all that one round may give back, each beginning with much and ending with one
 * page, and lets one round pass: the second has begun, and its last page is not reached.
 */
static void begin_two_reports(struct fixture *f)
{
	struct fake_buffer ranges[8];

	for (unsigned i = 0; i < 7; i++)
		ranges[i] = range(f, 0, (PAGES - 8) * PAGE);
	for (unsigned i = 0; i < 2; i++) {
		ranges[7] = range(f, (uint64_t)(PAGES - 1 - i) * PAGE, PAGE);
		fake_driver_offer(&f->driver, REPORTING, fake_driver_chain(&f->driver, REPORTING, ranges, 8));
	}
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, REPORTING);
	assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_int_equal(f->driver.queues[REPORTING].used->idx, 1);
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(is_gone(f, i), i < PAGES - 8 || i == PAGES - 1);
}

static void a_long_report_is_served_in_rounds(void **state)
{
	struct fixture *f = *state;

	begin_two_reports(f);
	assert_true(balloon_status(f->driver.device).reported == BALLOON_ROUND_BYTES);
	assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_int_equal(f->driver.queues[REPORTING].used->idx, 2);
	assert_true(is_gone(f, PAGES - 2));
	assert_int_equal(f->driver.interrupts, 1);
	fake_driver_assert_idle(&f->driver);
}

static void a_report_that_a_reset_interrupts_is_forgotten(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer small = range(f, 100 * PAGE, PAGE);

	begin_two_reports(f);
	fake_driver_start(&f->driver, WITHOUT_POISON);
	touch_area(f);
	send_chain(f, REPORTING, &small, 1);
	assert_gone(f, 100, 100);
}

static void a_report_of_more_than_memory_is_cut(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer ranges[16];

	for (unsigned i = 0; i < 15; i++)
		ranges[i] = range(f, 0, (PAGES - 1) * PAGE);
	ranges[15] = range(f, (PAGES - 1) * PAGE, PAGE);
	send_chain(f, REPORTING, ranges, 16);
	assert_gone(f, 0, PAGES - 2);
	assert_int_equal(balloon_status(f->driver.device).reported, FAKE_MEMORY);
}

static void many_scattered_lists_are_served_in_rounds(void **state)
{
	struct fixture *f = *state;
	static uint32_t pfns[PAGES / 2];
	struct fake_buffer buffer = {.address = f->list, .length = sizeof(pfns)};
	unsigned rounds;

	for (unsigned i = 0; i < PAGES / 2; i++)
		pfns[i] = pfn_of(f, 2 * i);
	write_list(f, pfns, PAGES / 2);
	for (unsigned i = 0; i < 8; i++)
		fake_driver_offer(&f->driver, INFLATE, fake_driver_chain(&f->driver, INFLATE, &buffer, 1));
	fake_driver_set_used_event(&f->driver, INFLATE, 7);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, INFLATE);
	for (rounds = 0; f->driver.queues[INFLATE].used->idx < 8; rounds++) {
		assert_int_equal(f->driver.queues[INFLATE].used->idx, rounds);
		assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	}
	assert_int_equal(rounds, 8); /* each has as many calls as a round may have */
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(is_gone(f, i), i % 2 == 0);
}

static void pages_with_a_pattern_are_left(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer ranges[] = {range(f, 0, 4 * PAGE)};
	uint32_t pfns[] = {pfn_of(f, 5)};

	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + POISON, 0xaaaaaaaa);
	fake_driver_start(&f->driver, FEATURES);
	touch_area(f);
	send_chain(f, REPORTING, ranges, 1);
	assert_none_gone(f);
	assert_int_equal(balloon_status(f->driver.device).reported, 0);
	/* what is in the balloon has no content */
	send_list(f, INFLATE, pfns, 1);
	assert_gone(f, 5, 5);
	/* zero is what they find */
	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + POISON, 0);
	touch_area(f);
	send_chain(f, REPORTING, ranges, 1);
	assert_gone(f, 0, 3);
	/* a pattern that was not negotiated does not count */
	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + POISON, 1);
	fake_driver_start(&f->driver, WITHOUT_POISON);
	touch_area(f);
	send_chain(f, REPORTING, ranges, 1);
	assert_gone(f, 0, 3);
}

/* hostile chains */

static void assert_refused(
	struct fixture *f, unsigned queue, const struct fake_buffer *buffers, unsigned count)
{
	uint32_t pfns[] = {pfn_of(f, 0)};

	fake_driver_offer(&f->driver, queue, fake_driver_chain(&f->driver, queue, buffers, count));
	fake_driver_kick(&f->driver, queue);
	assert_int_equal(fake_driver_status(&f->driver), 0xf | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_int_equal(f->driver.queues[queue].used->idx, 0);
	assert_int_equal(f->driver.faults, 0);
	assert_none_gone(f);
	fake_driver_start(&f->driver, WITHOUT_POISON);
	send_list(f, INFLATE, pfns, 1);
	assert_gone(f, 0, 0);
	fake_driver_start(&f->driver, WITHOUT_POISON);
	touch_area(f);
}

static void chains_of_the_wrong_direction_need_a_reset(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer list[2] = {{.address = f->list, .length = 4}, range(f, 0, PAGE)};
	struct fake_buffer outside = {.address = FAKE_MEMORY - PAGE, .length = 2 * PAGE, .writable = true};

	assert_refused(f, INFLATE, &list[1], 1);
	assert_refused(f, INFLATE, list, 2);
	assert_refused(f, DEFLATE, list, 2);
	assert_refused(f, REPORTING, list, 1);
	assert_refused(f, REPORTING, list, 2);
	assert_refused(f, REPORTING, &outside, 1);
}

static void rings_in_the_balloon_are_the_drivers_loss(void **state)
{
	struct fixture *f = *state;
	uint32_t pfns[] = {(uint32_t)(f->driver.queues[INFLATE].avail_address / PAGE)};
	struct fake_buffer buffer = {.address = f->list, .length = sizeof(pfns)};

	write_list(f, pfns, 1);
	for (unsigned i = 0; i < 3; i++)
		fake_driver_offer(&f->driver, INFLATE, fake_driver_chain(&f->driver, INFLATE, &buffer, 1));
	fake_driver_kick(&f->driver, INFLATE);
	assert_int_equal(f->driver.faults, 1);
	assert_string_equal(f->driver.reason,
		"balloon: queue 0: available index is further ahead than the queue is long");
}

/* configuration */

static void a_target_reaches_the_driver(void **state)
{
	struct fixture *f = *state;
	struct virtio_device *device = f->driver.device;
	uint32_t generation = fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG_GENERATION);

	assert_int_equal(config_word(f, NUM_PAGES), 0);
	assert_int_equal(balloon_set_target(device, 8 * 1024 * 1024 + 1), 0);
	assert_int_equal(config_word(f, NUM_PAGES), 8 * 1024 * 1024 / PAGE);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG_GENERATION), generation + 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_CONFIG);
	assert_int_equal(f->driver.interrupts, 1);
	assert_int_equal(balloon_status(device).target, 8 * 1024 * 1024);
	assert_int_equal(balloon_set_target(device, FAKE_MEMORY), 0);
	assert_int_equal(balloon_set_target(device, FAKE_MEMORY + 1), -EINVAL);
	assert_int_equal(balloon_set_target(device, UINT64_MAX - 1), -EINVAL);
	assert_int_equal(balloon_status(device).target, FAKE_MEMORY);
}

static void a_driver_that_does_not_run_is_not_interrupted(void **state)
{
	struct fixture *f = *state;

	fake_driver_negotiate(&f->driver, FEATURES);
	assert_int_equal(balloon_set_target(f->driver.device, PAGE), 0);
	assert_int_equal(f->driver.interrupts, 0);
	assert_int_equal(config_word(f, NUM_PAGES), 1);
}

static void what_the_driver_says_is_bounded(void **state)
{
	struct fixture *f = *state;
	uint8_t byte = 0xff;
	uint64_t wide = UINT64_MAX;

	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + ACTUAL, 3);
	assert_int_equal(balloon_status(f->driver.device).actual, 3 * PAGE);
	assert_int_equal(config_word(f, ACTUAL), 3);
	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + ACTUAL, UINT32_MAX);
	assert_int_equal(balloon_status(f->driver.device).actual, FAKE_MEMORY);
	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + ACTUAL, 3);
	/* the target is not the driver's, nor is a part of a field, nor what lies between */
	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + NUM_PAGES, 7);
	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + 8, 7);
	fake_driver_write(&f->driver, VIRTIO_MMIO_CONFIG + 16, 7);
	virtio_mmio_write(f->driver.mmio, VIRTIO_MMIO_CONFIG + ACTUAL, &byte, 1);
	virtio_mmio_write(f->driver.mmio, VIRTIO_MMIO_CONFIG + ACTUAL + 2, &wide, 4);
	virtio_mmio_write(f->driver.mmio, VIRTIO_MMIO_CONFIG, &wide, 8);
	assert_int_equal(config_word(f, NUM_PAGES), 0);
	assert_int_equal(config_word(f, ACTUAL), 3);
	assert_int_equal(config_word(f, 8), 0);
	assert_int_equal(config_word(f, POISON), 0);
}

static void the_first_target_is_checked(void **state)
{
	struct fixture *f = *state;
	struct balloon_config config = {.memory = &f->driver.memory, .target = FAKE_MEMORY + 1};
	struct virtio_device *device = NULL;

	assert_int_equal(balloon_create(&config, &device), -EINVAL);
	config.target = FAKE_MEMORY / 2;
	assert_int_equal(balloon_create(&config, &device), 0);
	assert_int_equal(balloon_status(device).target, FAKE_MEMORY / 2);
	virtio_device_destroy(device);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int move(struct fixture *f, uint64_t target)
{
	struct balloon_config config = {.memory = &f->driver.memory, .target = target};
	struct virtio_device *next;

	assert_int_equal(balloon_create(&config, &next), 0);
	return fake_driver_move(&f->driver, next);
}

static void a_restored_balloon_is_where_it_was(void **state)
{
	struct fixture *f = *state;
	struct balloon_status status;
	uint32_t value = 7;

	assert_int_equal(balloon_set_target(f->driver.device, 10 * PAGE), 0);
	virtio_mmio_write(f->driver.mmio, VIRTIO_MMIO_CONFIG + offsetof(struct virtio_balloon_config, actual),
		&value, sizeof(value));
	value = 0x55;
	virtio_mmio_write(f->driver.mmio,
		VIRTIO_MMIO_CONFIG + offsetof(struct virtio_balloon_config, poison_val), &value,
		sizeof(value));
	assert_int_equal(move(f, 99 * PAGE), 0);
	status = balloon_status(f->driver.device);
	assert_true(status.target == 10 * PAGE);
	assert_true(status.actual == 7 * PAGE);
	virtio_mmio_read(f->driver.mmio,
		VIRTIO_MMIO_CONFIG + offsetof(struct virtio_balloon_config, poison_val), &value,
		sizeof(value));
	assert_int_equal(value, 0x55);
}

static void a_target_beyond_memory_is_not_restored(void **state)
{
	struct fixture *f = *state;
	uint8_t bytes[FAKE_STATE_MAX];
	struct state_writer writer;
	uint32_t pages = FAKE_MEMORY / PAGE;

	state_writer_init(&writer, bytes, sizeof(bytes));
	virtio_mmio_save(f->driver.mmio, &writer);
	for (unsigned more = 0; more < 2; more++, pages++) {
		struct balloon_config config = {.memory = &f->driver.memory};
		struct virtio_device *next;

		memcpy(bytes + writer.length - 20, &pages, 4);
		assert_int_equal(balloon_create(&config, &next), 0);
		assert_int_equal(
			fake_driver_load(&f->driver, next, bytes, writer.length), more ? -EBADMSG : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(pages_of_a_list_are_given_back),
		CASE(a_list_may_lie_in_pieces_at_any_address),
		CASE(deflating_takes_nothing_away),
		CASE(pages_named_again_and_apart_are_given_back_once),
		CASE(pages_outside_of_memory_are_ignored),
		CASE(what_a_list_has_too_much_is_ignored),
		CASE(ranges_of_a_report_are_given_back),
		CASE(only_whole_pages_of_a_report_are_given_back),
		CASE(a_long_report_is_served_in_rounds),
		CASE(a_report_of_more_than_memory_is_cut),
		CASE(many_scattered_lists_are_served_in_rounds),
		CASE(a_report_that_a_reset_interrupts_is_forgotten),
		CASE(pages_with_a_pattern_are_left),
		CASE(chains_of_the_wrong_direction_need_a_reset),
		CASE(rings_in_the_balloon_are_the_drivers_loss),
		CASE(a_target_reaches_the_driver),
		CASE(a_restored_balloon_is_where_it_was),
		CASE(a_target_beyond_memory_is_not_restored),
		CASE(a_driver_that_does_not_run_is_not_interrupted),
		CASE(what_the_driver_says_is_bounded),
		CASE(the_first_target_is_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
