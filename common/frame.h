/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of the agent protocol (common/proto_guest.h) on byte streams: a reader that takes bytes as they
 * come, and a bounded queue for those that wait to be written.
 */
#ifndef COMMON_FRAME_H
#define COMMON_FRAME_H

#include "common/proto_guest.h"
#include <stddef.h>
#include <stdint.h>

struct frame {
	uint8_t type;
	uint32_t length;
	const uint8_t *payload; /* inside the reader's buffer; valid until its next call */
};

/*
 * Reads frames from a non-blocking stream socket; from one that its other holder may make blocking, with
 * MSG_DONTWAIT in flags. The buffer grows from FRAME_READER_START to at most one largest frame, and only when
 * a header announces a larger one that is within `maximum`.
 */
struct frame_reader {
	uint8_t *buffer;
	size_t capacity;
	size_t start, end; /* unread bytes */
	uint32_t maximum;  /* longest payload accepted */
	int flags;	   /* of recv(2) for each fill; 0 from init */
};
enum { FRAME_READER_START = 16 * 1024 };

/* 0 or -ENOMEM. maximum: at most AGENT_FRAME_MAX. */
int frame_reader_init(struct frame_reader *reader, uint32_t maximum);
/* Takes a zeroed reader too. */
void frame_reader_finish(struct frame_reader *reader);
/* Reads once. Bytes read, 0 at end of stream, -EAGAIN, or -errno. Call frame_reader_next until 0 first. */
int frame_reader_fill(struct frame_reader *reader, int fd);
/* Puts bytes that came another way before those still to be read. 0, -ENOMEM, or -EMSGSIZE: with what is
 * unread they are more than one largest frame. */
int frame_reader_feed(struct frame_reader *reader, const void *data, size_t length);
/* 1: *frame is set; 0: more bytes are needed; -EPROTO: flags or reserved not zero; -EMSGSIZE: over maximum.
 */
int frame_reader_next(struct frame_reader *reader, struct frame *frame);
/* After a fill: true when it left room, so that the stream had no more bytes then. */
int frame_reader_has_room(const struct frame_reader *reader);
/* True when a stream that ends here ends within a frame. */
int frame_reader_partial(const struct frame_reader *reader);

/*
 * Bytes waiting for a non-blocking stream; at most `limit` of them. The memory is taken when something
 * waits; all but the first few KiB are given back when nothing does.
 */
struct frame_queue {
	uint8_t *buffer;
	size_t capacity, start, end;
	size_t limit;
};

void frame_queue_init(struct frame_queue *queue, size_t limit);
void frame_queue_finish(struct frame_queue *queue);
size_t frame_queue_length(const struct frame_queue *queue);
/* Bytes that still fit, header included. */
size_t frame_queue_room(const struct frame_queue *queue);
/* One frame: head then tail as its payload (either may be NULL with length 0). 0, -ENOBUFS over the limit
 * (nothing is queued), -ENOMEM. */
int frame_queue_put(struct frame_queue *queue, uint8_t type, const void *head, size_t head_length,
	const void *tail, size_t tail_length);
/* Writes what it can to a socket, and waits on none. 0: empty now; 1: more waits for EPOLLOUT; -errno
 * (-EPIPE: peer gone). Never raises SIGPIPE. */
int frame_queue_flush(struct frame_queue *queue, int fd);

/* Writes one frame to a blocking or an empty stream at once. 0 or -errno; -EAGAIN means nothing was written.
 */
int frame_write(
	int fd, uint8_t type, const void *head, size_t head_length, const void *tail, size_t tail_length);

/*
 * Payloads checked against their layout: a NEW, parsed in place. The strings point into the payload.
 * On failure *why is a constant sentence naming what is wrong.
 */
struct agent_new_view {
	struct agent_new fixed;
	const char *strings; /* argv, then env, then cwd, then user: each NUL-terminated */
	const char *cwd, *user;
};
/* 0, -EPROTO (malformed), -E2BIG (over a bound) or -EINVAL (no argv, empty argv[0]). */
int frame_parse_new(const struct frame *frame, struct agent_new_view *view, const char **why);

/* The order of paths in CHANGES: below 0, 0 or above it, as strcmp(3). */
int frame_compare_paths(const char *a, const char *b);

#endif
