/* SPDX-License-Identifier: Apache-2.0 */
/* net with a driver that keeps the rules: packets both ways, buffers that merge, none, too few, too short. */
#include "tests/unit/vmm_net_fixture.h"

static void what_it_offers(void **state)
{
	struct fixture *f = *state;
	static const unsigned bits[] = {0, 1, 5, 7, 8, 9, 11, 12, 13, 15, 16};
	uint64_t wanted = VIRTIO_FEATURES_COMMON;
	uint8_t mac[ETH_ALEN];

	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		wanted |= VIRTIO_FEATURE(bits[i]);
	assert_true(fake_driver_features(&f->driver) == wanted);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_DEVICE_ID), 1);
	for (unsigned i = 0; i < sizeof(mac); i++)
		virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG + i, &mac[i], 1);
	assert_memory_equal(mac, test_mac, sizeof(mac));
	assert_int_equal(status_of(f), VIRTIO_NET_S_LINK_UP);
	assert_int_equal(fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG + 8), 0);
	assert_true(backend.carrier);
}

/* from the guest */

static void a_packet_goes_out(void **state)
{
	struct fixture *f = *state;
	uint16_t head;
	uint32_t written;

	send_packet(f, 60, 1);
	peer_expect(f, 60, 1);
	assert_true(fake_driver_used(&f->driver, TX, &head, &written));
	assert_int_equal(written, 0);
	assert_int_equal(net_counts(f->device).sent, 1);
	send_packet(f, ETH_HLEN, 2);
	peer_expect(f, ETH_HLEN, 2);
	send_packet(f, NET_PACKET_MAX, 3);
	peer_expect(f, NET_PACKET_MAX, 3);
	assert_int_equal(net_counts(f->device).lost_sent, 0);
}

/* The driver may cut header and packet as it likes (2.7.4). */
static void a_packet_in_pieces_goes_out(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[NET_QUEUE_SIZE];
	static const size_t cuts[] = {1, NET_HEADER, NET_HEADER + 1, 40};

	for (unsigned i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		gpa_t address = fake_driver_alloc(&f->driver, 200);

		fill(fake_driver_at(&f->driver, address + NET_HEADER, 100), 100, i);
		buffers[0] = (struct fake_buffer){.address = address, .length = (uint32_t)cuts[i]};
		buffers[1] = (struct fake_buffer){
			.address = address + cuts[i], .length = (uint32_t)(NET_HEADER + 100 - cuts[i])};
		fake_driver_offer(&f->driver, TX, fake_driver_chain(&f->driver, TX, buffers, 2));
		fake_driver_kick(&f->driver, TX);
		peer_expect(f, 100, i);
	}
	start_without(f, 0);
	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		buffers[i] = (struct fake_buffer){.address = fake_driver_alloc(&f->driver, 1), .length = 1};
	for (unsigned i = 0; i < NET_QUEUE_SIZE - NET_HEADER; i++)
		fill(fake_driver_at(&f->driver, buffers[NET_HEADER + i].address, 1), 1, 0);
	fake_driver_offer(&f->driver, TX, fake_driver_chain(&f->driver, TX, buffers, NET_QUEUE_SIZE));
	fake_driver_kick(&f->driver, TX);
	assert_int_equal(net_counts(f->device).sent, 5);
}

static void many_packets_are_one_interrupt(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		offer_packet(f, &(struct virtio_net_hdr_v1){0}, 60, i);
	fake_driver_kick(&f->driver, TX);
	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		peer_expect(f, 60, i);
	assert_int_equal(f->driver.interrupts, 1);
	assert_int_equal(f->driver.queues[TX].used->idx, NET_QUEUE_SIZE);
}

/* A round is bounded by bytes too: none is left behind. */
static void long_packets_take_rounds(void **state)
{
	struct fixture *f = *state;
	enum { PACKETS = 2 * NET_ROUND_BYTES / 60000 };

	backend.send_error = -EIO; /* a socket does not hold that many */
	for (unsigned i = 0; i < PACKETS; i++)
		offer_packet(f, &(struct virtio_net_hdr_v1){0}, 60000, i);
	fake_driver_kick(&f->driver, TX);
	assert_int_equal(f->driver.queues[TX].used->idx, PACKETS);
	assert_int_equal(net_counts(f->device).lost_sent, PACKETS);
}

static void a_full_backend_holds_the_queue_up(void **state)
{
	struct fixture *f = *state;
	unsigned sent = 0, came = 0;

	while (f->driver.queues[TX].used->idx == sent && sent < NET_QUEUE_SIZE)
		send_packet(f, 8000, sent++);
	assert_true(sent < NET_QUEUE_SIZE);
	assert_int_equal(f->driver.queues[TX].used->idx, sent - 1);
	fake_driver_assert_idle(&f->driver);
	for (; came < sent; came++) {
		peer_expect(f, 8000, came);
		fake_driver_run(&f->driver);
	}
	peer_expect_nothing(f);
	assert_int_equal(f->driver.queues[TX].used->idx, sent);
	assert_int_equal(net_counts(f->device).lost_sent, 0);
	send_packet(f, 60, 7);
	peer_expect(f, 60, 7);
}

/* A tap that was full when it was asked, and wakes nobody when it is not any more. */
static void room_that_came_unseen_is_used(void **state)
{
	struct fixture *f = *state;

	backend.send_error = -EAGAIN;
	send_packet(f, 60, 1);
	assert_int_equal(f->driver.queues[TX].used->idx, 0);
	backend.send_error = 0;
	fake_driver_run(&f->driver);
	assert_int_equal(f->driver.queues[TX].used->idx, 1);
	peer_expect(f, 60, 1);
}

/* to the guest */

static void a_packet_comes_in(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 64; i++)
		offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	assert_int_equal(f->driver.interrupts, 0);
	peer_send(f, 60, 1);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 1, 1);
	assert_int_equal(f->driver.interrupts, 1);
	assert_int_equal(net_counts(f->device).received, 1);
	guest_expect_nothing(f);
}

static void a_long_packet_fills_several_buffers(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, BUFFER - NET_HEADER, 1);	  /* fills one */
	peer_send(f, BUFFER - NET_HEADER + 1, 2); /* needs one more */
	peer_send(f, 2 * BUFFER - NET_HEADER, 3);
	peer_send(f, NET_PACKET_MAX, 4);
	fake_driver_run(&f->driver);
	guest_expect(f, BUFFER - NET_HEADER, 1, 1);
	guest_expect(f, BUFFER - NET_HEADER + 1, 2, 2);
	guest_expect(f, 2 * BUFFER - NET_HEADER, 3, 2);
	guest_expect(f, NET_PACKET_MAX, 4, (FRAME_MAX + BUFFER - 1) / BUFFER);
	assert_int_equal(f->driver.interrupts, 1);
}

static void packets_wait_for_buffers(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 10; i++)
		peer_send(f, 60 + i, i);
	fake_driver_assert_idle(&f->driver);
	for (unsigned i = 0; i < 10; i++) {
		offer_buffer(f, BUFFER);
		assert_true(fake_driver_must_kick(&f->driver, RX));
		fake_driver_kick(&f->driver, RX);
		guest_expect(f, 60 + i, i, 1);
	}
	assert_int_equal(net_counts(f->device).lost_received, 0);
	fake_driver_assert_idle(&f->driver);
}

/* A packet longer than the buffers there are: whole, in its turn, when there are enough. */
static void a_packet_is_held_until_it_fits(void **state)
{
	struct fixture *f = *state;

	offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, 3 * BUFFER, 1);
	peer_send(f, 60, 2);
	fake_driver_assert_idle(&f->driver);
	guest_expect_nothing(f);
	offer_buffer(f, BUFFER);
	assert_true(fake_driver_must_kick(&f->driver, RX));
	fake_driver_kick(&f->driver, RX);
	guest_expect_nothing(f);
	fake_driver_assert_idle(&f->driver);
	for (unsigned i = 0; i < 3; i++)
		offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	guest_expect(f, 3 * BUFFER, 1, 4);
	guest_expect(f, 60, 2, 1);
}

/* The driver is not made to notify while there are buffers enough. */
static void notifications_are_asked_for_in_need_only(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 100; i++)
		offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	for (unsigned i = 0; i < 20; i++) {
		peer_send(f, 60, i);
		fake_driver_run(&f->driver);
		guest_expect(f, 60, i, 1);
		offer_buffer(f, BUFFER);
		assert_false(fake_driver_must_kick(&f->driver, RX));
	}
	fake_driver_assert_idle(&f->driver);
}

static void many_packets_take_rounds(void **state)
{
	struct fixture *f = *state;
	unsigned sent = 0, came = 0;

	while (came < 3 * NET_ROUND_PACKETS) {
		uint8_t packet[NET_PACKET_MAX];
		struct virtio_net_hdr_v1 header;

		for (unsigned i = 0; i < 40; i++, sent++)
			peer_send(f, 60, sent);
		while (f->driver.queues[RX].avail->idx - f->driver.queues[RX].seen_used < NET_QUEUE_SIZE)
			offer_buffer(f, 128);
		fake_driver_kick(&f->driver, RX);
		while (guest_take(f, packet, &header) == 60)
			assert_filled(packet, 60, came++);
	}
	assert_int_equal(came, sent);
	assert_int_equal(net_counts(f->device).received, sent);
}

static void a_packet_longer_than_all_buffers_is_lost(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		offer_buffer(f, 128);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, NET_QUEUE_SIZE * 128, 1);
	peer_send(f, NET_QUEUE_SIZE * 128 - NET_HEADER, 2);
	fake_driver_run(&f->driver);
	guest_expect(f, NET_QUEUE_SIZE * 128 - NET_HEADER, 2, NET_QUEUE_SIZE);
	assert_int_equal(net_counts(f->device).lost_received, 1);
	fake_driver_assert_idle(&f->driver);
}

static void without_merging_a_packet_has_one_buffer(void **state)
{
	struct fixture *f = *state;

	start_without(f, VIRTIO_FEATURE(VIRTIO_NET_F_MRG_RXBUF));
	offer_buffer(f, BUFFER);
	offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, 60, 1);
	peer_send(f, BUFFER - NET_HEADER + 1, 2); /* does not fit, and leaves the buffer to the next */
	peer_send(f, BUFFER - NET_HEADER, 3);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 1, 1);
	guest_expect(f, BUFFER - NET_HEADER, 3, 1);
	assert_int_equal(net_counts(f->device).lost_received, 1);
}

static void flags_are_for_drivers_that_know_them(void **state)
{
	struct fixture *f = *state;
	static uint8_t packet[NET_PACKET_MAX];
	struct virtio_net_hdr_v1 header;

	offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, 60, 1);
	fake_driver_run(&f->driver);
	assert_int_equal(guest_take(f, packet, &header), 60);
	assert_int_equal(header.flags, VIRTIO_NET_HDR_F_DATA_VALID);
	start_without(f, VIRTIO_FEATURE(VIRTIO_NET_F_GUEST_CSUM));
	offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, 60, 1);
	fake_driver_run(&f->driver);
	assert_int_equal(guest_take(f, packet, &header), 60);
	assert_int_equal(header.flags, 0);
}

/* The ring's own flags, instead of the event index, tell who wants to be told. */
static void it_works_without_event_index(void **state)
{
	struct fixture *f = *state;

	start_without(f, VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX));
	for (unsigned i = 0; i < 3; i++) {
		send_packet(f, 60, i);
		peer_expect(f, 60, i);
		peer_send(f, 70, i);
		fake_driver_run(&f->driver);
		offer_buffer(f, BUFFER);
		assert_int_equal(f->driver.queues[RX].used->flags, 0);
		fake_driver_kick(&f->driver, RX);
		guest_expect(f, 70, i, 1);
	}
}

/* Another host's device: the guest keeps its address and its buffers, and hears of the link as it is there.
 */
static void a_restored_device_keeps_address_and_buffers(void **state)
{
	struct fixture *f = *state;
	struct net_config config = {
		.backend = &backend_ops, .loop = f->driver.loop, .mac = {2, 9, 9, 9, 9, 9}};
	uint32_t generation = generation_of(f);
	uint8_t mac[ETH_ALEN];
	unsigned offloads = backend.offloads;

	for (unsigned i = 0; i < 4; i++)
		offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, 100, 1); /* so that the device takes buffers */
	fake_driver_run(&f->driver);
	guest_expect(f, 100, 1, 1);
	fd_close(&f->peer);
	fake_driver_run(&f->driver);
	config.fd = make_backend(&f->peer);
	assert_int_equal(net_create(&config, &f->device), 0);
	assert_int_equal(fake_driver_move(&f->driver, f->device), 0);
	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG, mac, sizeof(mac));
	assert_memory_equal(mac, test_mac, sizeof(mac));
	assert_int_equal(status_of(f), VIRTIO_NET_S_LINK_UP);
	assert_int_not_equal(generation_of(f), generation);
	virtio_mmio_wake(f->driver.mmio);
	fake_driver_run(&f->driver);
	assert_int_equal(backend.offloads, offloads);
	assert_true(fake_driver_read(&f->driver, VIRTIO_MMIO_INTERRUPT_STATUS) & VIRTIO_MMIO_INT_CONFIG);
	for (unsigned i = 2; i < 5; i++) {
		peer_send(f, 200, i);
		fake_driver_run(&f->driver);
		guest_expect(f, 200, i, 1);
	}
	send_packet(f, 300, 9);
	peer_expect(f, 300, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_it_offers),
		CASE(a_packet_goes_out),
		CASE(a_packet_in_pieces_goes_out),
		CASE(many_packets_are_one_interrupt),
		CASE(long_packets_take_rounds),
		CASE(a_full_backend_holds_the_queue_up),
		CASE(room_that_came_unseen_is_used),
		CASE(a_packet_comes_in),
		CASE(a_long_packet_fills_several_buffers),
		CASE(packets_wait_for_buffers),
		CASE(a_restored_device_keeps_address_and_buffers),
		CASE(a_packet_is_held_until_it_fits),
		CASE(notifications_are_asked_for_in_need_only),
		CASE(many_packets_take_rounds),
		CASE(a_packet_longer_than_all_buffers_is_lost),
		CASE(without_merging_a_packet_has_one_buffer),
		CASE(flags_are_for_drivers_that_know_them),
		CASE(it_works_without_event_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
