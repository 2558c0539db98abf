/* SPDX-License-Identifier: Apache-2.0 */
/* An upgraded connection to a whole daemon: frames, and what is expected of them. */
#ifndef TESTS_UNIT_HOSTCTL_STREAM_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_STREAM_FIXTURE_H

#include "tests/unit/hostctl_fixture.h"

#define UPGRADE "Connection: Upgrade\r\nUpgrade: tinderbox-frames\r\n"

/* An upgraded connection, its 101 read. */
struct stream {
	int fd;
	struct frame_reader reader;
	struct frame frame;
};

/* POSTs the body; the status of the answer, and its head. */
static inline int open_stream_at(const struct daemon *daemon, struct stream *stream, const char *path,
	const char *body, char head[2048])
{
	int status;

	stream->fd = client_open(daemon);
	assert_int_equal(frame_reader_init(&stream->reader, AGENT_FRAME_MAX), 0);
	client_request(stream->fd, "POST", path, UPGRADE, body);
	status = client_read_head(stream->fd, head, 2048);
	if (status == 101)
		assert_non_null(strstr(head, "Upgrade: tinderbox-frames\r\n"));
	return status;
}

static inline void close_stream(struct stream *stream)
{
	close(stream->fd);
	frame_reader_finish(&stream->reader);
}

static inline bool next_frame(struct stream *stream)
{
	int status;

	while ((status = frame_reader_next(&stream->reader, &stream->frame)) == 0)
		if (frame_reader_fill(&stream->reader, stream->fd) <= 0)
			return false;
	assert_int_equal(status, 1);
	return true;
}

static inline void expect(struct stream *stream, int type)
{
	assert_true(next_frame(stream));
	assert_int_equal(stream->frame.type, type);
}

static inline void expect_output(struct stream *stream, int type, uint64_t offset, const char *text)
{
	struct agent_output output;

	expect(stream, type);
	assert_int_equal(stream->frame.length, sizeof output + strlen(text));
	memcpy(&output, stream->frame.payload, sizeof output);
	assert_int_equal(output.offset, offset);
	assert_memory_equal(stream->frame.payload + sizeof output, text, strlen(text));
}

static inline void expect_end(struct stream *stream)
{
	assert_false(next_frame(stream));
	assert_int_equal(frame_reader_partial(&stream->reader), 0);
	close_stream(stream);
}

static inline void expect_error(struct stream *stream, const char *code, const char *message)
{
	json_t *object, *error;

	expect(stream, AGENT_HOST_ERROR);
	object = json_loadb((const char *)stream->frame.payload, stream->frame.length, 0, NULL);
	error = json_object_get(object, "error");
	assert_string_equal(json_string_value(json_object_get(error, "code")), code);
	assert_string_equal(json_string_value(json_object_get(error, "message")), message);
	json_decref(object);
	expect_end(stream);
}

static inline void send_frame(struct stream *stream, int type, const void *payload, size_t length)
{
	assert_int_equal(frame_write(stream->fd, (uint8_t)type, payload, length, NULL, 0), 0);
}

/* The terminal frame, and nothing after it. */
static inline void expect_exit(struct stream *stream, int kind, int code)
{
	struct agent_exit ending;

	expect(stream, AGENT_EXIT);
	assert_int_equal(stream->frame.length, sizeof ending);
	memcpy(&ending, stream->frame.payload, sizeof ending);
	assert_int_equal(ending.kind, kind);
	assert_int_equal(ending.code, code);
	expect_end(stream);
}

#endif
