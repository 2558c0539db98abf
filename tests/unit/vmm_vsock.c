/* SPDX-License-Identifier: Apache-2.0 */
/* vsock: how connections begin, on either side. Streams: vmm_vsock_flow.c. */
#include "tests/unit/vmm_vsock_fixture.h"

/* create */

static void reserved_cids_are_refused(void **state)
{
	static const uint32_t reserved[] = {0, 1, 2, UINT32_MAX};
	struct fixture *f = *state;
	struct virtio_device *device = NULL;
	uint8_t cid[8];

	for (unsigned i = 0; i < 4; i++) {
		struct vsock_config config = {.cid = reserved[i], .loop = f->guest.driver.loop};

		assert_int_equal(vsock_create(&config, &device), -EINVAL);
	}
	virtio_mmio_read(f->guest.driver.mmio, VIRTIO_MMIO_CONFIG, cid, 4);
	virtio_mmio_read(f->guest.driver.mmio, VIRTIO_MMIO_CONFIG + 4, cid + 4, 4);
	assert_memory_equal(cid, "\x2a\0\0\0\0\0\0\0", 8);
}

/* the host connects */

static void the_host_connects(void **state)
{
	struct fixture *f = *state;

	start_connect(f);
	expect_request(f);
	assert_int_equal(f->packet.header.src_cid, 2);
	assert_int_equal(f->packet.header.dst_cid, FAKE_CID);
	assert_int_equal(f->packet.header.dst_port, GUEST_PORT);
	assert_int_equal(f->packet.header.type, VIRTIO_VSOCK_TYPE_STREAM);
	assert_int_equal(f->packet.header.buf_alloc, VSOCK_BUFFER);
	assert_int_equal(f->packet.header.fwd_cnt, 0);
	assert_true(f->host_port >= VSOCK_HOST_PORT_FIRST);
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, f->host_port);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, 0);
	expect_open(f);
	fake_vsock_expect_none(&f->guest);
}

static void a_guest_that_resets_refuses(void **state)
{
	struct fixture *f = *state;

	start_connect(f);
	expect_request(f);
	fake_vsock_send_op(&f->guest, OP_RST, GUEST_PORT, f->host_port);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, -ECONNREFUSED);
	expect_end_of_stream(f);
	fake_vsock_expect_none(&f->guest); /* no RST for an RST */
}

static void an_answer_that_is_none_refuses(void **state)
{
	static const uint16_t wrong[] = {OP_REQUEST, OP_RW, OP_SHUTDOWN, 0, 99};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		start_connect(f);
		expect_request(f);
		fake_vsock_send_op(&f->guest, wrong[i], GUEST_PORT, f->host_port);
		assert_int_equal(f->calls, 1);
		assert_int_equal(f->status, -ECONNREFUSED);
		expect_end_of_stream(f);
		expect_reset_of(f, GUEST_PORT, f->host_port);
	}
}

static void a_connection_waits_for_the_driver(void **state)
{
	struct fixture *f = *state;

	start_connect(f);
	fake_vsock_start(&f->guest, FEATURES); /* which begins with a reset, as Linux does */
	assert_int_equal(f->calls, 0);
	expect_request(f);
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, f->host_port);
	assert_int_equal(f->status, 0);
}

static void a_client_that_leaves_while_it_waits_is_forgotten(void **state)
{
	struct fixture *f = *state;

	start_connect(f);
	close(f->host);
	f->host = -1;
	fake_driver_run(&f->guest.driver);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, -ECONNRESET);
	fake_vsock_start(&f->guest, FEATURES);
	fake_vsock_expect_none(&f->guest); /* the guest never hears of it */
}

static void a_client_that_leaves_before_the_answer_resets(void **state)
{
	struct fixture *f = *state;

	start_connect(f);
	expect_request(f);
	close(f->host);
	f->host = -1;
	fake_driver_run(&f->guest.driver);
	assert_int_equal(f->status, -ECONNRESET);
	expect_reset_of(f, GUEST_PORT, f->host_port);
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, f->host_port); /* too late */
	assert_int_equal(f->calls, 1);
	expect_reset_of(f, GUEST_PORT, f->host_port);
}

static void host_ports_are_not_used_again(void **state)
{
	struct fixture *f = *state;
	uint32_t last;

	establish(f);
	last = f->host_port;
	for (unsigned i = 0; i < 50; i++) {
		fake_vsock_send_op(&f->guest, OP_RST, GUEST_PORT, f->host_port);
		expect_end_of_stream(f);
		establish(f);
		assert_int_equal(f->host_port, last + 1);
		last = f->host_port;
	}
}

static void connections_are_bounded(void **state)
{
	struct fixture *f = *state;
	int hosts[VSOCK_CONNECTIONS_MAX];

	for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++) {
		establish(f);
		hosts[i] = f->host;
		f->host = -1;
	}
	assert_int_equal(vsock_connect(f->guest.device, GUEST_PORT, make_pair(f), on_done, f), -EMFILE);
	assert_int_equal(f->calls, 1); /* that of the last one */
	expect_end_of_stream(f);       /* taken over and closed */
	f->guest.accept_fd = 0;
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	assert_int_equal(f->guest.accepts, 0);
	expect_reset_of(f, CLIENT_PORT, HOST_PORT);
	fake_vsock_send_op(&f->guest, OP_RST, GUEST_PORT, f->host_port); /* one ends: there is room */
	establish(f);
	for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++)
		close(hosts[i]);
}

/* the guest connects */

static void the_guest_connects(void **state)
{
	struct fixture *f = *state;
	char text[8];

	f->guest.accept_fd = make_pair(f);
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	assert_int_equal(f->guest.accepts, 1);
	assert_int_equal(f->guest.accepted_port, HOST_PORT);
	assert_int_equal(f->guest.accepted_from, CLIENT_PORT);
	fake_vsock_expect(&f->guest, OP_RESPONSE, &f->packet);
	assert_int_equal(f->packet.header.src_port, HOST_PORT);
	assert_int_equal(f->packet.header.dst_port, CLIENT_PORT);
	assert_int_equal(f->packet.header.buf_alloc, VSOCK_BUFFER);
	expect_open(f);
	assert_int_equal(write(f->host, "down", 4), 4);
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	assert_int_equal(f->packet.header.dst_port, CLIENT_PORT);
	assert_memory_equal(f->packet.data, "down", 4);
	fake_vsock_send_data(&f->guest, CLIENT_PORT, HOST_PORT, "up", 2);
	assert_int_equal(read(f->host, text, sizeof(text)), 2);
	assert_memory_equal(text, "up", 2);
}

/* The guest connects to and from those ports, and the host takes it. */
static void connect_again(struct fixture *f)
{
	unsigned accepts = f->guest.accepts;

	f->guest.accept_fd = make_pair(f);
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	assert_int_equal(f->guest.accepts, accepts + 1);
	fake_vsock_expect(&f->guest, OP_RESPONSE, &f->packet);
	expect_open(f);
}

/* As guest-init does, which has few ports to come from: whoever knows of an end may use its ports again. */
static void ports_are_free_when_the_guest_knows_of_the_end(void **state)
{
	struct fixture *f = *state;
	struct virtio_vsock_hdr both = fake_vsock_header(OP_SHUTDOWN, CLIENT_PORT, HOST_PORT);

	both.flags = ALL_DOWN;
	connect_again(f);
	fake_vsock_send_op(&f->guest, OP_RST, CLIENT_PORT, HOST_PORT);
	expect_end_of_stream(f);
	connect_again(f);
	fake_vsock_send(&f->guest, &both, NULL, 0);
	expect_end_of_stream(f);
	expect_reset_of(f, CLIENT_PORT, HOST_PORT);
	connect_again(f);
	close(f->host);
	f->host = -1;
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, OP_SHUTDOWN, &f->packet);
	fake_vsock_send_op(&f->guest, OP_RST, CLIENT_PORT, HOST_PORT);
	connect_again(f);
	fake_vsock_start(&f->guest, FEATURES); /* the driver begins anew */
	expect_end_of_stream(f);
	connect_again(f);
	fake_vsock_expect_none(&f->guest);
}

static void bytes_that_wait_already_come_after_the_response(void **state)
{
	struct fixture *f = *state;

	f->guest.accept_fd = make_pair(f);
	assert_int_equal(write(f->host, "early", 5), 5);
	assert_int_equal(shutdown(f->host, SHUT_WR), 0);
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	fake_vsock_expect(&f->guest, OP_RESPONSE, &f->packet);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	assert_memory_equal(f->packet.data, "early", 5);
	fake_vsock_expect(&f->guest, OP_SHUTDOWN, &f->packet);
	assert_int_equal(f->packet.header.flags, VIRTIO_VSOCK_SHUTDOWN_SEND);
}

static void bytes_that_wait_already_come_after_the_guest_accepts(void **state)
{
	struct fixture *f = *state;

	start_connect(f);
	assert_int_equal(write(f->host, "early", 5), 5);
	fake_driver_run(&f->guest.driver);
	expect_request(f);
	fake_vsock_expect_none(&f->guest);
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, f->host_port);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	assert_memory_equal(f->packet.data, "early", 5);
}

static void nobody_at_the_host_port_resets(void **state)
{
	struct fixture *f = *state;

	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	assert_int_equal(f->guest.accepts, 1);
	expect_reset_of(f, CLIENT_PORT, HOST_PORT);
}

static void a_request_for_a_connection_that_is_there_resets_it(void **state)
{
	struct fixture *f = *state;

	f->guest.accept_fd = make_pair(f);
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	fake_vsock_expect(&f->guest, OP_RESPONSE, &f->packet);
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	assert_int_equal(f->guest.accepts, 1);
	expect_reset_of(f, CLIENT_PORT, HOST_PORT);
	expect_end_of_stream(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_BEFORE_START(reserved_cids_are_refused),
		CASE(the_host_connects),
		CASE(a_guest_that_resets_refuses),
		CASE(an_answer_that_is_none_refuses),
		CASE_BEFORE_START(a_connection_waits_for_the_driver),
		CASE_BEFORE_START(a_client_that_leaves_while_it_waits_is_forgotten),
		CASE(a_client_that_leaves_before_the_answer_resets),
		CASE(host_ports_are_not_used_again),
		CASE(connections_are_bounded),
		CASE(the_guest_connects),
		CASE(ports_are_free_when_the_guest_knows_of_the_end),
		CASE(bytes_that_wait_already_come_after_the_response),
		CASE(bytes_that_wait_already_come_after_the_guest_accepts),
		CASE(nobody_at_the_host_port_resets),
		CASE(a_request_for_a_connection_that_is_there_resets_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
