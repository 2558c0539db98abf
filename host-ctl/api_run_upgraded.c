/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upgraded form of a run: frames both ways.
 *
 *   OPENING (101 is under way) ──▶ OPEN ──terminal frame queued──▶ DRAINING ──all written──▶ closed
 *
 * A client that reads slowly fills its own queue (STREAM_QUEUE bytes); then its guest is no longer read, and
 * nothing else waits. In DRAINING the VM is gone already: such a client holds a connection and its queue
 * only. A client that breaks the protocol gets HOST_ERROR `invalid`, one that leaves gets nothing; its VM is
 * ended.
 */
#include "common/log.h"
#include "host-ctl/api_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum {
	STREAM_TERMINAL = 4096, /* kept free for the terminal frame */
	STREAM_QUEUE = 256 * 1024 + STREAM_TERMINAL,
	STREAM_FRAME = AGENT_FRAME_HEADER + sizeof(struct agent_output) + AGENT_DATA_MAX,
	STREAM_READS_PER_TURN = 8,
};

struct api_stream {
	struct api_run base;
	struct api_stream *next, *previous;
	struct http_stream *http; /* NULL while OPENING */
	int fd;
	struct loop_source *source;
	struct frame_queue to_client;
	struct frame_reader from_client;
	struct frame pending; /* taken from the reader, but not by the run */
	bool has_pending, draining, broken;
	uint32_t watched;
};

static void watch(struct api_stream *stream)
{
	uint32_t events = EPOLLRDHUP;

	if (!stream->source)
		return;
	if (!stream->draining && !stream->has_pending)
		events |= EPOLLIN;
	if (frame_queue_length(&stream->to_client))
		events |= EPOLLOUT;
	if (events != stream->watched)
		loop_set_events(stream->source, events);
	stream->watched = events;
}

static void destroy(struct api_stream *stream, const char *why)
{
	api_run_destroy(&stream->base, why);
}

/* Writes what it can. A peer that is gone is told by its event, not from here. */
static void flush(struct api_stream *stream)
{
	if (!stream->http)
		return;
	if (frame_queue_flush(&stream->to_client, stream->fd) < 0) {
		stream->broken = true;
		frame_queue_finish(&stream->to_client);
	}
}

/* In DRAINING, closes when all is written. True when the stream is gone. */
static bool close_if_drained(struct api_stream *stream)
{
	if (!stream->draining || !stream->http || frame_queue_length(&stream->to_client))
		return false;
	destroy(stream, NULL);
	return true;
}

static void put_error(struct api_stream *stream, const struct error *error)
{
	json_t *object = error_to_json(error);
	char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	stream->base.api->metrics->errors[error->kind]++;
	if (text)
		frame_queue_put(&stream->to_client, AGENT_HOST_ERROR, text, strlen(text), NULL, 0);
	free(text);
	json_decref(object);
	stream->draining = true;
}

/* --- the run's side --- */

static bool fits(const struct api_stream *stream)
{
	return stream->broken || frame_queue_room(&stream->to_client) >= STREAM_FRAME + STREAM_TERMINAL;
}

/* Writes what has gathered, unless EPOLLOUT is awaited already. The frames of a turn are gathered, for a
 * guest may send them small. */
static void settled(void *context)
{
	struct api_stream *stream = context;

	if (!(stream->watched & EPOLLOUT))
		flush(stream);
	watch(stream);
}

static bool has_room(void *context)
{
	struct api_stream *stream = context;

	if (!fits(stream))
		settled(stream);
	return fits(stream);
}

static void take_frame(void *context, const struct frame *frame)
{
	struct api_stream *stream = context;

	if (stream->broken)
		return;
	if (frame_queue_put(&stream->to_client, frame->type, frame->payload, frame->length, NULL, 0) < 0) {
		/* has_room was asked before, so this is memory: a hole in the stream is worse than its end.
		 */
		log_error("no memory for the output of a run");
		stream->broken = true;
		frame_queue_finish(&stream->to_client);
	}
}

static void done(void *context, const struct run_result *result)
{
	struct api_stream *stream = context;

	stream->base.running = false;
	stream->draining = true;
	if (result->error.kind)
		put_error(stream, &result->error);
	else
		frame_queue_put(&stream->to_client, AGENT_EXIT, &result->exit, sizeof result->exit, NULL, 0);
	flush(stream);
	if (!close_if_drained(stream))
		watch(stream);
}

/* --- the client's side --- */

/* The client's fault: it is told, and its VM is ended. */
static void break_off(struct api_stream *stream, const char *fault)
{
	struct error error;

	error_set(&error, ERROR_INVALID, "the client broke the frame protocol: %s", fault);
	run_cancel(&stream->base.run, "invalid");
	stream->base.running = false;
	put_error(stream, &error);
	flush(stream);
}

/* False: nothing more can be taken now. */
static bool offer(struct api_stream *stream)
{
	const char *fault = NULL;
	int status = run_input(&stream->base.run, &stream->pending, &fault);

	stream->has_pending = status == -EAGAIN;
	if (status == -EPROTO)
		break_off(stream, fault);
	return status == 0;
}

static void take_buffered(struct api_stream *stream)
{
	int status;

	while (!stream->has_pending && !stream->draining) {
		status = frame_reader_next(&stream->from_client, &stream->pending);
		if (status == 0)
			return;
		if (status < 0)
			break_off(
				stream, status == -EMSGSIZE ? "a frame over the limit" : "a malformed frame");
		else if (!offer(stream))
			return;
	}
}

/* True when the stream is gone. */
static bool read_client(struct api_stream *stream)
{
	for (int i = 0; i < STREAM_READS_PER_TURN; i++) {
		int got;

		take_buffered(stream);
		if (stream->has_pending || stream->draining)
			return false;
		got = frame_reader_fill(&stream->from_client, stream->fd);
		if (got == -EAGAIN)
			return false;
		if (got <= 0) {
			stream->base.api->metrics->clients_left++;
			destroy(stream, "client_left");
			return true;
		}
	}
	return false;
}

static void client_ready(void *context, uint32_t events)
{
	struct api_stream *stream = context;

	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		stream->base.api->metrics->clients_left += stream->base.running;
		destroy(stream, "client_left");
		return;
	}
	if ((events & EPOLLIN) && read_client(stream))
		return;
	if (events & EPOLLOUT)
		flush(stream);
	if (close_if_drained(stream))
		return;
	watch(stream);
	/* Last, for it may end the run and with it the stream. */
	if ((events & EPOLLOUT) && stream->base.running && fits(stream))
		run_continue(&stream->base.run);
}

static void drained(void *context)
{
	struct api_stream *stream = context;

	if (stream->has_pending && !stream->draining && offer(stream))
		take_buffered(stream);
	watch(stream);
}

/* --- life --- */

static void upgraded(void *context, struct http_stream *http, int fd, const void *extra, size_t extra_length)
{
	struct api_stream *stream = context;

	stream->http = http;
	stream->fd = fd;
	stream->base.request = NULL;
	stream->watched = EPOLLIN | EPOLLRDHUP;
	stream->source = loop_add_fd(stream->base.api->loop, fd, stream->watched, client_ready, stream);
	if (!stream->source ||
		(extra_length && frame_reader_feed(&stream->from_client, extra, extra_length) < 0)) {
		destroy(stream, "internal");
		return;
	}
	if (!stream->draining)
		take_buffered(stream);
	flush(stream);
	if (close_if_drained(stream))
		return;
	watch(stream);
	/* As in client_ready: the queue may have been full. */
	if (stream->base.running && fits(stream))
		run_continue(&stream->base.run);
}

static void opening_left(void *context)
{
	struct api_stream *stream = context;

	stream->base.request = NULL;
	destroy(stream, "client_left");
}

static void begin(struct api_run *base)
{
	struct api_stream *stream = (struct api_stream *)base;
	const char *const headers[] = {
		"Tinderbox-VM", base->run.vm->id, "Tinderbox-Warm", base->run.warm ? "true" : "false", NULL};

	stream->fd = -1;
	stream->next = base->api->streams;
	if (stream->next)
		stream->next->previous = stream;
	base->api->streams = stream;
	frame_queue_init(&stream->to_client, STREAM_QUEUE);
	if (frame_reader_init(&stream->from_client, AGENT_DATA_MAX) < 0) {
		/* An empty reader takes nothing: the client's first frame ends the run. */
		log_error("no memory for the input of a run");
	}
	http_upgrade(base->request, headers, upgraded, opening_left, stream);
}

static void finish(struct api_run *base)
{
	struct api_stream *stream = (struct api_stream *)base;

	if (stream->next)
		stream->next->previous = stream->previous;
	if (stream->previous)
		stream->previous->next = stream->next;
	else if (base->api->streams == stream)
		base->api->streams = stream->next;
	loop_remove(stream->source);
	frame_queue_finish(&stream->to_client);
	frame_reader_finish(&stream->from_client);
	if (stream->http)
		http_stream_close(stream->http);
}

static struct api_stream *find_open(struct api *api)
{
	struct api_stream *stream = api->streams;

	while (stream && !stream->http)
		stream = stream->next;
	return stream;
}

void api_run_upgraded_stop(struct api *api)
{
	struct api_stream *stream;
	struct error error;

	error_set(&error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	/* Found anew each time: the end of one may let the HTTP server change the list. */
	while ((stream = find_open(api))) {
		if (stream->base.running) {
			run_cancel(&stream->base.run, "stopping");
			stream->base.running = false;
			put_error(stream, &error);
			flush(stream);
		}
		destroy(stream, NULL);
	}
}

static const struct run_sink sink = {
	.has_room = has_room, .frame = take_frame, .settled = settled, .drained = drained, .done = done};

const struct api_run_form api_run_upgraded = {
	.size = sizeof(struct api_stream), .sink = &sink, .begin = begin, .finish = finish};
