/* SPDX-License-Identifier: Apache-2.0 */
/* vsock: bytes both ways, credit, and readers that are slow. How connections begin and end: vmm_vsock.c. */
#include "tests/support/unit.h"

#include "tests/support/fake_vsock.h"
#include "vmm/virtio/vsock.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	GUEST_PORT = 1024,
	STREAMS_MAX = 100,
	CHUNK = 64 * 1024,
	IDLE_MS = 60,
	SMALLEST_BUFFER = 1 /* the kernel takes more */
};
enum {
	OP_REQUEST = VIRTIO_VSOCK_OP_REQUEST,
	OP_RESPONSE = VIRTIO_VSOCK_OP_RESPONSE,
	OP_RST = VIRTIO_VSOCK_OP_RST,
	OP_SHUTDOWN = VIRTIO_VSOCK_OP_SHUTDOWN,
	OP_RW = VIRTIO_VSOCK_OP_RW,
	OP_CREDIT_UPDATE = VIRTIO_VSOCK_OP_CREDIT_UPDATE,
	OP_CREDIT_REQUEST = VIRTIO_VSOCK_OP_CREDIT_REQUEST
};

/* One connection: the guest's end with its credit, and the host's. */
struct stream {
	int host;
	uint32_t host_port;
	uint32_t sent, peer_forwarded; /* guest to host */
	uint32_t received, forwarded;  /* host to guest */
	uint64_t host_wrote, host_read;
	bool ended; /* SHUTDOWN or RST came */
};

struct fixture {
	struct fake_vsock guest;
	struct fake_packet packet;
	struct stream streams[STREAMS_MAX];
	unsigned count;
	uint8_t chunk[CHUNK];
};

/* The byte at an offset of a stream, one way or the other. */
static uint8_t byte_at(const struct fixture *f, const struct stream *stream, bool to_guest, uint64_t offset)
{
	uint64_t seed = (uint64_t)(stream - f->streams) * 2 + to_guest;

	return (uint8_t)(((offset + seed * 1000003) * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

static void on_done(void *context, int status)
{
	*(int *)context = status;
}

/* send_buffer: of the device's end; the device then writes little at a time. 0: as it is. */
static struct stream *open_stream_with(struct fixture *f, int send_buffer)
{
	struct stream *stream = &f->streams[f->count++];
	int fds[2], status = 1;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	if (send_buffer)
		assert_int_equal(
			setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer)), 0);
	stream->host = fds[0];
	assert_int_equal(vsock_connect(f->guest.device, GUEST_PORT, fds[1], on_done, &status), 0);
	fake_vsock_expect(&f->guest, OP_REQUEST, &f->packet);
	stream->host_port = f->packet.header.src_port;
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, stream->host_port);
	assert_int_equal(status, 0);
	return stream;
}

static struct stream *open_stream(struct fixture *f)
{
	return open_stream_with(f, 0);
}

/* Whose host socket takes no packet whole. */
static struct stream *open_narrow_stream(struct fixture *f)
{
	return open_stream_with(f, SMALLEST_BUFFER);
}

static int setup_with(void **state, uint64_t features)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_vsock_init(&f->guest);
	fake_vsock_start(&f->guest, features);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, VIRTIO_FEATURES_COMMON);
}

static int setup_without_event_index(void **state)
{
	return setup_with(state, VIRTIO_FEATURE(VIRTIO_F_VERSION_1));
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_vsock_finish(&f->guest);
	for (unsigned i = 0; i < f->count; i++)
		if (f->streams[i].host >= 0)
			close(f->streams[i].host);
	free(f);
	return 0;
}

static struct virtio_vsock_hdr header(const struct stream *stream, uint16_t op)
{
	struct virtio_vsock_hdr result = fake_vsock_header(op, GUEST_PORT, stream->host_port);

	result.fwd_cnt = stream->forwarded;
	return result;
}

static void send_op(struct fixture *f, struct stream *stream, uint16_t op, uint32_t flags)
{
	struct virtio_vsock_hdr packet = header(stream, op);

	packet.flags = flags;
	fake_vsock_send(&f->guest, &packet, NULL, 0);
}

static uint32_t guest_credit(const struct stream *stream)
{
	return VSOCK_BUFFER - (stream->sent - stream->peer_forwarded);
}

/* Sends the next bytes, whatever the credit. */
static void guest_send(struct fixture *f, struct stream *stream, uint32_t length)
{
	struct virtio_vsock_hdr packet = header(stream, OP_RW);

	packet.len = length;
	for (uint32_t i = 0; i < length; i++)
		f->chunk[i] = byte_at(f, stream, false, stream->sent + i);
	stream->sent += length;
	fake_vsock_send(&f->guest, &packet, f->chunk, length);
}

static struct stream *find_stream(struct fixture *f, uint32_t host_port)
{
	for (unsigned i = 0; i < f->count; i++)
		if (f->streams[i].host_port == host_port)
			return &f->streams[i];
	fail_msg("a packet of no stream: port %u", host_port);
	return NULL;
}

/* Takes packets until there are none: credit and data, checked. Returns the bytes of data. */
static uint64_t guest_receive(struct fixture *f)
{
	uint64_t bytes = 0;

	while (fake_vsock_receive(&f->guest, &f->packet)) {
		const struct virtio_vsock_hdr *packet = &f->packet.header;
		struct stream *stream = find_stream(f, packet->src_port);

		stream->peer_forwarded = packet->fwd_cnt;
		assert_int_equal(packet->buf_alloc, VSOCK_BUFFER);
		if (packet->op == OP_SHUTDOWN || packet->op == OP_RST)
			stream->ended = true;
		for (uint32_t i = 0; i < packet->len; i++)
			if (f->packet.data[i] != byte_at(f, stream, true, stream->received + i))
				fail_msg("byte %u of a stream differs", stream->received + i);
		stream->received += packet->len;
		bytes += packet->len;
		assert_true(stream->received - stream->forwarded <= FAKE_BUFFER);
	}
	return bytes;
}

/* Writes what the socket takes, at most length; the device has done all it can then. */
static void host_write(struct fixture *f, struct stream *stream, uint64_t length)
{
	while (length) {
		size_t run = length < CHUNK ? length : CHUNK;
		ssize_t written;

		for (size_t i = 0; i < run; i++)
			f->chunk[i] = byte_at(f, stream, true, stream->host_wrote + i);
		written = send(stream->host, f->chunk, run, MSG_NOSIGNAL);
		if (written < 0)
			break;
		stream->host_wrote += (uint64_t)written;
		length -= (uint64_t)written;
	}
	fake_driver_run(&f->guest.driver);
}

/* Reads and checks all there is, at most length. True: the end came. */
static bool host_read(struct fixture *f, struct stream *stream, uint64_t length)
{
	ssize_t got = 0;

	while (length && (got = read(stream->host, f->chunk, length < CHUNK ? length : CHUNK)) > 0) {
		for (ssize_t i = 0; i < got; i++)
			if (f->chunk[i] != byte_at(f, stream, false, stream->host_read + (uint64_t)i))
				fail_msg("byte %lu to the host differs", stream->host_read + (uint64_t)i);
		stream->host_read += (uint64_t)got;
		length -= (uint64_t)got;
	}
	fake_driver_run(&f->guest.driver);
	return length && got == 0;
}

static void assert_idle(struct fixture *f)
{
	fake_driver_assert_idle(&f->guest.driver);
}

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
	assert_int_equal(guest_credit(stream), VSOCK_BUFFER); /* told of it without being asked */
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
	assert_true(updates >= 32 && updates <= 64); /* about one for each half of the buffer */
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CASE_WITHOUT_EVENT_INDEX(name)                                                                       \
	{                                                                                                    \
#name " without the event index", name, setup_without_event_index, teardown, NULL            \
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
