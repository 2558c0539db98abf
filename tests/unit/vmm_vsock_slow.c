/* SPDX-License-Identifier: Apache-2.0 */
/* vsock: readers on the host that are slow, and what the guest is asked for. */
#include "tests/unit/vmm_vsock_flow_fixture.h"

/* credit to the host */

/* Fills the host socket and then all that the device holds. */
static void fill_to_the_brim(struct fixture *f, struct stream *stream)
{
	while (guest_credit(stream)) {
		guest_send(f, stream, guest_credit(stream) < 5003 ? guest_credit(stream) : 5003);
		guest_receive(f);
	}
	assert_false(stream->ended);
	assert_true(stream->sent >= VSOCK_BUFFER);
}

static void a_slow_reader_holds_the_guest_back(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f), *other = open_stream(f);

	fill_to_the_brim(f, stream);
	assert_idle(f);
	guest_send(f, other, 1000); /* nobody else is held */
	assert_false(host_read(f, other, UINT32_MAX));
	assert_int_equal(other->host_read, 1000);
	host_write(f, stream, 5000); /* nor is the other way */
	assert_int_equal(guest_receive(f), 5000);
	while (stream->host_read < stream->sent) {
		host_read(f, stream, CHUNK);
		guest_receive(f);
	}
	assert_true(guest_credit(stream) >= VSOCK_BUFFER / 2); /* told of it without being asked */
	guest_send(f, stream, CHUNK);
	assert_false(host_read(f, stream, UINT32_MAX));
	assert_int_equal(stream->host_read, stream->sent);
	assert_idle(f);
}

/* The buffer is filled and drained around its end many times, in steps that fit neither it nor each other. */
static void bytes_that_are_held_stay_in_order(void **state)
{
	enum { TOTAL = 3 * 1024 * 1024 };
	struct fixture *f = *state;
	struct stream *stream = open_narrow_stream(f);
	uint32_t size = 3, least = VSOCK_BUFFER;
	unsigned updates = 0;

	for (unsigned round = 0; stream->host_read < TOTAL; round++) {
		uint32_t length = TOTAL - stream->sent;

		assert_true(round < 100000);
		size = (size * 5 + 1) % 9973;
		length = length < size ? length : size;
		if (length && length <= guest_credit(stream))
			guest_send(f, stream, length);
		least = guest_credit(stream) < least ? guest_credit(stream) : least;
		if (round % 5 == 0)
			host_read(f, stream, 3 * size);
		else if (guest_credit(stream) < 10000)
			host_read(f, stream, 1777);
		while (fake_vsock_receive(&f->guest, &f->packet)) {
			assert_int_equal(f->packet.header.op, OP_CREDIT_UPDATE);
			stream->peer_forwarded = f->packet.header.fwd_cnt;
			updates++;
		}
	}
	assert_int_equal(stream->host_read, TOTAL);
	assert_true(least < 10000);			    /* it was full again and again */
	assert_true(updates <= TOTAL / (VSOCK_BUFFER / 4)); /* not one for each little read */
	assert_true(updates >= TOTAL / VSOCK_BUFFER - 1);
	assert_idle(f);
}

static void a_byte_beyond_the_credit_resets(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_narrow_stream(f);

	fill_to_the_brim(f, stream);
	guest_send(f, stream, 1);
	guest_receive(f);
	assert_true(stream->ended);
	assert_int_equal(f->packet.header.op, OP_RST);
	while (!host_read(f, stream, CHUNK))
		;
	assert_true(stream->host_read < stream->sent); /* closed at once */
	open_stream(f);
}

static void a_credit_request_is_answered(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);

	guest_send(f, stream, 100);
	fake_vsock_expect_none(&f->guest); /* there is room enough */
	send_op(f, stream, OP_CREDIT_REQUEST, 0);
	fake_vsock_expect(&f->guest, OP_CREDIT_UPDATE, &f->packet);
	assert_int_equal(f->packet.header.fwd_cnt, 100);
	fake_vsock_expect_none(&f->guest);
}

static void updates_come_in_time_and_not_too_often(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	unsigned updates = 0;

	for (unsigned i = 0; i < 1024; i++) { /* 4 MiB to a reader that keeps up */
		assert_true(guest_credit(stream) >= 4096);
		guest_send(f, stream, 4096);
		host_read(f, stream, UINT32_MAX);
		while (fake_vsock_receive(&f->guest, &f->packet)) {
			assert_int_equal(f->packet.header.op, OP_CREDIT_UPDATE);
			stream->peer_forwarded = f->packet.header.fwd_cnt;
			updates++;
		}
	}
	assert_true(
		updates >= 4 * 1024 * 1024 / VSOCK_BUFFER &&
		updates <= 4 * 1024 * 1024 / (VSOCK_BUFFER / 2)); /* about one for each half of the buffer */
}

static void what_was_sent_before_a_close_arrives(void **state)
{
	struct fixture *f = *state;

	for (unsigned how = 0; how < 3; how++) {
		struct stream *stream = open_narrow_stream(f);

		fill_to_the_brim(f, stream);
		if (how == 0) {
			send_op(f, stream, OP_SHUTDOWN,
				VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND);
			fake_vsock_expect(&f->guest, OP_RST, &f->packet); /* the guest need not wait */
		} else if (how == 1) {
			send_op(f, stream, OP_RST, 0);
		} else {
			fake_vsock_start(&f->guest, VIRTIO_FEATURES_COMMON); /* resets the device */
			fake_driver_run(&f->guest.driver);
		}
		fake_vsock_expect_none(&f->guest);
		assert_idle(f);
		while (!host_read(f, stream, CHUNK))
			fake_driver_run(&f->guest.driver);
		assert_int_equal(stream->host_read, stream->sent);
		fake_vsock_expect_none(&f->guest);
	}
}

static void half_closed_with_bytes_held_ends_after_them(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_narrow_stream(f);

	fill_to_the_brim(f, stream);
	send_op(f, stream, OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
	while (!host_read(f, stream, CHUNK))
		guest_receive(f);
	assert_int_equal(stream->host_read, stream->sent);
	assert_false(stream->ended);
	host_write(f, stream, 500);
	assert_int_equal(guest_receive(f), 500);
}

static void a_reader_that_leaves_with_bytes_held_is_forgotten(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_narrow_stream(f);

	fill_to_the_brim(f, stream);
	close(stream->host);
	stream->host = -1;
	fake_driver_run(&f->guest.driver);
	guest_receive(f);
	assert_true(stream->ended);
	assert_int_equal(guest_credit(stream), VSOCK_BUFFER); /* all of it counts as forwarded */
	assert_idle(f);
	send_op(f, stream, OP_RST, 0);
	fake_vsock_expect_none(&f->guest);
}

static void a_reader_that_leaves_after_the_guest_ends_it(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_narrow_stream(f);

	fill_to_the_brim(f, stream);
	send_op(f, stream, OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND);
	fake_vsock_expect(&f->guest, OP_RST, &f->packet);
	close(stream->host);
	stream->host = -1;
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect_none(&f->guest);
	assert_idle(f);
}

/* notifications */

static void only_tx_is_notified_at_first(void **state)
{
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	struct fake_buffer buffer = {.address = f->guest.tx_data, .length = 64};

	fake_driver_start(driver, VIRTIO_FEATURES_COMMON);
	fake_driver_run(driver);
	fake_driver_offer(driver, FAKE_TX, fake_driver_chain(driver, FAKE_TX, &buffer, 1));
	assert_true(fake_driver_must_kick(driver, FAKE_TX));
	for (unsigned i = 0; i < 128; i++) {
		fake_vsock_offer_rx(&f->guest, i, 1);
		assert_false(fake_driver_must_kick(driver, FAKE_RX));
	}
	buffer.writable = true;
	fake_driver_offer(driver, FAKE_EVENT, fake_driver_chain(driver, FAKE_EVENT, &buffer, 1));
	assert_false(fake_driver_must_kick(driver, FAKE_EVENT));
}

static void rx_buffers_are_asked_for_only_when_starved(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	struct fake_driver *driver = &f->guest.driver;

	for (unsigned i = 0; i < 300; i++) {
		host_write(f, stream, 10);
		fake_vsock_expect(&f->guest, OP_RW, &f->packet);
		assert_false(fake_driver_must_kick(driver, FAKE_RX));
	}
	f->guest.rx_held = true;
	for (unsigned i = 0; i < 128; i++)
		send_op(f, stream, OP_CREDIT_REQUEST, 0);
	host_write(f, stream, 10);
	fake_vsock_offer_rx(&f->guest, 5, 1);
	assert_true(fake_driver_must_kick(driver, FAKE_RX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_slow_reader_holds_the_guest_back),
		CASE_WITHOUT_EVENT_INDEX(a_slow_reader_holds_the_guest_back),
		CASE(bytes_that_are_held_stay_in_order),
		CASE(a_byte_beyond_the_credit_resets),
		CASE(a_credit_request_is_answered),
		CASE(updates_come_in_time_and_not_too_often),
		CASE(what_was_sent_before_a_close_arrives),
		CASE(half_closed_with_bytes_held_ends_after_them),
		CASE(a_reader_that_leaves_with_bytes_held_is_forgotten),
		CASE(a_reader_that_leaves_after_the_guest_ends_it),
		CASE(only_tx_is_notified_at_first),
		CASE(rx_buffers_are_asked_for_only_when_starved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
