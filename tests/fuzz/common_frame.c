/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of the agent protocol, both ways. A stream of any bytes, cut anywhere, must be read as a second
 * account of it reads the whole at once; what the queue was given must arrive, byte for byte; and a NEW that
 * is accepted has just the strings that it says.
 */
#include "common/frame.h"
#include "tests/fuzz/support/fuzz.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAM_MAX = 512 * 1024, QUEUE_LIMIT = 48 * 1024, PART_MAX = 40 * 1024 };

/* Bytes of which the tested code has no say. */
struct stream {
	uint8_t bytes[STREAM_MAX];
	size_t length;
};

static struct stream wanted, got; /* too large for the stack */

static void append(struct stream *stream, const void *data, size_t length)
{
	FUZZ_ASSERT(length <= STREAM_MAX - stream->length);
	if (length)
		memcpy(stream->bytes + stream->length, data, length);
	stream->length += length;
}

static void make_pair(int fds[2])
{
	FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
}

/* A NEW */

static void check_new(const struct frame *frame)
{
	struct agent_new_view view;
	const char *why = "", *at, *end = (const char *)frame->payload + frame->length;
	int r = frame_parse_new(frame, &view, &why);

	if (r < 0) {
		FUZZ_ASSERT(r == -EPROTO || r == -E2BIG || r == -EINVAL);
		FUZZ_ASSERT(why && why[0] != '\0');
		return;
	}
	FUZZ_ASSERT(r == 0 && !why && view.fixed.session != 0 && view.fixed.argc >= 1);
	FUZZ_ASSERT(view.fixed.argc <= AGENT_ARGC_MAX && view.fixed.envc <= AGENT_ENVC_MAX);
	at = view.strings;
	FUZZ_ASSERT(at[0] != '\0');
	for (uint32_t i = 0; i < view.fixed.argc + view.fixed.envc; i++)
		at += strlen(at) + 1;
	FUZZ_ASSERT(at == view.cwd);
	at += strlen(at) + 1;
	FUZZ_ASSERT(at == view.user);
	FUZZ_ASSERT(at + strlen(at) + 1 == end);
}

/* the reader */

/* Takes the frames that are there. Each is compared with the stream, at *at. False: the stream is over. */
static bool read_frames(struct frame_reader *reader, size_t *at)
{
	struct agent_frame_header header;
	struct frame frame;
	int r;

	while ((r = frame_reader_next(reader, &frame)) == 1) {
		FUZZ_ASSERT(wanted.length - *at >= sizeof(header));
		memcpy(&header, wanted.bytes + *at, sizeof(header));
		FUZZ_ASSERT(header.flags == 0 && header.reserved == 0);
		FUZZ_ASSERT(header.type == frame.type && header.length == frame.length);
		FUZZ_ASSERT(frame.length <= reader->maximum);
		*at += sizeof(header);
		FUZZ_ASSERT(memcmp(wanted.bytes + *at, frame.payload, frame.length) == 0);
		*at += frame.length;
		check_new(&frame);
	}
	FUZZ_ASSERT(reader->capacity <= AGENT_FRAME_HEADER + (size_t)AGENT_FRAME_MAX);
	if (r == 0)
		return true;
	FUZZ_ASSERT(wanted.length - *at >= sizeof(header));
	memcpy(&header, wanted.bytes + *at, sizeof(header));
	FUZZ_ASSERT(r == (header.flags || header.reserved ? -EPROTO : -EMSGSIZE));
	FUZZ_ASSERT(r == -EPROTO || header.length > reader->maximum);
	return false;
}

/* More of the stream comes: a piece of the input as it is, or a run of one byte. */
static size_t add_part(struct fuzz_input *input)
{
	uint8_t choice = fuzz_u8(input), fill = (uint8_t)(choice & 1 ? 'a' : 0);
	size_t before = wanted.length, length = choice >> 2;
	const uint8_t *bytes;

	if (!(choice & 2)) {
		bytes = fuzz_bytes(input, &length);
		append(&wanted, bytes, length);
		return length;
	}
	length = fuzz_u16(input) % PART_MAX;
	for (size_t i = 0; i < length && wanted.length < STREAM_MAX; i++)
		append(&wanted, &fill, 1);
	return wanted.length - before;
}

static void read_stream(struct fuzz_input *input)
{
	static const uint32_t maxima[] = {0, 8, 64, 4096, AGENT_FRAME_MAX};
	struct frame_reader reader;
	int fds[2], r;
	size_t at = 0;
	bool open = true;

	wanted.length = 0;
	make_pair(fds);
	FUZZ_ASSERT(frame_reader_init(&reader, maxima[fuzz_below(input, 5)]) == 0);
	while (open && fuzz_left(input) && wanted.length < STREAM_MAX - PART_MAX) {
		bool feeds = fuzz_one_in(input, 4);
		size_t length = add_part(input);
		const uint8_t *part = wanted.bytes + wanted.length - length;

		if (feeds && frame_reader_feed(&reader, part, length) == 0) {
			open = read_frames(&reader, &at);
			continue;
		}
		FUZZ_ASSERT(send(fds[1], part, length, MSG_NOSIGNAL) == (ssize_t)length);
		while (open && (r = frame_reader_fill(&reader, fds[0])) > 0)
			open = read_frames(&reader, &at);
		FUZZ_ASSERT(!open || r == -EAGAIN);
	}
	close(fds[1]);
	if (open) {
		FUZZ_ASSERT(frame_reader_fill(&reader, fds[0]) == 0);
		FUZZ_ASSERT(!frame_reader_partial(&reader) == (at == wanted.length));
	}
	close(fds[0]);
	frame_reader_finish(&reader);
}

/* the queue */

static void put_frame(struct fuzz_input *input, struct frame_queue *queue)
{
	static const uint8_t data[AGENT_FRAME_MAX + 1];
	uint8_t type = fuzz_u8(input);
	size_t head = fuzz_u8(input), tail = fuzz_one_in(input, 2) ? fuzz_u32(input) % (sizeof(data) + 1) : 0;
	struct agent_frame_header header = {.length = (uint32_t)(head + tail), .type = type};
	size_t room = frame_queue_room(queue), length = frame_queue_length(queue);
	int r = frame_queue_put(queue, type, data, head, tail ? data : NULL, tail);

	FUZZ_ASSERT(frame_queue_length(queue) <= queue->limit);
	if (r < 0) {
		FUZZ_ASSERT(r == -ENOBUFS && frame_queue_length(queue) == length);
		FUZZ_ASSERT(head + tail > AGENT_FRAME_MAX || sizeof(header) + head + tail > room);
		return;
	}
	FUZZ_ASSERT(frame_queue_length(queue) == length + sizeof(header) + head + tail);
	append(&wanted, &header, sizeof(header));
	append(&wanted, data, head);
	append(&wanted, data, tail);
}

static void drain(int fd, size_t limit)
{
	ssize_t n;

	if (limit > STREAM_MAX - got.length)
		limit = STREAM_MAX - got.length;
	n = recv(fd, got.bytes + got.length, limit, 0);
	if (n > 0)
		got.length += (size_t)n;
}

static void write_stream(struct fuzz_input *input)
{
	struct frame_queue queue;
	int fds[2], small = 1, r;

	wanted.length = got.length = 0;
	make_pair(fds);
	FUZZ_ASSERT(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
	frame_queue_init(&queue, fuzz_one_in(input, 2) ? QUEUE_LIMIT : fuzz_u16(input));
	while (fuzz_left(input) && wanted.length < STREAM_MAX - 2 * AGENT_FRAME_MAX) {
		uint8_t choice = fuzz_u8(input);

		if (choice & 1)
			put_frame(input, &queue);
		else if (choice & 2)
			drain(fds[1], (size_t)(choice >> 2) * 64);
		else
			FUZZ_ASSERT(
				(r = frame_queue_flush(&queue, fds[0])) == (frame_queue_length(&queue) > 0));
	}
	while ((r = frame_queue_flush(&queue, fds[0])) == 1)
		drain(fds[1], STREAM_MAX);
	FUZZ_ASSERT(r == 0 && frame_queue_length(&queue) == 0);
	for (size_t before = got.length + 1; before != got.length;) {
		before = got.length;
		drain(fds[1], STREAM_MAX);
	}
	FUZZ_ASSERT(got.length == wanted.length && memcmp(got.bytes, wanted.bytes, got.length) == 0);
	close(fds[1]);
	FUZZ_ASSERT(frame_queue_put(&queue, 1, NULL, 0, NULL, 0) < 0 ||
		    frame_queue_flush(&queue, fds[0]) == -EPIPE);
	close(fds[0]);
	frame_queue_finish(&queue);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	uint8_t choice = fuzz_u8(&input);
	struct frame frame = {.type = AGENT_NEW, .payload = input.at, .length = (uint32_t)fuzz_left(&input)};

	fuzz_begin();
	if (choice % 4 == 0)
		check_new(&frame);
	else if (choice % 4 == 1)
		write_stream(&input);
	else
		read_stream(&input);
	fuzz_end();
	return 0;
}
