/* SPDX-License-Identifier: Apache-2.0 */
/* net with a driver that breaks the rules: headers, lengths, chains and buffers that cannot be. */
#include "tests/unit/vmm_net_fixture.h"

enum { PACKET = 200 };

struct header_case {
	const char *name;
	struct virtio_net_hdr_v1 header;
	uint32_t length;
	uint64_t unwanted; /* features that the driver does without */
	bool taken;
};

#define CSUM VIRTIO_NET_HDR_F_NEEDS_CSUM
#define TCP4 VIRTIO_NET_HDR_GSO_TCPV4
#define TCP6 VIRTIO_NET_HDR_GSO_TCPV6
#define ECN VIRTIO_NET_HDR_GSO_ECN
#define TSO(...)                                                                                             \
	{                                                                                                    \
		.flags = CSUM, .csum_start = 34, .csum_offset = 16, __VA_ARGS__                              \
	}

/* The refusal stands beside the success. */
static const struct header_case header_cases[] = {
	{"plain", {0}, PACKET, 0, true},
	{"the shortest packet", {0}, ETH_HLEN, 0, true},
	{"shorter", {0}, ETH_HLEN - 1, 0, false},
	{"empty", {0}, 0, 0, false},
	{"the longest packet", {0}, NET_PACKET_MAX, 0, true},
	{"longer", {0}, NET_PACKET_MAX + 1, 0, false},
	{"checksum at the end", {.flags = CSUM, .csum_start = PACKET - 8, .csum_offset = 6}, PACKET, 0, true},
	{"checksum over the end", {.flags = CSUM, .csum_start = PACKET - 8, .csum_offset = 7}, PACKET, 0,
		false},
	{"checksum far outside", {.flags = CSUM, .csum_start = 65535, .csum_offset = 65535}, PACKET, 0,
		false},
	{"checksum not negotiated", {.flags = CSUM, .csum_start = 34, .csum_offset = 16}, PACKET,
		VIRTIO_FEATURE(VIRTIO_NET_F_CSUM), false},
	{"TCP over IPv4", TSO(.gso_type = TCP4, .gso_size = 100, .hdr_len = 54), PACKET, 0, true},
	{"without a checksum", {.gso_type = TCP4, .gso_size = 100, .hdr_len = 54}, PACKET, 0, false},
	{"not negotiated", TSO(.gso_type = TCP4, .gso_size = 100, .hdr_len = 54), PACKET,
		VIRTIO_FEATURE(VIRTIO_NET_F_HOST_TSO4), false},
	{"TCP over IPv6", TSO(.gso_type = TCP6, .gso_size = 100, .hdr_len = 74), PACKET, 0, true},
	{"IPv6 not negotiated", TSO(.gso_type = TCP6, .gso_size = 100, .hdr_len = 74), PACKET,
		VIRTIO_FEATURE(VIRTIO_NET_F_HOST_TSO6), false},
	{"with ECN", TSO(.gso_type = TCP4 | ECN, .gso_size = 100, .hdr_len = 54), PACKET, 0, true},
	{"ECN not negotiated", TSO(.gso_type = TCP4 | ECN, .gso_size = 100, .hdr_len = 54), PACKET,
		VIRTIO_FEATURE(VIRTIO_NET_F_HOST_ECN), false},
	{"ECN of nothing", TSO(.gso_type = ECN, .gso_size = 100, .hdr_len = 54), PACKET, 0, false},
	{"UDP fragmentation", TSO(.gso_type = VIRTIO_NET_HDR_GSO_UDP, .gso_size = 100), PACKET, 0, false},
	{"a type that is none", TSO(.gso_type = 2, .gso_size = 100), PACKET, 0, false},
	{"every bit of the type", TSO(.gso_type = 0xff, .gso_size = 100), PACKET, 0, false},
	{"segments of nothing", TSO(.gso_type = TCP4, .gso_size = 0), PACKET, 0, false},
	{"segments too small", TSO(.gso_type = TCP4, .gso_size = NET_SEGMENT_MIN - 1), PACKET, 0, false},
	{"the smallest segments", TSO(.gso_type = TCP4, .gso_size = NET_SEGMENT_MIN), PACKET, 0, true},
	{"headers as long as the packet", TSO(.gso_type = TCP4, .gso_size = 100, .hdr_len = PACKET), PACKET,
		0, true},
	{"headers longer", TSO(.gso_type = TCP4, .gso_size = 100, .hdr_len = PACKET + 1), PACKET, 0, false},
};

static void headers_are_checked(void **state)
{
	struct fixture *f = *state;
	static uint8_t frame[FRAME_MAX];

	for (size_t i = 0; i < sizeof(header_cases) / sizeof(header_cases[0]); i++) {
		const struct header_case *row = &header_cases[i];
		struct net_counts before = net_counts(f->device), after;
		ssize_t got;

		start_without(f, row->unwanted);
		offer_packet(f, &row->header, row->length, 1);
		fake_driver_kick(&f->driver, TX);
		got = peer_take(f, frame);
		if (got != (row->taken ? (ssize_t)(NET_HEADER + row->length) : -1))
			fail_msg("%s: %zd bytes came", row->name, got);
		if (row->taken)
			assert_memory_equal(frame, &row->header, NET_HEADER);
		after = net_counts(f->device);
		assert_int_equal(after.sent - before.sent, row->taken);
		assert_int_equal(after.lost_sent - before.lost_sent, !row->taken);
		/* the device goes on: the chain came back, and a good packet passes */
		assert_int_equal(f->driver.queues[TX].used->idx, 1);
		send_packet(f, 60, 2);
		peer_expect(f, 60, 2);
	}
}

/* Bits and fields without a meaning here never reach the host's kernel. */
static void what_means_nothing_is_cleared(void **state)
{
	struct fixture *f = *state;
	struct virtio_net_hdr_v1 header = {.flags = 0xfe,
		.hdr_len = 7,
		.gso_size = 8,
		.csum_start = 9,
		.csum_offset = 10,
		.num_buffers = 11};
	struct virtio_net_hdr_v1 zero = {0};
	static uint8_t frame[FRAME_MAX];

	offer_packet(f, &header, 60, 1);
	fake_driver_kick(&f->driver, TX);
	assert_int_equal(peer_take(f, frame), NET_HEADER + 60);
	assert_memory_equal(frame, &zero, NET_HEADER);
}

/* The chain is refused, nothing goes out or comes in, and a reset helps. */
static void assert_refused(
	struct fixture *f, unsigned queue, const struct fake_buffer *buffers, unsigned count)
{
	fake_driver_offer(&f->driver, queue, fake_driver_chain(&f->driver, queue, buffers, count));
	fake_driver_kick(&f->driver, queue);
	if (queue == RX) {
		peer_send(f, 60, 1);
		fake_driver_run(&f->driver);
	}
	assert_int_equal(fake_driver_status(&f->driver), NEEDS_RESET);
	assert_int_equal(f->driver.queues[queue].used->idx, 0);
	assert_int_equal(f->driver.faults, 0);
	fake_driver_assert_idle(&f->driver);
	start_without(f, 0);
	send_packet(f, 60, 2);
	peer_expect(f, 60, 2);
	peer_expect_nothing(f);
	offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, 60, 3);
	fake_driver_run(&f->driver);
	guest_expect(f, 60, 3, 1);
	start_without(f, 0);
}

static void wrong_chains_need_a_reset(void **state)
{
	struct fixture *f = *state;
	gpa_t data = fake_driver_alloc(&f->driver, 4096);
	struct fake_buffer header_only = {.address = data, .length = NET_HEADER - 1};
	struct fake_buffer both[2] = {
		{.address = data, .length = 100}, {.address = data + 100, .length = 100, .writable = true}};
	struct fake_buffer small = {.address = data, .length = NET_HEADER - 1, .writable = true};
	struct fake_buffer outside = {.address = FAKE_MEMORY - 50, .length = 51};

	assert_refused(f, TX, &header_only, 1);
	assert_refused(f, TX, both, 2);
	assert_refused(f, TX, &both[1], 1);
	assert_refused(f, TX, &outside, 1);
	assert_refused(f, RX, &both[0], 1);
	assert_refused(f, RX, both, 2);
	assert_refused(f, RX, &small, 1);
	outside.writable = true;
	assert_refused(f, RX, &outside, 1);
}

static void an_index_far_ahead_ends_the_vm(void **state)
{
	struct fixture *f = *state;

	f->driver.queues[TX].avail->idx = NET_QUEUE_SIZE + 1;
	fake_driver_kick(&f->driver, TX);
	assert_int_equal(f->driver.faults, 1);
	assert_string_equal(
		f->driver.reason, "net: queue 1: available index is further ahead than the queue is long");
}

static void an_index_far_ahead_ends_the_vm_when_receiving(void **state)
{
	struct fixture *f = *state;

	f->driver.queues[RX].avail->idx = NET_QUEUE_SIZE + 1;
	peer_send(f, 60, 1);
	fake_driver_run(&f->driver);
	assert_int_equal(f->driver.faults, 1);
	assert_string_equal(
		f->driver.reason, "net: queue 0: available index is further ahead than the queue is long");
	fake_driver_assert_idle(&f->driver);
}

/* Buffers of one byte a descriptor: the header is spread over twelve of them. */
static void buffers_in_single_bytes_are_filled(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer pieces[NET_QUEUE_SIZE];
	uint8_t packet[NET_QUEUE_SIZE - NET_HEADER];
	gpa_t data = fake_driver_alloc(&f->driver, (size_t)2 * NET_QUEUE_SIZE);

	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		pieces[i] = (struct fake_buffer){
			.address = data + 2 * (NET_QUEUE_SIZE - 1 - i), .length = 1, .writable = true};
	fake_driver_offer(&f->driver, RX, fake_driver_chain(&f->driver, RX, pieces, NET_QUEUE_SIZE));
	fake_driver_kick(&f->driver, RX);
	peer_send(f, sizeof(packet), 5);
	fake_driver_run(&f->driver);
	assert_int_equal(f->driver.queues[RX].used->ring[0].len, NET_QUEUE_SIZE);
	for (unsigned i = 0; i < sizeof(packet); i++)
		packet[i] = *(uint8_t *)fake_driver_at(&f->driver, pieces[NET_HEADER + i].address, 1);
	assert_filled(packet, sizeof(packet), 5);
	assert_int_equal(*(uint8_t *)fake_driver_at(&f->driver, pieces[10].address, 1), 1); /* num_buffers */
}

/* Chains that share their descriptors: more pieces than the table has, and the window must bear it. */
static void chains_that_overlap_are_borne(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer pieces[NET_QUEUE_SIZE];
	gpa_t data = fake_driver_alloc(&f->driver, NET_QUEUE_SIZE);
	uint16_t head;

	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		pieces[i] = (struct fake_buffer){.address = data + i, .length = 1, .writable = true};
	head = fake_driver_chain(&f->driver, RX, pieces, NET_QUEUE_SIZE);
	for (unsigned i = 0; i < 100; i++)
		fake_driver_offer(&f->driver, RX, (uint16_t)(head + i));
	fake_driver_kick(&f->driver, RX);
	for (unsigned i = 0; i < 60; i++)
		peer_send(f, 200, i);
	fake_driver_run(&f->driver);
	assert_int_equal(net_counts(f->device).lost_received + net_counts(f->device).received, 60);
	assert_int_equal(fake_driver_status(&f->driver), 0xf);
	fake_driver_assert_idle(&f->driver);
}

/* The same buffer again and again is the guest's own affair. */
static void one_buffer_offered_many_times_is_borne(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffer = {
		.address = fake_driver_alloc(&f->driver, BUFFER), .length = BUFFER, .writable = true};
	uint16_t head = fake_driver_chain(&f->driver, RX, &buffer, 1);

	for (unsigned i = 0; i < NET_QUEUE_SIZE; i++)
		fake_driver_offer(&f->driver, RX, head);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, 60000, 1);
	peer_send(f, 60, 2);
	fake_driver_run(&f->driver);
	assert_int_equal(net_counts(f->device).received, 2);
	assert_int_equal(fake_driver_status(&f->driver), 0xf);
}

static void what_the_host_does_not_take_is_lost(void **state)
{
	struct fixture *f = *state;

	backend.send_error = -EIO;
	send_packet(f, 60, 1);
	assert_int_equal(f->driver.queues[TX].used->idx, 1);
	assert_int_equal(net_counts(f->device).lost_sent, 1);
	assert_int_equal(status_of(f), VIRTIO_NET_S_LINK_UP);
	backend.send_error = 0;
	send_packet(f, 60, 2);
	peer_expect(f, 60, 2);
}

/* Less than an Ethernet header: no tap gives that, and no guest gets it. */
static void a_short_packet_of_the_host_is_lost(void **state)
{
	struct fixture *f = *state;

	offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, ETH_HLEN - 1, 1);
	fake_driver_run(&f->driver);
	assert_int_equal(net_counts(f->device).lost_received, 1);
	peer_send(f, ETH_HLEN, 2);
	fake_driver_run(&f->driver);
	guest_expect(f, ETH_HLEN, 2, 1);
}

/* Longer than any may be: lost, whether there are many buffers or few. */
static void a_packet_of_the_host_beyond_the_longest_is_lost(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 100; i++)
		offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, NET_PACKET_MAX + 1, 1);
	peer_send(f, NET_PACKET_MAX, 2);
	fake_driver_run(&f->driver);
	assert_int_equal(net_counts(f->device).lost_received, 1);
	guest_expect(f, NET_PACKET_MAX, 2, (FRAME_MAX + BUFFER - 1) / BUFFER);
	start_without(f, 0);
	offer_buffer(f, BUFFER);
	fake_driver_kick(&f->driver, RX);
	peer_send(f, NET_PACKET_MAX + 1, 3);
	peer_send(f, 60, 4);
	fake_driver_run(&f->driver);
	assert_int_equal(net_counts(f->device).lost_received, 2);
	guest_expect(f, 60, 4, 1);
}

static void notifications_without_cause_cost_nothing(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 1000; i++)
		fake_driver_kick(&f->driver, i % 2);
	assert_int_equal(f->driver.interrupts, 0);
	fake_driver_assert_idle(&f->driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(headers_are_checked),
		CASE(what_means_nothing_is_cleared),
		CASE(wrong_chains_need_a_reset),
		CASE(an_index_far_ahead_ends_the_vm),
		CASE(an_index_far_ahead_ends_the_vm_when_receiving),
		CASE(buffers_in_single_bytes_are_filled),
		CASE(chains_that_overlap_are_borne),
		CASE(one_buffer_offered_many_times_is_borne),
		CASE(what_the_host_does_not_take_is_lost),
		CASE(a_short_packet_of_the_host_is_lost),
		CASE(a_packet_of_the_host_beyond_the_longest_is_lost),
		CASE(notifications_without_cause_cost_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
