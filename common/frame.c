/* SPDX-License-Identifier: Apache-2.0 */
#include "common/frame.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are copied as they are");

int frame_reader_init(struct frame_reader *reader, uint32_t maximum)
{
	*reader = (struct frame_reader){.maximum = maximum, .capacity = FRAME_READER_START};
	reader->buffer = malloc(reader->capacity);
	return reader->buffer ? 0 : -ENOMEM;
}

void frame_reader_finish(struct frame_reader *reader)
{
	free(reader->buffer);
	*reader = (struct frame_reader){0};
}

/* Unread bytes to the front of the buffer. */
static void compact(struct frame_reader *reader)
{
	if (reader->start == 0)
		return;
	memmove(reader->buffer, reader->buffer + reader->start, reader->end - reader->start);
	reader->end -= reader->start;
	reader->start = 0;
}

static int grow(struct frame_reader *reader, size_t capacity)
{
	uint8_t *buffer;

	if (capacity <= reader->capacity)
		return 0;
	buffer = realloc(reader->buffer, capacity);
	if (!buffer)
		return -ENOMEM;
	reader->buffer = buffer;
	reader->capacity = capacity;
	return 0;
}

int frame_reader_fill(struct frame_reader *reader, int fd)
{
	ssize_t n;

	if (reader->end == reader->capacity)
		compact(reader);
	/* Still full: the caller left whole frames unread. */
	if (reader->end == reader->capacity)
		return -ENOBUFS;
	do
		n = recv(fd, reader->buffer + reader->end, reader->capacity - reader->end, reader->flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	reader->end += (size_t)n;
	return (int)n;
}

int frame_reader_feed(struct frame_reader *reader, const void *data, size_t length)
{
	size_t largest = (size_t)reader->maximum + AGENT_FRAME_HEADER;
	int r;

	if (length > largest || reader->end - reader->start > largest - length)
		return -EMSGSIZE;
	compact(reader);
	r = grow(reader, reader->end + length);
	if (r < 0)
		return r;
	memcpy(reader->buffer + reader->end, data, length);
	reader->end += length;
	return 0;
}

int frame_reader_next(struct frame_reader *reader, struct frame *frame)
{
	struct agent_frame_header header;
	size_t have = reader->end - reader->start, need;

	if (have < sizeof(header))
		return 0;
	memcpy(&header, reader->buffer + reader->start, sizeof(header));
	if (header.flags != 0 || header.reserved != 0)
		return -EPROTO;
	if (header.length > reader->maximum)
		return -EMSGSIZE;
	need = sizeof(header) + header.length;
	if (have < need) {
		/* Room for the whole frame, so that the next fill can complete it. */
		if (reader->start + need > reader->capacity)
			compact(reader);
		return grow(reader, need);
	}
	*frame = (struct frame){
		.type = header.type,
		.length = header.length,
		.payload = reader->buffer + reader->start + sizeof(header),
	};
	reader->start += need;
	if (reader->start == reader->end)
		reader->start = reader->end = 0;
	return 1;
}

int frame_reader_has_room(const struct frame_reader *reader)
{
	return reader->end < reader->capacity;
}

int frame_reader_partial(const struct frame_reader *reader)
{
	return reader->end > reader->start;
}

/* A queue starts with, and an empty one keeps, this much. */
enum { QUEUE_START = 4096 };

void frame_queue_init(struct frame_queue *queue, size_t limit)
{
	*queue = (struct frame_queue){.limit = limit};
}

void frame_queue_finish(struct frame_queue *queue)
{
	free(queue->buffer);
	*queue = (struct frame_queue){.limit = queue->limit};
}

size_t frame_queue_length(const struct frame_queue *queue)
{
	return queue->end - queue->start;
}

size_t frame_queue_room(const struct frame_queue *queue)
{
	size_t length = frame_queue_length(queue);

	return length < queue->limit ? queue->limit - length : 0;
}

/* Makes room for `more` bytes at the end: moves what waits to the front, then doubles. */
static int queue_reserve(struct frame_queue *queue, size_t more)
{
	size_t length = frame_queue_length(queue), capacity = queue->capacity ? queue->capacity : QUEUE_START;
	uint8_t *buffer;

	if (queue->end + more <= queue->capacity)
		return 0;
	if (queue->start > 0) {
		memmove(queue->buffer, queue->buffer + queue->start, length);
		queue->start = 0;
		queue->end = length;
	}
	while (capacity < length + more)
		capacity *= 2;
	if (capacity == queue->capacity)
		return 0;
	buffer = realloc(queue->buffer, capacity);
	if (!buffer)
		return -ENOMEM;
	queue->buffer = buffer;
	queue->capacity = capacity;
	return 0;
}

static void queue_append(struct frame_queue *queue, const void *data, size_t length)
{
	if (length == 0)
		return;
	memcpy(queue->buffer + queue->end, data, length);
	queue->end += length;
}

static struct agent_frame_header make_header(uint8_t type, size_t length)
{
	return (struct agent_frame_header){.length = (uint32_t)length, .type = type};
}

/* The bytes of a frame in all, or 0 when they are too many for one. */
static size_t frame_size(size_t head_length, size_t tail_length)
{
	if (head_length > AGENT_FRAME_MAX || tail_length > AGENT_FRAME_MAX - head_length)
		return 0;
	return AGENT_FRAME_HEADER + head_length + tail_length;
}

int frame_queue_put(struct frame_queue *queue, uint8_t type, const void *head, size_t head_length,
	const void *tail, size_t tail_length)
{
	struct agent_frame_header header = make_header(type, head_length + tail_length);
	size_t size = frame_size(head_length, tail_length);
	int r;

	if (size == 0 || size > frame_queue_room(queue))
		return -ENOBUFS;
	r = queue_reserve(queue, size);
	if (r < 0)
		return r;
	queue_append(queue, &header, sizeof(header));
	queue_append(queue, head, head_length);
	queue_append(queue, tail, tail_length);
	return 0;
}

int frame_queue_flush(struct frame_queue *queue, int fd)
{
	while (queue->start < queue->end) {
		size_t length = queue->end - queue->start;
		ssize_t n = send(fd, queue->buffer + queue->start, length, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 1;
		if (n < 0)
			return -errno;
		queue->start += (size_t)n;
	}
	queue->start = queue->end = 0;
	if (queue->capacity > QUEUE_START)
		frame_queue_finish(queue);
	return 0;
}

int frame_write(
	int fd, uint8_t type, const void *head, size_t head_length, const void *tail, size_t tail_length)
{
	struct agent_frame_header header = make_header(type, head_length + tail_length);
	size_t size = frame_size(head_length, tail_length);
	struct iovec iov[3] = {
		{.iov_base = &header, .iov_len = sizeof(header)},
		{.iov_base = (void *)head, .iov_len = head_length},
		{.iov_base = (void *)tail, .iov_len = tail_length},
	};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 3};
	ssize_t n;

	if (size == 0)
		return -ENOBUFS;
	do
		n = sendmsg(fd, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EMSGSIZE;
}

/* Finds the end of `count` strings from *at on; false when they do not all end before `end`. */
static bool skip_strings(const char **at, const char *end, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *nul = *at < end ? memchr(*at, '\0', (size_t)(end - *at)) : NULL;

		if (!nul)
			return false;
		*at = nul + 1;
	}
	return true;
}

static int check_new(const struct agent_new *fixed, size_t rest, const char **why)
{
	*why = "NEW: the session's id is zero";
	if (fixed->session == 0)
		return -EPROTO;
	*why = "NEW: unknown flags";
	if (fixed->flags & ~(uint32_t)AGENT_NEW_KNOWN)
		return -EPROTO;
	*why = "NEW: the strings' length is not that of the frame";
	if (fixed->strings_length != rest)
		return -EPROTO;
	*why = "argv, env, cwd and user together are longer than AGENT_STRINGS_MAX";
	if (fixed->strings_length > AGENT_STRINGS_MAX)
		return -E2BIG;
	*why = "argv has more than AGENT_ARGC_MAX entries";
	if (fixed->argc > AGENT_ARGC_MAX)
		return -E2BIG;
	*why = "env has more than AGENT_ENVC_MAX entries";
	if (fixed->envc > AGENT_ENVC_MAX)
		return -E2BIG;
	*why = "argv is empty";
	return fixed->argc == 0 ? -EINVAL : 0;
}

int frame_parse_new(const struct frame *frame, struct agent_new_view *view, const char **why)
{
	const char *at, *end = (const char *)frame->payload + frame->length;
	int r;

	*why = "NEW: the frame is shorter than its struct";
	if (frame->length < sizeof(view->fixed))
		return -EPROTO;
	memcpy(&view->fixed, frame->payload, sizeof(view->fixed));
	at = view->strings = (const char *)frame->payload + sizeof(view->fixed);
	r = check_new(&view->fixed, (size_t)(end - at), why);
	if (r < 0)
		return r;
	*why = "NEW: the strings are not argc + envc + 2 in number";
	if (!skip_strings(&at, end, view->fixed.argc + view->fixed.envc))
		return -EPROTO;
	view->cwd = at;
	if (!skip_strings(&at, end, 1))
		return -EPROTO;
	view->user = at;
	if (!skip_strings(&at, end, 1) || at != end)
		return -EPROTO;
	*why = "argv[0] is empty";
	if (view->strings[0] == '\0')
		return -EINVAL;
	*why = NULL;
	return 0;
}

/* '/' ends a name, and so is less than any byte of one. */
static int rank(char c)
{
	return c == '\0' ? 0 : c == '/' ? 1 : (unsigned char)c + 1;
}

int frame_compare_paths(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return rank(*a) - rank(*b);
}
