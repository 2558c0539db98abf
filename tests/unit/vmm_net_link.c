/* SPDX-License-Identifier: Apache-2.0 */
/* net's link and its backend: down and up, none, gone, replaced, refused; offloads; resets. */
#include "tests/unit/vmm_net_fixture.h"

#include "tests/support/fail_alloc.h"
#include <stdio.h>

/* The lowest free fd: the same before and after, when none leaks. */
static int next_fd(void)
{
	int fd = dup(0);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

static void assert_peer_closed(int peer)
{
	uint8_t byte;

	assert_int_equal(recv(peer, &byte, 1, 0), 0);
}

static void offer_buffers(struct fixture *f, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
}

/* link */

static void a_link_that_is_down_passes_nothing(void **state)
{
	struct fixture *f = *state;
	uint32_t generation = generation_of(f);

	offer_buffers(f, 4);
	assert_int_equal(net_set_link(f->device, false), 0);
	assert_int_equal(status_of(f), 0);
	assert_int_not_equal(generation_of(f), generation);
	assert_int_equal(f->driver.interrupts, 1);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS), VIRTIO_MMIO_INT_CONFIG);
	assert_false(backend.carrier);

	send_packet(f, 60, 1);
	peer_expect_nothing(f);
	assert_int_equal(f->driver.queues[TX].used->idx, 1);
	peer_send(f, 60, 2);
	fake_driver_assert_idle(&f->driver);
	guest_expect_nothing(f);
}

static void what_waited_is_lost_when_it_comes_up(void **state)
{
	struct fixture *f = *state;

	offer_buffers(f, 4);
	assert_int_equal(net_set_link(f->device, false), 0);
	peer_send(f, 60, 1);
	peer_send(f, 2000, 2);
	fake_driver_run(&f->driver);
	assert_int_equal(net_set_link(f->device, true), 0);
	assert_int_equal(status_of(f), VIRTIO_NET_S_LINK_UP);
	assert_true(backend.carrier);
	fake_driver_run(&f->driver);
	guest_expect_nothing(f);
	peer_send(f, 60, 3);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 3, 1);
	send_packet(f, 60, 4);
	peer_expect(f, 60, 4);
}

static void a_link_set_as_it_is_changes_nothing(void **state)
{
	struct fixture *f = *state;
	uint32_t generation = generation_of(f);

	peer_send(f, 60, 1);
	assert_int_equal(net_set_link(f->device, true), 0);
	assert_int_equal(generation_of(f), generation);
	assert_int_equal(f->driver.interrupts, 0);
	offer_buffers(f, 1);
	guest_expect(f, 60, 1, 1);
}

static void a_held_packet_goes_with_the_link(void **state)
{
	struct fixture *f = *state;

	offer_buffers(f, 1);
	peer_send(f, 3 * BUFFER, 1);
	fake_driver_run(&f->driver);
	assert_int_equal(net_set_link(f->device, false), 0);
	assert_int_equal(net_set_link(f->device, true), 0);
	offer_buffers(f, 8);
	guest_expect_nothing(f);
	peer_send(f, 60, 2);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 2, 1);
}

/* backend */

static void without_a_backend_the_link_is_down(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(status_of(f), 0);
	assert_int_equal(net_set_link(f->device, true), -ENOTCONN);
	assert_int_equal(net_set_link(f->device, false), 0);
	send_packet(f, 60, 1);
	assert_int_equal(f->driver.queues[TX].used->idx, 1);
	offer_buffers(f, 1);
	fake_driver_assert_idle(&f->driver);
	assert_int_equal(f->driver.interrupts, 1); /* for the packet's */
}

static void a_backend_comes_later(void **state)
{
	struct fixture *f = *state;

	offer_buffers(f, 4);
	assert_int_equal(net_attach(f->device, make_backend(&f->peer)), 0);
	assert_int_equal(status_of(f), 0);
	assert_false(backend.carrier);
	assert_int_equal(backend.offloads, EVERY_OFFLOAD);
	assert_int_equal(net_set_link(f->device, true), 0);
	assert_true(backend.carrier);
	fake_driver_run(&f->driver);
	send_packet(f, 60, 1);
	peer_expect(f, 60, 1);
	peer_send(f, 60, 2);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 2, 1);
}

static void a_backend_takes_the_place_of_another(void **state)
{
	struct fixture *f = *state;
	int old = f->peer, fd = next_fd();
	uint32_t generation = generation_of(f);

	offer_buffers(f, 4);
	assert_int_equal(net_attach(f->device, make_backend(&f->peer)), 0);
	assert_peer_closed(old);
	close(old);
	assert_int_equal(status_of(f), VIRTIO_NET_S_LINK_UP);
	assert_int_equal(generation_of(f), generation);
	send_packet(f, 60, 1);
	peer_expect(f, 60, 1);
	peer_send(f, 60, 2);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 2, 1);
	/* the old pair's numbers are free again, the new pair has two others */
	assert_true(next_fd() < fd);
}

static void a_refused_backend_changes_nothing(void **state)
{
	struct fixture *f = *state;
	int peer, fd = next_fd();

	backend.refusal = -EINVAL;
	assert_int_equal(net_attach(f->device, make_backend(&peer)), -EINVAL);
	backend.refusal = 0;
	assert_peer_closed(peer);
	close(peer);
	assert_int_equal(next_fd(), fd);
	offer_buffers(f, 1);
	peer_send(f, 60, 1);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 1, 1);
	send_packet(f, 60, 2);
	peer_expect(f, 60, 2);
}

/* epoll does not take a regular file. */
static void one_that_cannot_be_watched_changes_nothing(void **state)
{
	struct fixture *f = *state;
	int fd = next_fd();
	FILE *file = tmpfile();

	assert_int_equal(net_attach(f->device, dup(fileno(file))), -EPERM);
	fclose(file);
	assert_int_equal(next_fd(), fd);
	send_packet(f, 60, 1);
	peer_expect(f, 60, 1);
}

static void a_backend_that_goes_takes_the_link_down(void **state)
{
	struct fixture *f = *state;

	offer_buffers(f, 4);
	fd_close(&f->peer);
	fake_driver_run(&f->driver);
	assert_int_equal(status_of(f), 0);
	assert_int_equal(f->driver.interrupts, 1);
	fake_driver_assert_idle(&f->driver);
	assert_int_equal(net_set_link(f->device, true), -ENOTCONN);
	send_packet(f, 60, 1);
	assert_int_equal(f->driver.queues[TX].used->idx, 1);
	assert_int_equal(net_attach(f->device, make_backend(&f->peer)), 0);
	assert_int_equal(net_set_link(f->device, true), 0);
	peer_send(f, 60, 2);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 2, 1);
}

/* It is noticed by what is sent, too, and without buffers. */
static void its_end_shows_when_something_is_sent(void **state)
{
	struct fixture *f = *state;

	backend.send_error = -ENODEV;
	offer_packet(f, &(struct virtio_net_hdr_v1){0}, 60, 1);
	offer_packet(f, &(struct virtio_net_hdr_v1){0}, 60, 2);
	fake_driver_kick(&f->driver, TX);
	assert_int_equal(f->driver.queues[TX].used->idx, 2);
	assert_int_equal(status_of(f), 0);
	assert_peer_closed(f->peer);
}

static void a_blocked_queue_goes_on_with_the_next_backend(void **state)
{
	struct fixture *f = *state;
	int old = f->peer;

	backend.send_error = -EAGAIN;
	send_packet(f, 60, 1);
	assert_int_equal(f->driver.queues[TX].used->idx, 0);
	backend.send_error = 0;
	assert_int_equal(net_attach(f->device, make_backend(&f->peer)), 0);
	close(old);
	fake_driver_run(&f->driver);
	peer_expect(f, 60, 1);
}

static void a_blocked_queue_is_emptied_by_a_link_that_goes_down(void **state)
{
	struct fixture *f = *state;

	backend.send_error = -EAGAIN;
	send_packet(f, 60, 1);
	assert_int_equal(f->driver.queues[TX].used->idx, 0);
	assert_int_equal(net_set_link(f->device, false), 0);
	fake_driver_run(&f->driver);
	assert_int_equal(f->driver.queues[TX].used->idx, 1);
}

/* offloads */

static void offloads_are_what_the_driver_took(void **state)
{
	struct fixture *f = *state;
	static const struct {
		uint64_t unwanted;
		unsigned offloads;
	} rows[] = {
		{0, EVERY_OFFLOAD},
		{VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_TSO4), EVERY_OFFLOAD & ~NET_OFFLOAD_TSO4},
		{VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_TSO6), EVERY_OFFLOAD & ~NET_OFFLOAD_TSO6},
		{VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_ECN), EVERY_OFFLOAD & ~NET_OFFLOAD_ECN},
		/* those that need another one which is not there */
		{VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_TSO4) | VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_TSO6),
			NET_OFFLOAD_CSUM},
		{VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_CSUM), 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		start_without(f, rows[i].unwanted);
		assert_int_equal(backend.offloads, rows[i].offloads);
		fake_driver_negotiate(&f->driver, fake_driver_features(&f->driver));
		fake_driver_run(&f->driver);
		assert_int_equal(backend.offloads, 0);
	}
}

/* reset */

static void a_reset_forgets_buffers_and_packets(void **state)
{
	struct fixture *f = *state;

	offer_buffers(f, 2);
	peer_send(f, 3 * BUFFER, 1); /* is held */
	peer_send(f, 60, 2);
	fake_driver_run(&f->driver);
	start_without(f, 0);
	offer_buffers(f, 8);
	guest_expect_nothing(f);
	peer_send(f, 60, 3);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 3, 1);
	assert_int_equal(f->driver.faults, 0);
}

/* What came before the first driver was up is for it. */
static void packets_wait_for_a_driver(void **state)
{
	struct fixture *f = *state;

	peer_send(f, 60, 1);
	fake_driver_assert_idle(&f->driver);
	start_without(f, 0);
	offer_buffers(f, 2);
	guest_expect(f, 60, 1, 1);
}

static int setup_without_driver(void **state)
{
	return setup_with(state, true);
}

/* create */

static void each_allocation_of_create_may_fail(void **state)
{
	struct loop *loop = loop_create();
	int fd = next_fd();

	(void)state;
	backend = (struct backend){0};
	for (unsigned n = 0; n < 8; n++) {
		struct net_config config = {.backend = &backend_ops, .loop = loop};
		struct virtio_device *device = NULL;
		int peer, r;

		config.fd = make_backend(&peer);
		fail_alloc(n);
		r = net_create(&config, &device);
		if (!fail_alloc_end()) {
			assert_int_equal(r, 0);
			assert_true(n >= 3);
			virtio_device_destroy(device);
			close(peer);
			break;
		}
		assert_int_equal(r, -ENOMEM);
		assert_peer_closed(peer);
		close(peer);
		assert_int_equal(next_fd(), fd);
	}
	assert_int_equal(next_fd(), fd);
	loop_destroy(loop);
}

static void a_refused_backend_is_no_device(void **state)
{
	struct loop *loop = loop_create();
	struct net_config config = {.backend = &backend_ops, .loop = loop};
	struct virtio_device *device = NULL;
	int peer;

	(void)state;
	backend = (struct backend){.refusal = -EOPNOTSUPP};
	config.fd = make_backend(&peer);
	assert_int_equal(net_create(&config, &device), -EOPNOTSUPP);
	assert_null(device);
	assert_peer_closed(peer);
	close(peer);
	loop_destroy(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_link_that_is_down_passes_nothing),
		CASE(what_waited_is_lost_when_it_comes_up),
		CASE(a_link_set_as_it_is_changes_nothing),
		CASE(a_held_packet_goes_with_the_link),
		CASE_WITHOUT_BACKEND(without_a_backend_the_link_is_down),
		CASE_WITHOUT_BACKEND(a_backend_comes_later),
		CASE(a_backend_takes_the_place_of_another),
		CASE(a_refused_backend_changes_nothing),
		CASE(one_that_cannot_be_watched_changes_nothing),
		CASE(a_backend_that_goes_takes_the_link_down),
		CASE(its_end_shows_when_something_is_sent),
		CASE(a_blocked_queue_goes_on_with_the_next_backend),
		CASE(a_blocked_queue_is_emptied_by_a_link_that_goes_down),
		CASE(offloads_are_what_the_driver_took),
		CASE(a_reset_forgets_buffers_and_packets),
		cmocka_unit_test_setup_teardown(packets_wait_for_a_driver, setup_without_driver, teardown),
		cmocka_unit_test(each_allocation_of_create_may_fail),
		cmocka_unit_test(a_refused_backend_is_no_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
