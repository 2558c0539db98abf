/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of known bytes, with the credit of both sides. Their tests: vmm_vsock_flow.c, vmm_vsock_slow.c. */
#ifndef TESTS_UNIT_VMM_VSOCK_FLOW_FIXTURE_H
#define TESTS_UNIT_VMM_VSOCK_FLOW_FIXTURE_H

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
static inline uint8_t byte_at(
	const struct fixture *f, const struct stream *stream, bool to_guest, uint64_t offset)
{
	uint64_t seed = (uint64_t)(stream - f->streams) * 2 + to_guest;

	return (uint8_t)(((offset + seed * 1000003) * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

static inline void on_done(void *context, int status)
{
	*(int *)context = status;
}

/* send_buffer: of the device's end; the device then writes little at a time. 0: as it is. */
static inline struct stream *open_stream_with(struct fixture *f, int send_buffer)
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

static inline struct stream *open_stream(struct fixture *f)
{
	return open_stream_with(f, 0);
}

/* Whose host socket takes no packet whole. */
static inline struct stream *open_narrow_stream(struct fixture *f)
{
	return open_stream_with(f, SMALLEST_BUFFER);
}

static inline int setup_with(void **state, uint64_t features)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_vsock_init(&f->guest);
	fake_vsock_start(&f->guest, features);
	*state = f;
	return 0;
}

static inline int setup(void **state)
{
	return setup_with(state, VIRTIO_FEATURES_COMMON);
}

static inline int setup_without_event_index(void **state)
{
	return setup_with(state, VIRTIO_FEATURE(VIRTIO_F_VERSION_1));
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	fake_vsock_finish(&f->guest);
	for (unsigned i = 0; i < f->count; i++)
		if (f->streams[i].host >= 0)
			close(f->streams[i].host);
	free(f);
	return 0;
}

static inline struct virtio_vsock_hdr header(const struct stream *stream, uint16_t op)
{
	struct virtio_vsock_hdr result = fake_vsock_header(op, GUEST_PORT, stream->host_port);

	result.fwd_cnt = stream->forwarded;
	return result;
}

static inline void send_op(struct fixture *f, struct stream *stream, uint16_t op, uint32_t flags)
{
	struct virtio_vsock_hdr packet = header(stream, op);

	packet.flags = flags;
	fake_vsock_send(&f->guest, &packet, NULL, 0);
}

static inline uint32_t guest_credit(const struct stream *stream)
{
	return VSOCK_BUFFER - (stream->sent - stream->peer_forwarded);
}

/* Sends the next bytes, whatever the credit. */
static inline void guest_send(struct fixture *f, struct stream *stream, uint32_t length)
{
	struct virtio_vsock_hdr packet = header(stream, OP_RW);

	packet.len = length;
	for (uint32_t i = 0; i < length; i++)
		f->chunk[i] = byte_at(f, stream, false, stream->sent + i);
	stream->sent += length;
	fake_vsock_send(&f->guest, &packet, f->chunk, length);
}

static inline struct stream *find_stream(struct fixture *f, uint32_t host_port)
{
	for (unsigned i = 0; i < f->count; i++)
		if (f->streams[i].host_port == host_port)
			return &f->streams[i];
	fail_msg("a packet of no stream: port %u", host_port);
	return NULL;
}

/* Takes packets until there are none: credit and data, checked. Returns the bytes of data. */
static inline uint64_t guest_receive(struct fixture *f)
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
static inline void host_write(struct fixture *f, struct stream *stream, uint64_t length)
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
static inline bool host_read(struct fixture *f, struct stream *stream, uint64_t length)
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

static inline void assert_idle(struct fixture *f)
{
	fake_driver_assert_idle(&f->guest.driver);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CASE_WITHOUT_EVENT_INDEX(name)                                                                       \
	{                                                                                                    \
#name " without the event index", name, setup_without_event_index, teardown, NULL            \
	}

#endif
