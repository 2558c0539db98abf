/* SPDX-License-Identifier: Apache-2.0 */
/* A transport at work: notifications, interrupts, resets, two threads. */
#include "tests/unit/vmm_mmio_fixture.h"

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
	/* And finds the queues empty that are the next driver's. */
	assert_false(f->device->live_at_reset);
	assert_true(f->device->base.running && f->device->base.queues[1].live);
	virtio_device_leave(&f->device->base);
	fake_driver_run(&f->driver);
	assert_int_equal(f->device->resets, 1);
	assert_int_equal(f->device->popped, 1);
}

/* pause */

static void a_paused_device_serves_nothing_until_it_resumes(void **state)
{
	struct fixture *f = *state;

	fake_driver_start(&f->driver, MINIMUM);
	fake_driver_run(&f->driver);
	virtio_mmio_pause(f->driver.mmio);
	f->device->notified[0] = 0;
	offer_one(f, 0);
	fake_driver_kick(&f->driver, 0);
	virtio_device_recall(&f->device->base, 0);
	fake_driver_run(&f->driver);
	assert_int_equal(f->device->notified[0], 0);
	virtio_mmio_resume(f->driver.mmio);
	fake_driver_run(&f->driver); /* without another notification */
	assert_int_equal(f->device->popped, 1);
	assert_int_equal(f->driver.interrupts, 1);
}

/* Each chain makes the next one available, as a disk does that reads over its own ring. */
static bool feeding_notify(struct virtio_device *device, unsigned queue)
{
	bool more = counter_notify(device, queue);

	if (queue == 0)
		device->queues[queue].avail->idx++;
	return more || queue == 0;
}

static const struct virtio_device_ops feeding_ops = {.notify = feeding_notify, .destroy = counter_destroy};

static void a_device_that_feeds_itself_stands_while_paused(void **state)
{
	struct fixture *f = *state;

	f->device->base.ops = &feeding_ops;
	fake_driver_start(&f->driver, MINIMUM);
	offer_one(f, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_true(f->device->notified[0] >= 50);
	virtio_mmio_pause(f->driver.mmio);
	f->device->notified[0] = 0;
	fake_driver_run(&f->driver);
	fake_driver_assert_idle(&f->driver);
	assert_int_equal(f->device->notified[0], 0);
	virtio_mmio_drain(f->driver.mmio); /* comes to an end */
	assert_int_equal(f->device->notified[0], VIRTQ_SIZE_MAX);
	virtio_mmio_resume(f->driver.mmio);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_true(f->device->notified[0] >= VIRTQ_SIZE_MAX + 50);
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
			a_paused_device_serves_nothing_until_it_resumes, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_device_that_feeds_itself_stands_while_paused, setup, teardown),
		cmocka_unit_test_setup_teardown(registers_and_loop_run_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(creation_that_fails_destroys_the_device, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
