/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant: what may free the stream is the last thing that its caller does with it. */
#include "host-ctl/api/api_stream.h"
#include "common/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* --- the connection --- */

static void watch(struct api_stream *stream)
{
	uint32_t events = EPOLLRDHUP;

	if (!stream->source)
		return;
	if (!stream->left && !stream->ended && !stream->has_pending)
		events |= EPOLLIN;
	if (frame_queue_length(&stream->to_client))
		events |= EPOLLOUT;
	if (events != stream->watched)
		loop_set_events(stream->source, events);
	stream->watched = events;
}

static void close_stream(struct api_stream *stream)
{
	struct http_stream *http = stream->http;

	if (stream->next)
		stream->next->previous = stream->previous;
	*(stream->previous ? &stream->previous->next : &stream->api->streams) = stream->next;
	loop_remove(stream->source);
	frame_queue_finish(&stream->to_client);
	frame_reader_finish(&stream->from_client);
	stream->events->closed(stream->context);
	if (http)
		http_stream_close(http);
}

/* Nothing is written any more. */
static void give_up(struct api_stream *stream)
{
	stream->gone = true;
	frame_queue_finish(&stream->to_client);
}

static void tell_left(struct api_stream *stream, const char *why)
{
	if (stream->left)
		return;
	stream->left = true;
	watch(stream);
	stream->events->left(stream->context, why);
}

/* The client's end is closed. */
static void hang_up(struct api_stream *stream)
{
	give_up(stream);
	loop_remove(stream->source);
	stream->source = NULL;
	if (stream->ended) {
		close_stream(stream);
		return;
	}
	stream->api->metrics->clients_left += !stream->left;
	tell_left(stream, "client_left");
}

/* A peer that is gone is told by its event, not from here. */
static void write_out(struct api_stream *stream)
{
	if (stream->http && frame_queue_flush(&stream->to_client, stream->fd) < 0)
		give_up(stream);
}

/* When it has ended and all is written. True: the stream is gone. */
static bool close_if_drained(struct api_stream *stream)
{
	if (!stream->ended || !stream->http || frame_queue_length(&stream->to_client))
		return false;
	close_stream(stream);
	return true;
}

/* --- the client's frames --- */

static void break_off(struct api_stream *stream, const char *fault)
{
	struct error error;

	error_set(&error, ERROR_INVALID, "the client broke the frame protocol: %s", fault);
	api_stream_put_error(stream, &error);
	write_out(stream);
	stream->has_pending = false;
	tell_left(stream, "invalid");
}

/* Frames until the owner takes no more (1), the client has broken the protocol, and with it perhaps the
 * stream (-1), or more bytes are needed (0). */
static int take_buffered(struct api_stream *stream)
{
	const char *fault = NULL;
	int status = stream->has_pending;

	for (;;) {
		if (!status)
			status = frame_reader_next(&stream->from_client, &stream->pending);
		if (status == 0)
			return 0;
		if (status > 0)
			status = stream->events->frame(stream->context, &stream->pending, &fault);
		else
			fault = status == -EMSGSIZE ? "a frame over the limit" : "a malformed frame";
		stream->has_pending = status == -EAGAIN;
		if (stream->has_pending)
			return 1;
		if (status) {
			break_off(stream, fault);
			return -1;
		}
	}
}

/* True when the stream may be gone. */
static bool read_client(struct api_stream *stream)
{
	for (int i = 0; i < API_STREAM_READS_PER_TURN; i++) {
		int got, status = take_buffered(stream);

		if (status)
			return status < 0;
		got = frame_reader_fill(&stream->from_client, stream->fd);
		if (got == -EAGAIN)
			return false;
		if (got <= 0) {
			hang_up(stream);
			return true;
		}
	}
	/* What the last of them brought, for which nothing wakes if the socket is empty now. */
	return take_buffered(stream) < 0;
}

/* The events that fit the present state; and last, for it may end the stream, who waits for room is told. */
static void settle(struct api_stream *stream)
{
	if (close_if_drained(stream))
		return;
	watch(stream);
	if (!stream->full || stream->left || stream->ended || !api_stream_has_room(stream))
		return;
	stream->events->room(stream->context);
}

static void client_ready(void *context, uint32_t events)
{
	struct api_stream *stream = context;

	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		hang_up(stream);
		return;
	}
	if ((events & EPOLLIN) && !stream->left && !stream->ended && read_client(stream))
		return;
	if (events & EPOLLOUT)
		write_out(stream);
	settle(stream);
}

static void upgraded(void *context, struct http_stream *http, int fd, const void *extra, size_t extra_length)
{
	struct api_stream *stream = context;

	stream->http = http;
	stream->fd = fd;
	stream->watched = EPOLLIN | EPOLLRDHUP;
	stream->source = loop_add_fd(stream->api->loop, fd, stream->watched, client_ready, stream);
	if (!stream->source || stream->gone ||
		(extra_length && frame_reader_feed(&stream->from_client, extra, extra_length) < 0)) {
		hang_up(stream);
		return;
	}
	if (!stream->ended && take_buffered(stream) < 0)
		return;
	write_out(stream);
	settle(stream);
}

static void opening_left(void *context)
{
	hang_up(context);
}

void api_stream_open(struct api_stream *stream, struct api *api, struct http_request *request,
	const char *const *headers, const struct api_stream_events *events, void *context)
{
	*stream = (struct api_stream){
		.api = api, .next = api->streams, .events = events, .context = context, .fd = -1};
	if (stream->next)
		stream->next->previous = stream;
	api->streams = stream;
	frame_queue_init(&stream->to_client, API_STREAM_QUEUE);
	/* An empty reader takes nothing: the client's first frame is its end. */
	if (frame_reader_init(&stream->from_client, AGENT_DATA_MAX) < 0)
		log_error("no memory for the input of a stream");
	http_upgrade(request, headers, upgraded, opening_left, stream);
}

/* --- for the owner --- */

bool api_stream_has_room(struct api_stream *stream)
{
	const size_t wanted = API_STREAM_OUTPUT + API_STREAM_KEPT;

	if (!stream->gone && frame_queue_room(&stream->to_client) < wanted)
		api_stream_flush(stream);
	stream->full = !stream->gone && frame_queue_room(&stream->to_client) < wanted;
	return !stream->full;
}

void api_stream_put(struct api_stream *stream, uint8_t type, const void *head, size_t head_length,
	const void *tail, size_t tail_length)
{
	if (stream->gone || stream->left)
		return;
	if (frame_queue_put(&stream->to_client, type, head, head_length, tail, tail_length) == 0)
		return;
	log_error("no memory for a frame to a client");
	give_up(stream);
	/* Heard as if the client had left. */
	if (stream->http)
		shutdown(stream->fd, SHUT_RDWR);
}

void api_stream_put_json(struct api_stream *stream, uint8_t type, json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	if (text)
		api_stream_put(stream, type, text, strlen(text), NULL, 0);
	free(text);
	json_decref(object);
}

void api_stream_put_error(struct api_stream *stream, const struct error *error)
{
	if (stream->left)
		return;
	stream->api->metrics->errors[error->kind]++;
	api_stream_put_json(stream, AGENT_HOST_ERROR, error_to_json(error));
}

void api_stream_flush(struct api_stream *stream)
{
	if (!(stream->watched & EPOLLOUT))
		write_out(stream);
	watch(stream);
}

void api_stream_read_on(struct api_stream *stream)
{
	if (stream->has_pending && !stream->ended && take_buffered(stream) >= 0)
		watch(stream);
}

void api_stream_end(struct api_stream *stream)
{
	stream->ended = true;
	write_out(stream);
	/* Whose source is gone has no event to come. */
	if (stream->left && stream->gone && !stream->source)
		close_stream(stream);
	else if (!close_if_drained(stream))
		watch(stream);
}

/* --- the daemon's stop --- */

static struct api_stream *find(const struct api *api, bool ended)
{
	struct api_stream *stream = api->streams;

	while (stream && !(stream->http && stream->ended == ended && (ended || stream->events->stop)))
		stream = stream->next;
	return stream;
}

void api_streams_stop(struct api *api)
{
	struct api_stream *stream;

	/* Found anew each time: the end of one may be that of another. */
	while ((stream = find(api, false)))
		stream->events->stop(stream->context);
	while ((stream = find(api, true)))
		close_stream(stream);
}
