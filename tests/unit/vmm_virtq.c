/* SPDX-License-Identifier: Apache-2.0 */
/* Split rings as a driver may build them, well and badly. No transport: the queue alone. */
#include "tests/support/unit.h"

#include "vmm/virtio/virtq.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	SIZE = 8,
	REGION = 64 * 1024,
	SECOND_BASE = REGION, /* the second region follows without a gap, yet is another mapping */
	DESC_AT = 0x1000,
	AVAIL_AT = 0x2000,
	USED_AT = 0x3000,
	DATA_AT = 0x4000,
};

struct fixture {
	struct guest_memory memory;
	struct virtq queue;
	struct virtq_chain chain;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
};

static void *map_region(void)
{
	void *map = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	return map;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->memory.count = 2;
	f->memory.regions[0] = (struct guest_region){.base = 0, .size = REGION, .host = map_region()};
	f->memory.regions[1] =
		(struct guest_region){.base = SECOND_BASE, .size = REGION, .host = map_region()};
	f->queue = (struct virtq){.size_max = SIZE,
		.size = SIZE,
		.desc_address = DESC_AT,
		.avail_address = AVAIL_AT,
		.used_address = USED_AT};
	f->desc = (void *)(f->memory.regions[0].host + DESC_AT);
	f->avail = (void *)(f->memory.regions[0].host + AVAIL_AT);
	f->used = (void *)(f->memory.regions[0].host + USED_AT);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < f->memory.count; i++)
		munmap(f->memory.regions[i].host, REGION);
	free(f);
	return 0;
}

static struct fixture *start(void **state, bool event_idx)
{
	struct fixture *f = *state;

	assert_int_equal(virtq_enable(&f->queue, &f->memory, event_idx), 0);
	assert_false(f->queue.live);
	virtq_start(&f->queue);
	assert_true(f->queue.live);
	return f;
}

static void set_desc(
	struct fixture *f, unsigned index, uint64_t address, uint32_t length, uint16_t flags, uint16_t next)
{
	f->desc[index] = (struct vring_desc){.addr = address, .len = length, .flags = flags, .next = next};
}

static void offer(struct fixture *f, uint16_t head)
{
	f->avail->ring[f->avail->idx % SIZE] = head;
	f->avail->idx++;
}

static int pop(struct fixture *f)
{
	return virtq_pop(&f->queue, &f->chain);
}

/* Refused, and the queue stays where it is: the same chain, mended, is taken then. */
static void assert_refused(struct fixture *f, int error)
{
	assert_int_equal(pop(f), error);
	assert_int_equal(pop(f), error);
	set_desc(f, 0, DATA_AT, 16, 0, 0);
	f->avail->ring[0] = 0;
	assert_int_equal(pop(f), 1);
	assert_int_equal(f->chain.readable.length, 16);
}

/* enabling */

static void a_good_queue_is_enabled_once(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), 0);
	assert_true(f->queue.ready);
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), -EBUSY);
	virtq_disable(&f->queue);
	assert_false(f->queue.ready);
	assert_int_equal(f->queue.size, 0);
	assert_int_equal(f->queue.size_max, SIZE);
}

static void a_wrong_size_is_refused(void **state)
{
	static const uint16_t sizes[] = {0, 3, 6, SIZE * 2, UINT16_MAX};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		f->queue.size = sizes[i];
		assert_int_equal(virtq_enable(&f->queue, &f->memory, false), -EINVAL);
		assert_false(f->queue.ready);
	}
	f->queue.size = SIZE / 2;
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), 0);
}

static void a_ring_that_is_not_aligned_is_refused(void **state)
{
	struct fixture *f = *state;

	f->queue.desc_address = DESC_AT + 8;
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), -EINVAL);
	f->queue.desc_address = DESC_AT;
	f->queue.avail_address = AVAIL_AT + 1;
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), -EINVAL);
	f->queue.avail_address = AVAIL_AT;
	f->queue.used_address = USED_AT + 2;
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), -EINVAL);
	f->queue.used_address = USED_AT + 4;
	f->queue.avail_address = AVAIL_AT + 2;
	f->queue.desc_address = DESC_AT + 16;
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), 0);
}

static void a_ring_outside_memory_is_refused(void **state)
{
	static const gpa_t outside[] = {2 * REGION, 2 * REGION - 32, REGION - 32 /* across two regions */,
		UINT64_MAX - 31, UINT64_C(1) << 63};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		gpa_t *const fields[] = {&f->queue.desc_address, &f->queue.used_address};

		for (unsigned field = 0; field < 2; field++) {
			gpa_t good = *fields[field];

			*fields[field] = outside[i] & ~(gpa_t)15;
			assert_int_equal(virtq_enable(&f->queue, &f->memory, false), -EFAULT);
			*fields[field] = good;
		}
	}
	f->queue.avail_address = 2 * REGION - (4 + 2 * SIZE); /* the event index alone is outside */
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), -EFAULT);
	f->queue.avail_address = 2 * REGION - (6 + 2 * SIZE); /* at the very end of memory */
	assert_int_equal(virtq_enable(&f->queue, &f->memory, false), 0);
}

static void the_used_ring_at_the_very_end_of_memory_works(void **state)
{
	struct fixture *f = *state;

	f->queue.used_address = 2 * REGION - (6 + 8 * SIZE) + 4;
	assert_int_equal(virtq_enable(&f->queue, &f->memory, true), -EINVAL);
	f->queue.used_address = (2 * REGION - (6 + 8 * SIZE)) & ~3u;
	assert_int_equal(virtq_enable(&f->queue, &f->memory, true), 0);
	virtq_start(&f->queue);
	assert_false(virtq_want_notify(&f->queue));
	virtq_push(&f->queue, 1, 2);
	assert_true(virtq_publish(&f->queue));
}

/* chains */

static void a_chain_is_readable_then_writable(void **state)
{
	struct fixture *f = start(state, false);

	assert_int_equal(pop(f), 0);
	assert_true(virtq_empty(&f->queue));
	set_desc(f, 3, DATA_AT, 10, VRING_DESC_F_NEXT, 1);
	set_desc(f, 1, DATA_AT + 0x100, 20, VRING_DESC_F_NEXT, 7);
	set_desc(f, 7, DATA_AT + 0x200, 30, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 0);
	set_desc(f, 0, DATA_AT + 0x300, 40, VRING_DESC_F_WRITE, 5);
	offer(f, 3);
	assert_int_equal(pop(f), 1);
	assert_int_equal(f->chain.head, 3);
	assert_int_equal(f->chain.readable.count, 2);
	assert_int_equal(f->chain.readable.length, 30);
	assert_int_equal(f->chain.writable.count, 2);
	assert_int_equal(f->chain.writable.length, 70);
	assert_ptr_equal(f->chain.writable.iov[1].iov_base, f->memory.regions[0].host + DATA_AT + 0x300);
	assert_int_equal(pop(f), 0);
}

static void a_queue_that_is_not_live_is_empty(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 0, DATA_AT, 16, 0, 0);
	offer(f, 0);
	f->queue.live = false;
	assert_int_equal(pop(f), 0);
	assert_true(virtq_empty(&f->queue));
	assert_false(virtq_want_notify(&f->queue));
	virtq_push(&f->queue, 0, 0);
	assert_false(virtq_publish(&f->queue));
	assert_int_equal(f->used->idx, 0);
	f->queue.live = true;
	assert_int_equal(pop(f), 1);
}

static void a_loop_is_refused(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 0, DATA_AT, 16, VRING_DESC_F_NEXT, 1);
	set_desc(f, 1, DATA_AT, 16, VRING_DESC_F_NEXT, 0);
	offer(f, 0);
	assert_refused(f, -EPROTO);
}

static void a_descriptor_that_is_its_own_next_is_refused(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 0, DATA_AT, 16, VRING_DESC_F_NEXT, 0);
	offer(f, 0);
	assert_refused(f, -EPROTO);
}

static void the_longest_chain_is_the_queue(void **state)
{
	struct fixture *f = start(state, false);

	for (uint16_t i = 0; i < SIZE; i++)
		set_desc(f, i, DATA_AT, 16, VRING_DESC_F_NEXT, (uint16_t)(i + 1));
	offer(f, 0);
	assert_int_equal(pop(f), -EPROTO); /* the last one's next is outside the table */
	f->desc[SIZE - 1].flags = 0;
	assert_int_equal(pop(f), 1);
	assert_int_equal(f->chain.readable.count, SIZE);
}

static void an_index_outside_the_table_is_refused(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, SIZE, DATA_AT, 16, 0, 0); /* where there would be one more */
	offer(f, SIZE);
	assert_refused(f, -EPROTO);
	set_desc(f, 0, DATA_AT, 16, VRING_DESC_F_NEXT, UINT16_MAX);
	offer(f, 0);
	assert_int_equal(pop(f), -EPROTO);
}

static void a_buffer_outside_memory_is_refused(void **state)
{
	static const struct {
		uint64_t address;
		uint32_t length;
	} bad[] = {
		{2 * REGION, 1},
		{2 * REGION - 1, 2},
		{REGION - 1, 2}, /* across two regions */
		{0, UINT32_MAX},
		{UINT64_MAX, 1},
		{UINT64_MAX - 15, 32}, /* the sum wraps */
		{UINT64_C(1) << 63, 16},
	};
	struct fixture *f = start(state, false);

	offer(f, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set_desc(f, 0, bad[i].address, bad[i].length, 0, 0);
		assert_int_equal(pop(f), -EFAULT);
	}
	set_desc(f, 0, 2 * REGION - 1, 1, 0, 0); /* the very last byte */
	assert_int_equal(pop(f), 1);
}

static void a_length_of_zero_is_refused(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 0, DATA_AT, 0, 0, 0);
	offer(f, 0);
	assert_refused(f, -EPROTO);
}

static void readable_after_writable_is_refused(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 0, DATA_AT, 16, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 1);
	set_desc(f, 1, DATA_AT, 16, 0, 0);
	offer(f, 0);
	assert_refused(f, -EPROTO);
}

static void indirect_is_refused(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 0, DATA_AT, 16, VRING_DESC_F_INDIRECT, 0);
	offer(f, 0);
	assert_refused(f, -EPROTO);
}

static void an_index_far_ahead_is_fatal(void **state)
{
	struct fixture *f = start(state, false);

	for (uint16_t i = 0; i < SIZE; i++)
		set_desc(f, i, DATA_AT, 16, 0, 0);
	f->avail->idx = SIZE + 1;
	assert_int_equal(pop(f), -EOVERFLOW);
	f->avail->idx = UINT16_MAX; /* behind, that is, far ahead */
	assert_int_equal(pop(f), -EOVERFLOW);
	f->avail->idx = SIZE; /* full is fine */
	for (unsigned i = 0; i < SIZE; i++)
		assert_int_equal(pop(f), 1);
	assert_int_equal(pop(f), 0);
}

static void indices_wrap(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 2, DATA_AT, 16, 0, 0);
	for (unsigned i = 0; i < 3 * 65536u / 2; i++) {
		offer(f, 2);
		assert_int_equal(pop(f), 1);
		virtq_push(&f->queue, f->chain.head, i);
		assert_true(virtq_publish(&f->queue));
		assert_int_equal(f->used->idx, (uint16_t)(i + 1));
		assert_int_equal(f->used->ring[i % SIZE].id, 2);
		assert_int_equal(f->used->ring[i % SIZE].len, i);
	}
}

static void an_unpopped_chain_comes_again(void **state)
{
	struct fixture *f = start(state, false);

	set_desc(f, 2, DATA_AT, 16, 0, 0);
	offer(f, 2);
	assert_int_equal(pop(f), 1);
	virtq_unpop(&f->queue);
	assert_int_equal(pop(f), 1);
	assert_int_equal(f->chain.head, 2);
	assert_int_equal(pop(f), 0);
}

/* interrupts and notifications */

static void what_is_pushed_is_seen_after_publish(void **state)
{
	struct fixture *f = start(state, false);

	virtq_push(&f->queue, 4, 100);
	virtq_push(&f->queue, 5, 200);
	assert_int_equal(f->used->idx, 0);
	assert_true(virtq_publish(&f->queue));
	assert_int_equal(f->used->idx, 2);
	assert_int_equal(f->used->ring[1].id, 5);
	assert_int_equal(f->used->ring[1].len, 200);
	assert_false(virtq_publish(&f->queue)); /* nothing new */
}

static void flags_suppress_interrupts_and_notifications(void **state)
{
	struct fixture *f = start(state, false);

	f->avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
	virtq_push(&f->queue, 0, 0);
	assert_false(virtq_publish(&f->queue));
	f->avail->flags = 0;
	virtq_push(&f->queue, 0, 0);
	assert_true(virtq_publish(&f->queue));
	virtq_no_notify(&f->queue);
	assert_int_equal(f->used->flags, VRING_USED_F_NO_NOTIFY);
	assert_false(virtq_want_notify(&f->queue));
	assert_int_equal(f->used->flags, 0);
	set_desc(f, 0, DATA_AT, 16, 0, 0);
	offer(f, 0);
	assert_true(virtq_want_notify(&f->queue)); /* added before we asked: no notification will come */
}

static void the_event_index_suppresses_interrupts(void **state)
{
	struct fixture *f = start(state, true);
	uint16_t *event = &f->avail->ring[SIZE];

	f->avail->flags = VRING_AVAIL_F_NO_INTERRUPT; /* ignored then, 2.7.7.2 */
	*event = 0;
	virtq_push(&f->queue, 0, 0);
	assert_true(virtq_publish(&f->queue)); /* entry 0 is filled */
	virtq_push(&f->queue, 0, 0);
	assert_false(virtq_publish(&f->queue)); /* entry 1: not asked for */
	*event = 4;
	virtq_push(&f->queue, 0, 0);
	virtq_push(&f->queue, 0, 0);
	assert_false(virtq_publish(&f->queue)); /* entries 2 and 3 */
	virtq_push(&f->queue, 0, 0);
	virtq_push(&f->queue, 0, 0);
	assert_true(virtq_publish(&f->queue)); /* 4 and 5: 4 is among them */
}

static void the_event_index_asks_for_notifications(void **state)
{
	struct fixture *f = start(state, true);
	uint16_t event;

	set_desc(f, 0, DATA_AT, 16, 0, 0);
	offer(f, 0);
	offer(f, 0);
	assert_int_equal(pop(f), 1);
	assert_true(virtq_want_notify(&f->queue));
	assert_int_equal(pop(f), 1);
	virtq_no_notify(&f->queue);
	assert_int_equal(f->used->flags, 0);
	assert_false(virtq_want_notify(&f->queue));
	memcpy(&event, &f->used->ring[SIZE], sizeof(event));
	assert_int_equal(event, 2); /* the next entry */
}

static void no_notification_is_wanted_at_the_start(void **state)
{
	struct fixture *f = *state;
	uint16_t event;

	virtq_start(&f->queue); /* not enabled: stays dead */
	assert_false(f->queue.live);
	start(state, false);
	assert_int_equal(f->used->flags, VRING_USED_F_NO_NOTIFY);
	f->queue.ready = f->queue.live = false;
	start(state, true);
	memcpy(&event, &f->used->ring[SIZE], sizeof(event));
	for (uint16_t added = 1; added <= SIZE; added++) {
		assert_false(vring_need_event(event, added, 0));		     /* all at once */
		assert_false(vring_need_event(event, added, (uint16_t)(added - 1))); /* and one by one */
	}
}

/* bytes */

static struct virtq_bytes three_pieces(struct fixture *f, struct iovec *pieces)
{
	uint8_t *data = f->memory.regions[0].host + DATA_AT;

	memcpy(data, "abcdefghij", 10);
	pieces[0] = (struct iovec){.iov_base = data, .iov_len = 3};
	pieces[1] = (struct iovec){.iov_base = data + 3, .iov_len = 1};
	pieces[2] = (struct iovec){.iov_base = data + 4, .iov_len = 6};
	return (struct virtq_bytes){.iov = pieces, .count = 3, .length = 10};
}

static void bytes_are_taken_across_pieces(void **state)
{
	struct fixture *f = *state;
	struct iovec pieces[3];
	struct virtq_bytes bytes = three_pieces(f, pieces);
	char text[8] = "";

	assert_int_equal(virtq_bytes_take(&bytes, text, 5), 0);
	assert_string_equal(text, "abcde");
	assert_int_equal(bytes.count, 1);
	assert_int_equal(bytes.length, 5);
	assert_int_equal(virtq_bytes_take(&bytes, text, 6), -EMSGSIZE);
	assert_int_equal(virtq_bytes_put(&bytes, "XY", 2), 0);
	assert_int_equal(virtq_bytes_take(&bytes, text, 3), 0);
	assert_memory_equal(text, "hij", 3);
	assert_int_equal(bytes.count, 0);
	assert_int_equal(virtq_bytes_put(&bytes, "Z", 1), -EMSGSIZE);
	assert_memory_equal(f->memory.regions[0].host + DATA_AT, "abcdeXYhij", 10);
}

static void bytes_are_put_across_pieces(void **state)
{
	struct fixture *f = *state;
	struct iovec pieces[3];
	struct virtq_bytes bytes = three_pieces(f, pieces);

	assert_int_equal(virtq_bytes_put(&bytes, "ABCDEF", 6), 0);
	assert_int_equal(bytes.length, 4);
	assert_memory_equal(f->memory.regions[0].host + DATA_AT, "ABCDEFghij", 10);
}

static void bytes_are_cut_at_the_end(void **state)
{
	struct fixture *f = *state;
	struct iovec pieces[3];
	struct virtq_bytes bytes = three_pieces(f, pieces);

	assert_int_equal(*virtq_bytes_cut_last(&bytes), 'j');
	virtq_bytes_truncate(&bytes, 20);
	assert_int_equal(bytes.length, 9);
	virtq_bytes_truncate(&bytes, 4);
	assert_int_equal(bytes.count, 2);
	assert_int_equal(*virtq_bytes_cut_last(&bytes), 'd');
	assert_int_equal(bytes.count, 1);
	virtq_bytes_truncate(&bytes, 0);
	assert_int_equal(bytes.count, 0);
	assert_null(virtq_bytes_cut_last(&bytes));
}

static void a_view_is_consumed_apart(void **state)
{
	struct fixture *f = *state;
	struct iovec pieces[3], others[3];
	struct virtq_bytes bytes = three_pieces(f, pieces);
	struct virtq_bytes view = virtq_bytes_view(&bytes, others);
	char text[4] = "";

	virtq_bytes_skip(&view, 9);
	assert_int_equal(view.length, 1);
	assert_int_equal(virtq_bytes_take(&bytes, text, 3), 0);
	assert_string_equal(text, "abc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_good_queue_is_enabled_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_wrong_size_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_ring_that_is_not_aligned_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_ring_outside_memory_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			the_used_ring_at_the_very_end_of_memory_works, setup, teardown),
		cmocka_unit_test_setup_teardown(a_chain_is_readable_then_writable, setup, teardown),
		cmocka_unit_test_setup_teardown(a_queue_that_is_not_live_is_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(a_loop_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_descriptor_that_is_its_own_next_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(the_longest_chain_is_the_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(an_index_outside_the_table_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_buffer_outside_memory_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_length_of_zero_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(readable_after_writable_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(indirect_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(an_index_far_ahead_is_fatal, setup, teardown),
		cmocka_unit_test_setup_teardown(indices_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(an_unpopped_chain_comes_again, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_pushed_is_seen_after_publish, setup, teardown),
		cmocka_unit_test_setup_teardown(flags_suppress_interrupts_and_notifications, setup, teardown),
		cmocka_unit_test_setup_teardown(the_event_index_suppresses_interrupts, setup, teardown),
		cmocka_unit_test_setup_teardown(the_event_index_asks_for_notifications, setup, teardown),
		cmocka_unit_test_setup_teardown(no_notification_is_wanted_at_the_start, setup, teardown),
		cmocka_unit_test_setup_teardown(bytes_are_taken_across_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(bytes_are_put_across_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(bytes_are_cut_at_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(a_view_is_consumed_apart, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
