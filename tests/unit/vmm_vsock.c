/* SPDX-License-Identifier: Apache-2.0 */
/* vsock: how connections begin and end, and what a guest gets that breaks the rules. Streams:
 * vmm_vsock_flow.c. */
#include "tests/support/unit.h"

#include "tests/support/fake_vsock.h"
#include "vmm/virtio/vsock.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_mmio.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOT_CALLED = 1, GUEST_PORT = 1024, HOST_PORT = 5000, CLIENT_PORT = 77 };
enum {
	OP_REQUEST = VIRTIO_VSOCK_OP_REQUEST,
	OP_RESPONSE = VIRTIO_VSOCK_OP_RESPONSE,
	OP_RST = VIRTIO_VSOCK_OP_RST,
	OP_SHUTDOWN = VIRTIO_VSOCK_OP_SHUTDOWN,
	OP_RW = VIRTIO_VSOCK_OP_RW,
	OP_CREDIT_UPDATE = VIRTIO_VSOCK_OP_CREDIT_UPDATE,
	OP_CREDIT_REQUEST = VIRTIO_VSOCK_OP_CREDIT_REQUEST
};
#define FEATURES VIRTIO_FEATURES_COMMON
#define ALL_DOWN (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND)

struct fixture {
	struct fake_vsock guest;
	struct fake_packet packet;
	int host; /* our end of the stream */
	int status;
	unsigned calls;
	uint32_t host_port; /* of the last connection the host made */
};

static void on_done(void *context, int status)
{
	struct fixture *f = context;

	f->status = status;
	f->calls++;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_vsock_init(&f->guest);
	f->host = -1;
	f->status = NOT_CALLED;
	*state = f;
	return 0;
}

static int setup_started(void **state)
{
	setup(state);
	fake_vsock_start(&((struct fixture *)*state)->guest, FEATURES);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_vsock_finish(&f->guest);
	if (f->host >= 0)
		close(f->host);
	free(f);
	return 0;
}

/* A stream; f->host is one end, the other is returned. */
static int make_pair(struct fixture *f)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	if (f->host >= 0)
		close(f->host);
	f->host = fds[0];
	return fds[1];
}

static void start_connect(struct fixture *f)
{
	f->status = NOT_CALLED;
	f->calls = 0;
	assert_int_equal(vsock_connect(f->guest.device, GUEST_PORT, make_pair(f), on_done, f), 0);
	fake_driver_run(&f->guest.driver);
	assert_int_equal(f->calls, 0);
}

static void expect_request(struct fixture *f)
{
	fake_vsock_expect(&f->guest, OP_REQUEST, &f->packet);
	f->host_port = f->packet.header.src_port;
}

/* A connection that the host made and the guest accepted. */
static void establish(struct fixture *f)
{
	start_connect(f);
	expect_request(f);
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, f->host_port);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, 0);
}

static void expect_end_of_stream(struct fixture *f)
{
	char byte;

	assert_int_equal(read(f->host, &byte, 1), 0);
}

static void expect_open(struct fixture *f)
{
	char byte;

	assert_int_equal(read(f->host, &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

static void send_shutdown(struct fixture *f, uint32_t flags)
{
	struct virtio_vsock_hdr header = fake_vsock_header(OP_SHUTDOWN, GUEST_PORT, f->host_port);

	header.flags = flags;
	fake_vsock_send(&f->guest, &header, NULL, 0);
}

static void expect_reset_of(struct fixture *f, uint32_t guest_port, uint32_t host_port)
{
	fake_vsock_expect(&f->guest, OP_RST, &f->packet);
	assert_int_equal(f->packet.header.dst_port, guest_port);
	assert_int_equal(f->packet.header.src_port, host_port);
	fake_vsock_expect_none(&f->guest);
}

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
		vsock_reset_transport(f->guest.device);
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

/* ends */

/* The lowest free fd. */
static int next_fd(void)
{
	int fd = dup(0);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

static void a_client_that_closes_shuts_both_down(void **state)
{
	struct fixture *f = *state;
	int fd = next_fd();

	establish(f);
	close(f->host);
	f->host = -1;
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, OP_SHUTDOWN, &f->packet);
	assert_int_equal(f->packet.header.flags, ALL_DOWN);
	assert_int_equal(next_fd(), fd);				      /* nothing of it is kept open */
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "late", 4); /* in flight: no offence */
	fake_vsock_expect_none(&f->guest);
	fake_vsock_send_op(&f->guest, OP_CREDIT_REQUEST, GUEST_PORT, f->host_port);
	fake_vsock_expect(&f->guest, OP_CREDIT_UPDATE, &f->packet);
	assert_int_equal(f->packet.header.fwd_cnt, 4); /* and it does not count against the guest */
	fake_vsock_send_op(&f->guest, OP_RST, GUEST_PORT, f->host_port); /* 5.10.6.5: the clean end */
	fake_vsock_expect_none(&f->guest);
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "gone", 4);
	expect_reset_of(f, GUEST_PORT, f->host_port);
}

static void a_client_that_closes_half_shuts_sending_down(void **state)
{
	struct fixture *f = *state;
	char text[8];

	establish(f);
	assert_int_equal(write(f->host, "last", 4), 4);
	assert_int_equal(shutdown(f->host, SHUT_WR), 0);
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet); /* data before the end */
	assert_memory_equal(f->packet.data, "last", 4);
	fake_vsock_expect(&f->guest, OP_SHUTDOWN, &f->packet);
	assert_int_equal(f->packet.header.flags, VIRTIO_VSOCK_SHUTDOWN_SEND);
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "answer", 6);
	assert_int_equal(read(f->host, text, sizeof(text)), 6);
	assert_memory_equal(text, "answer", 6);
	expect_open(f);
	send_shutdown(f, ALL_DOWN);
	expect_end_of_stream(f);
	expect_reset_of(f, GUEST_PORT, f->host_port);
}

static void a_guest_that_closes_half_ends_our_reading(void **state)
{
	struct fixture *f = *state;
	char text[8];

	establish(f);
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "bye", 3);
	send_shutdown(f, VIRTIO_VSOCK_SHUTDOWN_SEND);
	assert_int_equal(read(f->host, text, sizeof(text)), 3);
	expect_end_of_stream(f);
	fake_vsock_expect_none(&f->guest);
	assert_int_equal(write(f->host, "still", 5), 5); /* the other way is open */
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	assert_memory_equal(f->packet.data, "still", 5);
	send_shutdown(f, 0); /* hints are permanent: no bits, nothing new */
	fake_vsock_expect_none(&f->guest);
	send_shutdown(f, VIRTIO_VSOCK_SHUTDOWN_RCV); /* together both */
	expect_reset_of(f, GUEST_PORT, f->host_port);
}

static void a_guest_that_reads_no_more_ends_our_writing(void **state)
{
	struct fixture *f = *state;
	char text[8];

	establish(f);
	send_shutdown(f, VIRTIO_VSOCK_SHUTDOWN_RCV);
	assert_int_equal(send(f->host, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "more", 4);
	assert_int_equal(read(f->host, text, sizeof(text)), 4);
	fake_vsock_expect_none(&f->guest);
	close(f->host);
	f->host = -1;
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, OP_SHUTDOWN, &f->packet);
	assert_int_equal(f->packet.header.flags, ALL_DOWN);
}

static void bytes_after_the_guest_said_no_more_reset(void **state)
{
	struct fixture *f = *state;

	establish(f);
	send_shutdown(f, VIRTIO_VSOCK_SHUTDOWN_SEND);
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "more", 4);
	expect_reset_of(f, GUEST_PORT, f->host_port);
	expect_end_of_stream(f);
}

static void a_client_that_reads_no_more_is_told(void **state)
{
	struct fixture *f = *state;

	establish(f);
	assert_int_equal(shutdown(f->host, SHUT_RD), 0);
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "data", 4);
	fake_vsock_expect(&f->guest, OP_SHUTDOWN, &f->packet);
	assert_int_equal(f->packet.header.flags, VIRTIO_VSOCK_SHUTDOWN_RCV);
	assert_int_equal(write(f->host, "up", 2), 2); /* the other way is open */
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	assert_int_equal(f->packet.header.fwd_cnt, 4); /* dropped counts as forwarded */
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "more", 4);
	fake_vsock_send_op(&f->guest, OP_CREDIT_REQUEST, GUEST_PORT, f->host_port);
	fake_vsock_expect(&f->guest, OP_CREDIT_UPDATE, &f->packet);
	assert_int_equal(f->packet.header.fwd_cnt, 8);
}

static void a_guest_that_resets_ends_the_stream(void **state)
{
	struct fixture *f = *state;
	char text[8];

	establish(f);
	fake_vsock_send_data(&f->guest, GUEST_PORT, f->host_port, "data", 4);
	fake_vsock_send_op(&f->guest, OP_RST, GUEST_PORT, f->host_port);
	assert_int_equal(read(f->host, text, sizeof(text)), 4); /* what came before is not lost */
	expect_end_of_stream(f);
	fake_vsock_expect_none(&f->guest);
}

/* A guest may use its port again as soon as it has ended the connection, whatever the host has yet to read.
 */
static void ports_are_free_once_the_guest_ended_the_connection(void **state)
{
	static const uint8_t data[16 * 1024];
	struct fixture *f = *state;
	int small = 1, fd = make_pair(f), first;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	f->guest.accept_fd = fd;
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	fake_vsock_expect(&f->guest, OP_RESPONSE, &f->packet);
	for (unsigned i = 0; i < 4; i++)
		fake_vsock_send_data(&f->guest, CLIENT_PORT, HOST_PORT, data, sizeof(data));
	fake_vsock_send_op(&f->guest, OP_RST, CLIENT_PORT, HOST_PORT);
	first = f->host;
	f->host = -1;
	f->guest.accept_fd = make_pair(f);
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	fake_vsock_expect(&f->guest, OP_RESPONSE, &f->packet);
	expect_open(f);
	close(first);
	fake_driver_run(&f->guest.driver);
	expect_open(f);
	fake_vsock_expect_none(&f->guest);
}

/* Without buffers for it, what a connection has to say adds up, and comes in order. */
static void what_is_owed_adds_up(void **state)
{
	struct fixture *f = *state;

	establish(f);
	f->guest.rx_held = true;
	for (unsigned i = 0; i < 128; i++)
		fake_vsock_send_op(&f->guest, OP_CREDIT_REQUEST, GUEST_PORT, f->host_port);
	while (fake_vsock_receive(&f->guest, &f->packet))
		;
	f->guest.accept_fd = make_pair(f);
	fake_vsock_send_op(&f->guest, OP_REQUEST, CLIENT_PORT, HOST_PORT);
	fake_vsock_send_op(&f->guest, OP_CREDIT_REQUEST, CLIENT_PORT, HOST_PORT);
	assert_int_equal(write(f->host, "x", 1), 1);
	assert_int_equal(shutdown(f->host, SHUT_WR), 0);
	fake_driver_run(&f->guest.driver);
	fake_vsock_offer_rx(&f->guest, 0, 128);
	fake_driver_kick(&f->guest.driver, FAKE_RX);
	while (fake_vsock_receive(&f->guest, &f->packet) && f->packet.header.src_port != HOST_PORT)
		; /* the first connection's are done with by its client's end, too */
	assert_int_equal(f->packet.header.op, OP_RESPONSE);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	fake_vsock_expect(&f->guest, OP_SHUTDOWN, &f->packet);
	fake_vsock_expect_none(&f->guest); /* all of these told the credit */
}

static void a_device_reset_ends_all_but_those_that_wait(void **state)
{
	struct fixture *f = *state;
	int established, requested;

	establish(f);
	established = f->host;
	f->host = -1;
	start_connect(f);
	requested = f->host;
	f->host = -1;
	fake_driver_write(&f->guest.driver, VIRTIO_MMIO_STATUS, 0);
	fake_driver_run(&f->guest.driver);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, -ECONNRESET);
	f->host = established;
	expect_end_of_stream(f);
	f->host = requested;
	expect_end_of_stream(f);
	close(established);
	start_connect(f);
	fake_vsock_start(&f->guest, FEATURES);
	expect_request(f);
	fake_vsock_expect_none(&f->guest);
}

static void destroying_ends_all(void **state)
{
	struct fixture *f = *state;
	int established;

	establish(f);
	established = f->host;
	f->host = -1;
	start_connect(f);
	virtio_mmio_destroy(f->guest.driver.mmio);
	f->guest.driver.mmio = NULL;
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, -ECONNRESET);
	expect_end_of_stream(f);
	close(f->host);
	f->host = established;
	expect_end_of_stream(f);
}

static void a_transport_reset_is_told(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	gpa_t event = fake_driver_alloc(driver, 4);
	struct fake_buffer buffer = {.address = event, .length = 4, .writable = true};
	uint16_t head;
	uint32_t written;

	establish(f);
	memset(fake_driver_at(driver, event, 4), 0xff, 4);
	vsock_reset_transport(f->guest.device);
	expect_end_of_stream(f);
	fake_vsock_expect_none(&f->guest);
	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	assert_true(fake_driver_must_kick(driver, FAKE_EVENT));
	fake_driver_kick(driver, FAKE_EVENT);
	assert_true(fake_driver_used(driver, FAKE_EVENT, &head, &written));
	assert_int_equal(written, 4);
	assert_memory_equal(fake_driver_at(driver, event, 4), "\0\0\0\0", 4);
	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	fake_driver_kick(driver, FAKE_EVENT);
	assert_false(fake_driver_used(driver, FAKE_EVENT, &head, &written)); /* once */
	vsock_reset_transport(f->guest.device);				     /* with a buffer there already */
	assert_true(fake_driver_used(driver, FAKE_EVENT, &head, &written));
	establish(f);
	vsock_reset_transport(f->guest.device); /* and one that a reset of the device overtakes */
	fake_vsock_start(&f->guest, FEATURES);
	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	fake_driver_kick(driver, FAKE_EVENT);
	assert_false(fake_driver_used(driver, FAKE_EVENT, &head, &written));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_started, teardown)
#define CASE_BEFORE_START(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
		CASE(bytes_that_wait_already_come_after_the_response),
		CASE(bytes_that_wait_already_come_after_the_guest_accepts),
		CASE(nobody_at_the_host_port_resets),
		CASE(a_request_for_a_connection_that_is_there_resets_it),
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
		CASE(a_client_that_closes_shuts_both_down),
		CASE(a_client_that_closes_half_shuts_sending_down),
		CASE(a_guest_that_closes_half_ends_our_reading),
		CASE(a_guest_that_reads_no_more_ends_our_writing),
		CASE(bytes_after_the_guest_said_no_more_reset),
		CASE(a_client_that_reads_no_more_is_told),
		CASE(a_guest_that_resets_ends_the_stream),
		CASE(ports_are_free_once_the_guest_ended_the_connection),
		CASE(what_is_owed_adds_up),
		CASE(a_device_reset_ends_all_but_those_that_wait),
		CASE(destroying_ends_all),
		CASE(a_transport_reset_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
