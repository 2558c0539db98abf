/* SPDX-License-Identifier: Apache-2.0 */
/* vsock: what a guest gets that breaks the rules. */
#include "tests/unit/vmm_vsock_fixture.h"

/* wrong packets */

static void a_packet_without_a_connection_is_reset(void **state)
{
	static const uint16_t ops[] = {
		0, OP_RESPONSE, OP_SHUTDOWN, OP_RW, OP_CREDIT_UPDATE, OP_CREDIT_REQUEST, 99};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		fake_vsock_send_op(&f->guest, ops[i], CLIENT_PORT, HOST_PORT);
		expect_reset_of(f, CLIENT_PORT, HOST_PORT);
	}
	fake_vsock_send_op(&f->guest, OP_RST, CLIENT_PORT, HOST_PORT);
	fake_vsock_expect_none(&f->guest);
	assert_int_equal(f->guest.accepts, 0);
}

static void wrong_addresses_and_types_are_reset(void **state)
{
	struct fixture *f = *state;
	struct virtio_vsock_hdr header = fake_vsock_header(OP_REQUEST, CLIENT_PORT, HOST_PORT);

	header.dst_cid = 7;
	fake_vsock_send(&f->guest, &header, NULL, 0);
	fake_vsock_expect(&f->guest, OP_RST, &f->packet);
	assert_int_equal(f->packet.header.src_cid, 7); /* as from whom the guest asked */
	assert_int_equal(f->packet.header.dst_cid, FAKE_CID);
	header.dst_cid = UINT64_C(2) << 32 | 2;
	fake_vsock_send(&f->guest, &header, NULL, 0);
	expect_reset_of(f, CLIENT_PORT, HOST_PORT);
	header.dst_cid = 2;
	header.src_cid = FAKE_CID + 1;
	fake_vsock_send(&f->guest, &header, NULL, 0);
	fake_vsock_expect(&f->guest, OP_RST, &f->packet);
	assert_int_equal(f->packet.header.dst_cid, FAKE_CID + 1);
	header.src_cid = FAKE_CID;
	header.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
	fake_vsock_send(&f->guest, &header, NULL, 0);
	fake_vsock_expect(&f->guest, OP_RST, &f->packet);
	assert_int_equal(f->packet.header.type, VIRTIO_VSOCK_TYPE_SEQPACKET);
	assert_int_equal(f->guest.accepts, 0);
}

static void an_unknown_op_resets_the_connection(void **state)
{
	static const uint16_t ops[] = {0, OP_RESPONSE, OP_REQUEST, 8, UINT16_MAX};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		establish(f);
		fake_vsock_send_op(&f->guest, ops[i], GUEST_PORT, f->host_port);
		expect_reset_of(f, GUEST_PORT, f->host_port);
		expect_end_of_stream(f);
		assert_int_equal(f->calls, 1);
	}
}

/* Takes what RSTs there are: they come in the order of the packets. */
static unsigned take_resets(struct fixture *f, unsigned first)
{
	unsigned count = 0;

	while (fake_vsock_receive(&f->guest, &f->packet)) {
		assert_int_equal(f->packet.header.op, OP_RST);
		assert_int_equal(f->packet.header.dst_port, first + count);
		count++;
	}
	return count;
}

static void resets_are_bounded_by_letting_the_guest_wait(void **state)
{
	enum { PACKETS = VSOCK_QUEUE_SIZE + VSOCK_RESETS_MAX / 2 };
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	unsigned resets, sent = 0;
	uint16_t head;
	uint32_t written;

	f->guest.rx_held = true;
	fake_vsock_start(&f->guest, FEATURES); /* no rx buffers */
	for (unsigned i = 0; i < PACKETS; i++) {
		struct virtio_vsock_hdr header = fake_vsock_header(OP_RW, i, HOST_PORT);
		struct fake_buffer buffer = {
			.address = fake_driver_alloc(driver, sizeof(header)), .length = sizeof(header)};

		memcpy(fake_driver_at(driver, buffer.address, sizeof(header)), &header, sizeof(header));
		fake_driver_offer(driver, FAKE_TX, fake_driver_chain(driver, FAKE_TX, &buffer, 1));
		fake_driver_kick(driver, FAKE_TX);
		while (fake_driver_used(driver, FAKE_TX, &head, &written))
			sent++;
	}
	assert_int_equal(sent, VSOCK_RESETS_MAX); /* the rest stands in the tx queue */
	fake_driver_assert_idle(driver);
	fake_vsock_offer_rx(&f->guest, 0, 10);
	fake_driver_kick(driver, FAKE_RX);
	resets = take_resets(f, 0);
	assert_int_equal(resets, 10); /* as many as there were buffers; ten more are taken for them */
	while (fake_driver_used(driver, FAKE_TX, &head, &written))
		sent++;
	assert_int_equal(sent, VSOCK_RESETS_MAX + 10);
	fake_driver_assert_idle(driver);
	for (unsigned i = 0; i < 2; i++) {
		fake_vsock_offer_rx(&f->guest, 0, 128);
		fake_driver_kick(driver, FAKE_RX);
		resets += take_resets(f, resets);
	}
	assert_int_equal(resets, PACKETS);
	fake_driver_assert_idle(driver);
}

static void a_reset_frees_a_guest_that_waits(void **state)
{
	struct fixture *f = *state;

	f->guest.rx_held = true;
	fake_vsock_start(&f->guest, FEATURES);
	for (unsigned i = 0; i <= VSOCK_RESETS_MAX; i++)
		fake_vsock_send_op(&f->guest, OP_RW, i, HOST_PORT);
	f->guest.rx_held = false;
	fake_vsock_start(&f->guest, FEATURES);
	fake_vsock_expect_none(&f->guest); /* nor is anything left of before */
	fake_vsock_send_op(&f->guest, OP_RW, CLIENT_PORT, HOST_PORT);
	expect_reset_of(f, CLIENT_PORT, HOST_PORT);
	establish(f);
}

static void packets_for_a_connection_that_is_being_reset_are_ignored(void **state)
{
	static const uint16_t ops[] = {
		OP_REQUEST, OP_RESPONSE, OP_RST, OP_SHUTDOWN, OP_RW, OP_CREDIT_REQUEST, 99};
	struct fixture *f = *state;

	establish(f);
	f->guest.rx_held = true;
	for (unsigned i = 0; i < 128; i++) { /* starve it */
		fake_vsock_send_op(&f->guest, OP_CREDIT_REQUEST, GUEST_PORT, f->host_port);
		fake_vsock_expect(&f->guest, OP_CREDIT_UPDATE, &f->packet);
	}
	fake_vsock_send_op(&f->guest, 99, GUEST_PORT, f->host_port);
	expect_end_of_stream(f);
	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		fake_vsock_send_op(&f->guest, ops[i], GUEST_PORT, f->host_port);
	fake_vsock_offer_rx(&f->guest, 0, 128);
	fake_driver_kick(&f->guest.driver, FAKE_RX);
	expect_reset_of(f, GUEST_PORT, f->host_port); /* the one */
	assert_int_equal(f->guest.accepts, 0);
}

/* Streams with much to send to a guest that gives no buffers end in any order; the rest go on. */
static void connections_end_while_they_wait_for_their_turn(void **state)
{
	static const unsigned order[] = {2, 0, 4};
	struct fixture *f = *state;
	uint32_t ports[5];
	int hosts[5];
	bool seen[5] = {false};

	for (unsigned i = 0; i < 5; i++) {
		establish(f);
		ports[i] = f->host_port;
		hosts[i] = f->host;
		f->host = -1;
	}
	f->guest.rx_held = true;
	for (unsigned i = 0; i < 128; i++)
		fake_vsock_send_op(&f->guest, OP_CREDIT_REQUEST, GUEST_PORT, ports[0]);
	while (fake_vsock_receive(&f->guest, &f->packet))
		;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(write(hosts[i], &i, 1), 1);
	fake_driver_run(&f->guest.driver);
	for (unsigned i = 0; i < 3; i++)
		fake_vsock_send_op(&f->guest, OP_RST, GUEST_PORT, ports[order[i]]);
	fake_vsock_offer_rx(&f->guest, 0, 128);
	fake_driver_kick(&f->guest.driver, FAKE_RX);
	while (fake_vsock_receive(&f->guest, &f->packet)) {
		assert_int_equal(f->packet.header.op, OP_RW);
		for (unsigned i = 0; i < 5; i++)
			seen[i] |= f->packet.header.src_port == ports[i];
	}
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(seen[i], i == 1 || i == 3);
		close(hosts[i]);
	}
}

/* Ports whose sums are alike share a bucket of the table; each is found, and each goes alone. */
static void connections_in_one_bucket_are_told_apart(void **state)
{
	struct fixture *f = *state;
	int hosts[3];

	for (uint32_t i = 0; i < 3; i++) {
		f->guest.accept_fd = make_pair(f);
		fake_vsock_send_op(&f->guest, OP_REQUEST, i, 1000 - 31 * i);
		fake_vsock_expect(&f->guest, OP_RESPONSE, &f->packet);
		hosts[i] = f->host;
		f->host = -1;
	}
	for (uint32_t i = 0; i < 3; i++) {
		fake_vsock_send_op(&f->guest, OP_RST, i, 1000 - 31 * i);
		f->host = hosts[i];
		expect_end_of_stream(f);
		close(f->host);
		for (uint32_t rest = i + 1; rest < 3; rest++) {
			f->host = hosts[rest];
			expect_open(f);
		}
		f->host = -1;
		fake_vsock_expect_none(&f->guest);
	}
}

/* malformed chains */

static void assert_needs_reset(struct fixture *f)
{
	assert_int_equal(fake_driver_status(&f->guest.driver), 0xf | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_int_equal(f->guest.driver.faults, 0);
}

/* Sends the chain while a connection is open: that ends. */
static void assert_tx_refused(
	struct fixture *f, uint32_t length, const struct fake_buffer *buffers, unsigned count)
{
	struct virtio_vsock_hdr header = fake_vsock_header(OP_RW, GUEST_PORT, 1);

	fake_vsock_start(&f->guest, FEATURES);
	establish(f);
	header.len = length;
	memcpy(fake_driver_at(&f->guest.driver, f->guest.tx_header, sizeof(header)), &header, sizeof(header));
	fake_driver_offer(
		&f->guest.driver, FAKE_TX, fake_driver_chain(&f->guest.driver, FAKE_TX, buffers, count));
	fake_driver_kick(&f->guest.driver, FAKE_TX);
	assert_needs_reset(f);
	expect_end_of_stream(f);
}

static void a_malformed_tx_chain_needs_a_reset(void **state)
{
	struct fixture *f = *state;
	const uint32_t size = sizeof(struct virtio_vsock_hdr);
	struct fake_buffer buffers[2] = {
		{.address = f->guest.tx_header, .length = size}, {.address = f->guest.tx_data, .length = 10}};

	assert_tx_refused(f, 11, buffers, 2); /* more than there is */
	assert_tx_refused(f, UINT32_MAX, buffers, 2);
	buffers[0].length = size - 1;
	assert_tx_refused(f, 0, buffers, 1);
	buffers[0].length = size;
	buffers[1].writable = true;
	assert_tx_refused(f, 0, buffers, 2);
	buffers[0].writable = true;
	assert_tx_refused(f, 0, buffers, 1);
	buffers[0] = (struct fake_buffer){.address = FAKE_MEMORY - 10, .length = size};
	assert_tx_refused(f, 0, buffers, 1);
	fake_vsock_start(&f->guest, FEATURES);
	establish(f); /* a reset helps */
}

static void assert_rx_refused(struct fixture *f, const struct fake_buffer *buffers, unsigned count)
{
	f->guest.rx_held = true;
	fake_vsock_start(&f->guest, FEATURES);
	fake_driver_offer(
		&f->guest.driver, FAKE_RX, fake_driver_chain(&f->guest.driver, FAKE_RX, buffers, count));
	fake_driver_kick(&f->guest.driver, FAKE_RX);
	assert_int_equal(fake_driver_status(&f->guest.driver), 0xf); /* it was not needed yet */
	fake_vsock_send_op(&f->guest, OP_RW, CLIENT_PORT, HOST_PORT);
	assert_needs_reset(f);
}

static void a_malformed_rx_buffer_needs_a_reset(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[2] = {{.address = f->guest.rx_buffers[0], .length = 4096},
		{.address = f->guest.rx_buffers[2], .length = 4096}};

	assert_rx_refused(f, buffers, 1); /* readable */
	buffers[1].writable = true;
	assert_rx_refused(f, buffers, 2);
	buffers[0].writable = true;
	buffers[0].length = sizeof(struct virtio_vsock_hdr); /* no room for a byte behind it */
	assert_rx_refused(f, buffers, 1);
	buffers[0].address = FAKE_MEMORY;
	assert_rx_refused(f, buffers, 1);
}

static void a_malformed_event_buffer_needs_a_reset(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[] = {{.address = f->guest.tx_data, .length = 3, .writable = true},
		{.address = f->guest.tx_data, .length = 4},
		{.address = FAKE_MEMORY - 3, .length = 4, .writable = true}};

	for (unsigned i = 0; i < 3; i++) {
		fake_vsock_start(&f->guest, FEATURES);
		establish(f);
		fake_driver_offer(&f->guest.driver, FAKE_EVENT,
			fake_driver_chain(&f->guest.driver, FAKE_EVENT, &buffers[i], 1));
		restore(f);
		wake(f);
		assert_needs_reset(f);
		expect_end_of_stream(f);
	}
}

static void an_index_far_ahead_ends_the_vm(void **state)
{
	struct fixture *f = *state;

	establish(f);
	f->guest.driver.queues[FAKE_TX].avail->idx += VSOCK_QUEUE_SIZE + 1;
	fake_driver_kick(&f->guest.driver, FAKE_TX);
	assert_int_equal(f->guest.driver.faults, 1);
	assert_string_equal(f->guest.driver.reason,
		"vsock: queue 1: available index is further ahead than the queue is long");
	expect_end_of_stream(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_packet_without_a_connection_is_reset),
		CASE(wrong_addresses_and_types_are_reset),
		CASE(an_unknown_op_resets_the_connection),
		CASE_BEFORE_START(resets_are_bounded_by_letting_the_guest_wait),
		CASE_BEFORE_START(a_reset_frees_a_guest_that_waits),
		CASE(packets_for_a_connection_that_is_being_reset_are_ignored),
		CASE(connections_end_while_they_wait_for_their_turn),
		CASE(connections_in_one_bucket_are_told_apart),
		CASE_BEFORE_START(a_malformed_event_buffer_needs_a_reset),
		CASE_BEFORE_START(a_malformed_tx_chain_needs_a_reset),
		CASE_BEFORE_START(a_malformed_rx_buffer_needs_a_reset),
		CASE(an_index_far_ahead_ends_the_vm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
