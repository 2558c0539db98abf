/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream: frames both ways with a client that has upgraded its connection.
 *
 *   OPENING (101 is under way) ──▶ OPEN ──api_stream_end──▶ DRAINING ──all written──▶ closed
 *
 * A client that closes or half-closes has left. One that breaks the frame protocol, or whose frame the owner
 * refuses, gets HOST_ERROR `invalid` and is not heard any more. One that reads slowly fills its queue
 * (API_STREAM_QUEUE bytes), and then there is no room; in DRAINING it holds a connection and that queue only.
 * At most API_STREAM_READS_PER_TURN reads are made for one client in one turn of the loop.
 */
#ifndef HOST_CTL_API_STREAM_H
#define HOST_CTL_API_STREAM_H

#include "common/frame.h"
#include "host-ctl/api/api.h"

enum {
	API_STREAM_OUTPUT = AGENT_FRAME_HEADER + sizeof(struct agent_output) + AGENT_DATA_MAX,
	/* Of a queue, kept free for what does not ask for room: some small frames, and a last one. */
	API_STREAM_KEPT = 8 * 1024 + AGENT_FRAME_HEADER + AGENT_FRAME_MAX,
	API_STREAM_QUEUE = 256 * 1024 + API_STREAM_KEPT,
	API_STREAM_READS_PER_TURN = 8,
};

/* Called from the loop, or from api_stream_read_on; but for closed, not after api_stream_end. */
struct api_stream_events {
	/* One of the client's frames; it does not end the stream. 0; -EAGAIN: not taken, and no more are
	 * until api_stream_read_on; -EPROTO with *why a constant sentence: the client broke the protocol. */
	int (*frame)(void *context, const struct frame *frame, const char **why);
	/* There is room again, after api_stream_has_room said no. */
	void (*room)(void *context);
	/* The client is not there any more, or not heard: what is put is dropped. Once; the owner ends the
	 * stream now or later. why: "client_left" or "invalid", for the log. */
	void (*left)(void *context, const char *why);
	/* The daemon stops: the owner ends the stream now, after its last frame. NULL: it will by itself. */
	void (*stop)(void *context);
	/* It has ended, and the connection is closed: the owner may free its memory. Always the last. */
	void (*closed)(void *context);
};

/* Part of its owner's memory, which stays until closed was called. The fields are the stream's own. */
struct api_stream {
	struct api *api;
	struct api_stream *next, *previous; /* of the api's */
	const struct api_stream_events *events;
	void *context;
	struct http_stream *http; /* NULL while OPENING */
	int fd;
	struct loop_source *source;
	struct frame_queue to_client;
	struct frame_reader from_client;
	struct frame pending; /* taken from the reader, but not by the owner */
	bool has_pending;
	bool gone; /* nothing can be written: the client has left, or there was no memory for a frame */
	bool left; /* the owner was told */
	bool full; /* the owner waits for room */
	bool ended;
	uint32_t watched;
};

/* Answers the request with 101 and these headers (name, value pairs, ended by NULL). Frames may be put at
 * once. */
void api_stream_open(struct api_stream *stream, struct api *api, struct http_request *request,
	const char *const *headers, const struct api_stream_events *events, void *context);

/* Is there room for output of AGENT_DATA_MAX bytes? Writes what has gathered before it says no. True when
 * nothing can be written any more. */
bool api_stream_has_room(struct api_stream *stream);
/* One frame: head, then tail. It is written with the next api_stream_flush. One that does not fit, or without
 * memory, ends the connection: a hole in the stream would be worse. */
void api_stream_put(struct api_stream *stream, uint8_t type, const void *head, size_t head_length,
	const void *tail, size_t tail_length);
/* The same of a JSON object, whose reference is taken; NULL: none, for want of memory. */
void api_stream_put_json(struct api_stream *stream, uint8_t type, json_t *object);
/* HOST_ERROR, which is counted, too. */
void api_stream_put_error(struct api_stream *stream, const struct error *error);
/* Writes what can be written now, unless the client is known to take nothing. */
void api_stream_flush(struct api_stream *stream);
/* The owner takes frames again. */
void api_stream_read_on(struct api_stream *stream);
/* Its last frame was put: closes the connection when all is written, which may be at once: the owner's memory
 * may be gone after this call. */
void api_stream_end(struct api_stream *stream);

/* Tells each open one to stop, and closes those that have ended, written out or not. */
void api_streams_stop(struct api *api);

#endif
