/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream of the agent: frames in, frames out, never waiting.
 *
 *   FRESH ──CONTROL──→ CONTROL ──┐
 *     ├──NEW, ATTACH─→ SESSION ──┼─refused, or EXIT or CHANGES_END sent──→ CLOSING ──all sent──→ closed
 *     └──CHANGES─────→ CHANGES ──┘
 *   (from any: closed when the peer has gone)
 *
 * What leaves is pulled: when the stream takes bytes, first what is left of a data frame, then small frames
 * that wait, then credit, then output straight from the session's ring, then EXIT. So a slow peer holds
 * nothing but its own session's ring, and no frame is cut by another. Changes are looked for a frame at a
 * time, when the one before is out, and only so far that others are served in between.
 *
 * What a misbehaving peer gets: ERROR and a closed stream. Its session goes on without a reader.
 */
#ifndef GUEST_INIT_STREAM_H
#define GUEST_INIT_STREAM_H

#include "common/frame.h"
#include "guest-init/session.h"
#include <stdbool.h>

struct agent;
struct changes;

#define STREAM_CHANGES_FAILED "CHANGES: the files cannot be read"

enum stream_kind {
	STREAM_FRESH = 1 << 0,
	STREAM_CONTROL = 1 << 1,
	STREAM_SESSION = 1 << 2,
	STREAM_CLOSING = 1 << 3,
	STREAM_CHANGES = 1 << 4,
};

enum {
	STREAM_QUEUE_MAX = 16 * 1024, /* small frames that wait; a peer that lets more pile up is closed */
	STREAM_LIST_MAX = 8 * 1024,   /* of CHANGE_LIST: with what else waits, less than a queue */
	STREAM_LINGER_S = 1,	      /* for the host to take an EXIT when the guest ends */
	/* A whole STDOUT or STDERR frame is one vsock packet (64 KiB), so one kick of the device. */
	STREAM_DATA_MAX = 64 * 1024 - AGENT_FRAME_HEADER - sizeof(struct agent_output),
};

/* A STDOUT or STDERR frame that the stream has not taken whole. */
struct stream_flight {
	uint8_t head[AGENT_FRAME_HEADER + sizeof(struct agent_output)];
	size_t head_left;
	size_t data_left; /* from the session's ring, at what is taken of it */
	enum session_stream which;
};

struct stream {
	struct agent *agent;
	int fd; /* -1: this slot is free */
	struct loop_source *source;
	uint32_t events; /* as the loop has them */
	enum stream_kind kind;
	bool outgoing;	 /* opened by us */
	bool connecting; /* and not yet accepted */
	bool exit_queued;
	enum session_stream turn;   /* whose output goes next */
	struct frame_reader reader; /* its memory stays with the slot */
	struct frame_queue queue;
	struct session *session; /* what it reads; NULL before NEW and ATTACH, and after CLOSING of others */
	struct session_reader link;
	struct stream_flight flight;
	struct changes *changes; /* that it tells; or NULL */
	bool awaits_held;	 /* it has sent the HOLD that is under way */
};

/* A free slot with its memory. 0 or -ENOMEM: it then gets it when it is opened. */
int stream_init(struct stream *stream);
/* Closes it, and gives its memory back. */
void stream_finish(struct stream *stream);

/* Takes over fd (closed on failure too), a stream socket, non-blocking; connecting: its connect(2) is under
 * way. 0 or -errno. */
int stream_open(struct stream *stream, struct agent *agent, int fd, bool connecting);
/* Lets go of its session, closes. Takes a free slot. */
void stream_close(struct stream *stream);

/* A small frame; the stream is closed when too many wait. False when it is closed. */
bool stream_send(struct stream *stream, uint8_t type, const void *head, size_t head_length, const void *tail,
	size_t tail_length);
/* ERROR, then the stream closes. error: positive errno. */
void stream_refuse(struct stream *stream, int error, const char *text);

/* Makes it the reader of a session that has agreed to it by session_attach with &stream->link. */
void stream_bind(struct stream *stream, struct session *session);

/* Sends what it can. The stream may be closed after this. */
void stream_pump(struct stream *stream);

#endif
