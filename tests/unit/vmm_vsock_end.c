/* SPDX-License-Identifier: Apache-2.0 */
/* vsock: how connections end, by either side, by a reset and with the device. */
#include "tests/unit/vmm_vsock_fixture.h"

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
	restore(f);
	expect_end_of_stream(f);
	wake(f);
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
	restore(f);							     /* with a buffer there already */
	wake(f);
	assert_true(fake_driver_used(driver, FAKE_EVENT, &head, &written));
	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	fake_driver_kick(driver, FAKE_EVENT);
	establish(f);
	restore(f); /* and one that a reset of the device overtakes */
	wake(f);
	fake_vsock_start(&f->guest, FEATURES);
	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	fake_driver_kick(driver, FAKE_EVENT);
	assert_false(fake_driver_used(driver, FAKE_EVENT, &head, &written));
	establish(f);
}

/* Linux acts on the event, which ends all of its streams, and then gives the buffer back. */
static void a_request_waits_until_a_transport_reset_is_understood(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	struct fake_buffer buffer = {.address = fake_driver_alloc(driver, 4), .length = 4, .writable = true};
	uint32_t written;
	uint16_t head;

	for (unsigned i = 0; i < 8; i++)
		fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	fake_driver_kick(driver, FAKE_EVENT);
	restore(f);
	wake(f);
	start_connect(f);
	fake_vsock_expect_none(&f->guest);
	assert_true(fake_driver_used(driver, FAKE_EVENT, &head, &written));
	/* A notification that says nothing, and packets of the old streams, change nothing. */
	fake_driver_kick(driver, FAKE_EVENT);
	fake_driver_kick(driver, FAKE_RX);
	fake_vsock_send_op(&f->guest, OP_RW, GUEST_PORT, HOST_PORT);
	expect_reset_of(f, GUEST_PORT, HOST_PORT);
	fake_driver_assert_idle(driver);
	fake_driver_offer(driver, FAKE_EVENT, head);
	assert_true(fake_driver_must_kick(driver, FAKE_EVENT));
	fake_driver_kick(driver, FAKE_EVENT);
	expect_request(f);
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, f->host_port);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, 0);
	assert_false(fake_driver_used(driver, FAKE_EVENT, &head, &written));
}

static void a_request_that_waits_for_a_transport_reset_survives_a_new_driver(void **state)
{
	struct fixture *f = *state;

	restore(f);
	wake(f); /* there is no buffer to tell it in */
	start_connect(f);
	fake_vsock_expect_none(&f->guest);
	fake_vsock_start(&f->guest, FEATURES);
	expect_request(f);
}

static void ignore_done(void *context, int status)
{
	(void)context;
	(void)status;
}

/* One that could not have been sent yet is held as well. */
static void a_request_without_a_buffer_waits_for_a_transport_reset_too(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	struct fake_buffer buffer = {.address = fake_driver_alloc(driver, 4), .length = 4, .writable = true};
	int hosts[VSOCK_QUEUE_SIZE];
	uint32_t written;
	uint16_t head;

	fake_vsock_start(&f->guest, FEATURES);
	f->guest.rx_held = true;
	for (unsigned i = 0; i < VSOCK_QUEUE_SIZE; i++) { /* all rx buffers go */
		int pair[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
		hosts[i] = pair[0];
		assert_int_equal(vsock_connect(f->guest.device, GUEST_PORT, pair[1], ignore_done, NULL), 0);
		expect_request(f);
	}
	restore(f);
	wake(f);
	start_connect(f);
	fake_vsock_expect_none(&f->guest);
	fake_vsock_offer_rx(&f->guest, 0, 16);
	fake_driver_kick(driver, FAKE_RX);
	fake_vsock_expect_none(&f->guest);
	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	fake_driver_kick(driver, FAKE_EVENT);
	fake_vsock_expect_none(&f->guest);
	assert_true(fake_driver_used(driver, FAKE_EVENT, &head, &written));
	fake_driver_offer(driver, FAKE_EVENT, head);
	fake_driver_kick(driver, FAKE_EVENT);
	expect_request(f);
	for (unsigned i = 0; i < VSOCK_QUEUE_SIZE; i++)
		close(hosts[i]);
}

/* The guest of a snapshot: its streams are over, it is told so, and no port that it may know comes back. */
static void a_restored_device_resets_the_transport_and_reuses_no_port(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	struct fake_buffer buffer = {.address = fake_driver_alloc(driver, 4), .length = 4, .writable = true};
	uint32_t written, old_port;
	uint16_t head;

	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	establish(f);
	old_port = f->host_port;
	restore(f);
	expect_end_of_stream(f);
	start_connect(f); /* while the guest does not run yet */
	fake_vsock_expect_none(&f->guest);
	wake(f);
	fake_vsock_expect_none(&f->guest);
	assert_true(fake_driver_used(driver, FAKE_EVENT, &head, &written));
	assert_int_equal(written, 4);
	fake_vsock_send_op(&f->guest, OP_RW, GUEST_PORT, old_port); /* the guest does not know yet */
	expect_reset_of(f, GUEST_PORT, old_port);
	fake_driver_offer(driver, FAKE_EVENT, head);
	assert_true(fake_driver_must_kick(driver, FAKE_EVENT));
	fake_driver_kick(driver, FAKE_EVENT);
	expect_request(f);
	assert_int_equal(f->host_port, old_port + 1);
}

/* Saved again before the guest has acted on the first event: it then has two, and must be through with both.
 */
static void a_request_waits_for_the_events_of_all_snapshots(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	struct fake_buffer buffer = {.address = fake_driver_alloc(driver, 4), .length = 4, .writable = true};
	uint16_t heads[3];
	uint32_t written;

	for (unsigned i = 0; i < 4; i++)
		fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	for (unsigned i = 0; i < 3; i++) {
		restore(f);
		wake(f);
		assert_true(fake_driver_used(driver, FAKE_EVENT, &heads[i], &written));
	}
	start_connect(f);
	for (unsigned i = 0; i < 3; i++) {
		fake_vsock_expect_none(&f->guest);
		fake_driver_offer(driver, FAKE_EVENT, heads[i]);
		assert_int_equal(fake_driver_must_kick(driver, FAKE_EVENT), i == 2);
		fake_driver_kick(driver, FAKE_EVENT);
	}
	expect_request(f);
}

static void ports_out_of_range_are_not_restored(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	struct vsock_config config = {.cid = FAKE_CID, .loop = driver->loop};
	static const struct {
		uint32_t port;
		int wanted;
	} cases[] = {{VSOCK_HOST_PORT_FIRST, 0}, {VSOCK_HOST_PORT_LAST, 0},
		{VSOCK_HOST_PORT_FIRST - 1, -EBADMSG}, {VSOCK_HOST_PORT_LAST + 1, -EBADMSG}, {0, -EBADMSG}};
	uint8_t bytes[FAKE_STATE_MAX];
	struct state_writer writer;

	state_writer_init(&writer, bytes, sizeof(bytes));
	virtio_mmio_save(driver->mmio, &writer);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(bytes + writer.length - 8, &cases[i].port, 4);
		assert_int_equal(vsock_create(&config, &f->guest.device), 0);
		assert_int_equal(
			fake_driver_load(driver, f->guest.device, bytes, writer.length), cases[i].wanted);
	}
}

static void a_reset_that_cannot_be_told_holds_no_request_up(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;

	fake_driver_negotiate(driver, FEATURES);
	for (unsigned queue = FAKE_RX; queue <= FAKE_TX; queue++) { /* and no event queue */
		fake_driver_place_queue(driver, queue, VSOCK_QUEUE_SIZE);
		fake_driver_write(driver, VIRTIO_MMIO_QUEUE_READY, 1);
	}
	fake_driver_write(driver, VIRTIO_MMIO_STATUS, 0xf);
	restore(f);
	start_connect(f); /* there is no buffer for the request */
	wake(f);
	fake_vsock_offer_rx(&f->guest, 0, 1);
	fake_driver_kick(driver, FAKE_RX);
	expect_request(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
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
		CASE(a_request_waits_until_a_transport_reset_is_understood),
		CASE(a_request_that_waits_for_a_transport_reset_survives_a_new_driver),
		CASE(a_request_without_a_buffer_waits_for_a_transport_reset_too),
		CASE(a_restored_device_resets_the_transport_and_reuses_no_port),
		CASE(a_request_waits_for_the_events_of_all_snapshots),
		CASE(ports_out_of_range_are_not_restored),
		CASE_BEFORE_START(a_reset_that_cannot_be_told_holds_no_request_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
