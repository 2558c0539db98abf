/* SPDX-License-Identifier: Apache-2.0 */
/* vsock: bytes both ways, and the guest's credit. How connections begin: vmm_vsock.c. */
#include "tests/unit/vmm_vsock_flow_fixture.h"

/* bytes */

static void megabytes_go_both_ways(void **state)
{
	enum { TOTAL = 3 * 1024 * 1024 };
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	uint32_t size = 1;

	for (unsigned round = 0; stream->host_read < TOTAL || stream->received < TOTAL; round++) {
		uint32_t credit = guest_credit(stream), length = TOTAL - stream->sent;

		assert_true(round < 100000);
		size = size * 7 % 65521;
		length = length < size ? length : size;
		length = length < credit ? length : credit;
		if (length)
			guest_send(f, stream, length);
		host_write(f, stream, TOTAL - stream->host_wrote < size ? TOTAL - stream->host_wrote : size);
		guest_receive(f);
		stream->forwarded = stream->received;
		send_op(f, stream, OP_CREDIT_UPDATE, 0);
		host_read(f, stream, size * 2);
		guest_receive(f);
	}
	assert_int_equal(stream->received, TOTAL);
	assert_int_equal(stream->host_read, TOTAL);
	assert_idle(f);
}

static void a_packet_of_the_largest_size_passes_and_one_more_byte_does_not(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);

	guest_send(f, stream, VSOCK_PACKET_MAX);
	assert_false(host_read(f, stream, UINT32_MAX));
	assert_int_equal(stream->host_read, VSOCK_PACKET_MAX);
	fake_vsock_send_data(&f->guest, GUEST_PORT, stream->host_port,
		fake_driver_at(&f->guest.driver, f->guest.tx_data, VSOCK_PACKET_MAX + 1),
		VSOCK_PACKET_MAX + 1);
	assert_true(host_read(f, stream, UINT32_MAX));
	guest_receive(f);
	assert_true(stream->ended);
}

static void a_packet_may_lie_in_many_pieces(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	struct fake_driver *driver = &f->guest.driver;
	struct virtio_vsock_hdr packet = header(stream, OP_RW);
	struct fake_buffer buffers[60];
	uint8_t *data;
	uint16_t head;
	uint32_t written;

	/* header and data cut anywhere, even together */
	packet.len = 46;
	data = fake_driver_at(driver, f->guest.tx_data, 90);
	memcpy(data, &packet, sizeof(packet));
	for (uint32_t i = 0; i < 46; i++)
		data[sizeof(packet) + i] = byte_at(f, stream, false, i);
	for (unsigned i = 0; i < 60; i++)
		buffers[i] =
			(struct fake_buffer){.address = f->guest.tx_data + (i < 30 ? i : 30 + 2 * (i - 30)),
				.length = i < 30 ? 1 : 2};
	fake_driver_offer(driver, FAKE_TX, fake_driver_chain(driver, FAKE_TX, buffers, 60));
	fake_driver_kick(driver, FAKE_TX);
	assert_true(fake_driver_used(driver, FAKE_TX, &head, &written));
	assert_false(host_read(f, stream, 100));
	assert_int_equal(stream->host_read, 46);
}

/* 5.10.6: the buffers may be longer than the payload. */
static void a_packet_ends_where_its_header_says(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	struct virtio_vsock_hdr packet = header(stream, OP_RW);

	for (uint32_t i = 0; i < 10; i++)
		f->chunk[i] = byte_at(f, stream, false, i);
	packet.len = 3;
	fake_vsock_send(&f->guest, &packet, f->chunk, 10);
	assert_false(host_read(f, stream, 100));
	assert_int_equal(stream->host_read, 3);
}

static void an_rx_buffer_may_lie_in_many_pieces(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	struct fake_driver *driver = &f->guest.driver;
	gpa_t at = fake_driver_alloc(driver, 64);
	struct fake_buffer buffers[] = {{.address = at, .length = 40, .writable = true},
		{.address = at + 40, .length = 6, .writable = true},
		{.address = at + 46, .length = 9, .writable = true}};
	struct virtio_vsock_hdr packet;
	uint16_t head;
	uint32_t written;
	uint8_t *data = fake_driver_at(driver, at, 64);

	f->guest.rx_held = true;
	for (unsigned i = 0; i < 127; i++) { /* use up the ordinary ones */
		send_op(f, stream, OP_CREDIT_REQUEST, 0);
		fake_vsock_expect(&f->guest, OP_CREDIT_UPDATE, &f->packet);
	}
	host_write(f, stream, 1); /* the one that came back for the REQUEST */
	assert_int_equal(guest_receive(f), 1);
	driver->queues[FAKE_RX].next_desc = 0;
	fake_driver_offer(driver, FAKE_RX, fake_driver_chain(driver, FAKE_RX, buffers, 3));
	host_write(f, stream, 20);
	assert_true(fake_driver_used(driver, FAKE_RX, &head, &written));
	assert_int_equal(written, 55);
	memcpy(&packet, data, sizeof(packet));
	assert_int_equal(packet.op, OP_RW);
	assert_int_equal(packet.len, 11);
	for (uint32_t i = 0; i < 11; i++)
		assert_int_equal(data[44 + i], byte_at(f, stream, true, 1 + i));
}

static void bytes_that_just_fill_the_buffers_are_all(void **state)
{
	enum { ROOM = FAKE_RX_BYTES - sizeof(struct virtio_vsock_hdr) };
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);

	host_write(f, stream, 2 * ROOM); /* the second read leaves nothing, and only a third can tell */
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	assert_int_equal(f->packet.header.len, ROOM);
	fake_vsock_expect(&f->guest, OP_RW, &f->packet);
	assert_int_equal(f->packet.header.len, ROOM);
	fake_vsock_expect_none(&f->guest);
	stream->received = 2 * ROOM;
	assert_idle(f);
	host_write(f, stream, 1);
	assert_int_equal(guest_receive(f), 1);
	for (unsigned i = 0; i < 300; i++) { /* no buffer is lost by looking in vain */
		host_write(f, stream, ROOM);
		assert_int_equal(guest_receive(f), ROOM);
		stream->forwarded = stream->received;
		send_op(f, stream, OP_CREDIT_UPDATE, 0);
	}
}

/* 128 packets are a round of the loop; there is more to send than that, and buffers for all of it. */
static void more_than_a_round_of_packets_is_sent_without_the_driver(void **state)
{
	struct fixture *f = *state;
	struct stream *first = open_stream(f), *second = open_stream(f);
	uint64_t received = 0;

	for (unsigned i = 0; i < 20 && received < 2 * FAKE_BUFFER; i++) {
		host_write(f, first, UINT32_MAX);
		host_write(f, second, UINT32_MAX);
		received += guest_receive(f);
	}
	assert_int_equal(first->received, FAKE_BUFFER);
	assert_int_equal(second->received, FAKE_BUFFER);
	assert_idle(f);
	first->forwarded = first->received;
	send_op(f, first, OP_CREDIT_UPDATE, 0);
	assert_true(guest_receive(f) > 0);
}

static void many_streams_share_few_buffers(void **state)
{
	enum { STREAMS = STREAMS_MAX, EACH = 20000, BUFFERS = 4 };
	struct fixture *f = *state;
	struct fake_driver *driver = &f->guest.driver;
	uint16_t heads[BUFFERS];
	uint64_t bytes = 0;
	uint32_t written;

	for (unsigned i = 0; i < STREAMS; i++)
		open_stream(f);
	f->guest.rx_held = true;
	/* keep all but a few of the buffers */
	for (unsigned i = 0; i < 128; i++)
		send_op(f, &f->streams[0], OP_CREDIT_REQUEST, 0);
	for (unsigned i = 0; i < 128 - BUFFERS; i++)
		fake_vsock_expect(&f->guest, OP_CREDIT_UPDATE, &f->packet);
	for (unsigned i = 0; i < BUFFERS; i++)
		assert_true(fake_driver_used(driver, FAKE_RX, &heads[i], &written));
	for (unsigned i = 0; i < STREAMS; i++)
		host_write(f, &f->streams[i], EACH);
	assert_idle(f); /* starved, with all sockets full */
	for (unsigned round = 0; bytes < (uint64_t)STREAMS * EACH; round++) {
		uint64_t got;

		assert_true(round < 10000);
		for (unsigned i = 0; i < BUFFERS; i++) {
			fake_driver_offer(driver, FAKE_RX, heads[i]);
			assert_int_equal(fake_driver_must_kick(driver, FAKE_RX), i == 0);
		}
		fake_driver_kick(driver, FAKE_RX);
		got = guest_receive(f); /* they are used in turn: the same heads come again */
		bytes += got;
		if (round == STREAMS / BUFFERS) /* each has had its turn, none two much more */
			for (unsigned i = 0; i < STREAMS; i++)
				assert_true(f->streams[i].received > 0 && f->streams[i].received < EACH / 2);
	}
	for (unsigned i = 0; i < STREAMS; i++)
		assert_int_equal(f->streams[i].received, EACH);
	assert_idle(f);
}

/* credit to the guest */

static void the_host_waits_for_the_guests_credit(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	unsigned asked = 0;

	for (unsigned i = 0; i < 20; i++) {
		host_write(f, stream, UINT32_MAX);
		while (fake_vsock_receive(&f->guest, &f->packet)) {
			asked += f->packet.header.op == OP_CREDIT_REQUEST;
			stream->received += f->packet.header.len;
		}
	}
	assert_int_equal(stream->received, FAKE_BUFFER); /* to the byte */
	assert_int_equal(asked, 1);
	assert_idle(f);
	send_op(f, stream, OP_CREDIT_UPDATE, 0); /* nothing new */
	assert_int_equal(guest_receive(f), 0);
	stream->forwarded = 1000;
	send_op(f, stream, OP_CREDIT_UPDATE, 0);
	assert_int_equal(guest_receive(f), 1000);
	stream->forwarded = stream->received;
	send_op(f, stream, OP_CREDIT_UPDATE, 0);
	while (stream->received < stream->host_wrote) {
		assert_true(guest_receive(f) > 0);
		stream->forwarded = stream->received;
		send_op(f, stream, OP_CREDIT_UPDATE, 0);
	}
	assert_idle(f);
}

static void a_guest_that_claims_nonsense_of_its_credit_gets_nothing(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);
	struct virtio_vsock_hdr packet = header(stream, OP_CREDIT_UPDATE);

	packet.fwd_cnt = 5; /* of bytes that were never sent */
	fake_vsock_send(&f->guest, &packet, NULL, 0);
	host_write(f, stream, 100);
	assert_int_equal(guest_receive(f), 0);
	packet.fwd_cnt = 0;
	packet.buf_alloc = 0;
	fake_vsock_send(&f->guest, &packet, NULL, 0);
	assert_int_equal(guest_receive(f), 0);
	packet.buf_alloc = 30; /* shrunk: the rest waits */
	fake_vsock_send(&f->guest, &packet, NULL, 0);
	assert_int_equal(guest_receive(f), 30);
	packet.buf_alloc = UINT32_MAX;
	fake_vsock_send(&f->guest, &packet, NULL, 0);
	assert_int_equal(guest_receive(f), 70);
	assert_idle(f);
}

static void a_hang_up_without_credit_does_not_spin(void **state)
{
	struct fixture *f = *state;
	struct stream *stream = open_stream(f);

	for (unsigned i = 0; i < 20; i++) {
		host_write(f, stream, UINT32_MAX);
		guest_receive(f);
	}
	close(stream->host);
	stream->host = -1;
	assert_idle(f);
	while (!stream->ended) { /* what was written before comes, then the end */
		stream->forwarded = stream->received;
		send_op(f, stream, OP_CREDIT_UPDATE, 0);
		guest_receive(f);
	}
	assert_int_equal(stream->received, stream->host_wrote);
	assert_int_equal(f->packet.header.flags, VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND);
	assert_idle(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(megabytes_go_both_ways),
		CASE_WITHOUT_EVENT_INDEX(megabytes_go_both_ways),
		CASE(a_packet_of_the_largest_size_passes_and_one_more_byte_does_not),
		CASE(a_packet_may_lie_in_many_pieces),
		CASE(a_packet_ends_where_its_header_says),
		CASE(an_rx_buffer_may_lie_in_many_pieces),
		CASE(bytes_that_just_fill_the_buffers_are_all),
		CASE(more_than_a_round_of_packets_is_sent_without_the_driver),
		CASE(many_streams_share_few_buffers),
		CASE(the_host_waits_for_the_guests_credit),
		CASE_WITHOUT_EVENT_INDEX(the_host_waits_for_the_guests_credit),
		CASE(a_guest_that_claims_nonsense_of_its_credit_gets_nothing),
		CASE(a_hang_up_without_credit_does_not_spin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
