/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/api_feed.h"
#include "common/frame.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { FEED_FRAME = AGENT_FRAME_HEADER + sizeof(struct agent_output) + AGENT_DATA_MAX };

struct api_feed {
	struct api *api;
	struct api_feed *next, *previous;
	struct http_stream *http; /* NULL while OPENING */
	int fd;
	struct loop_source *source;
	struct frame_queue queue;
	const struct api_feed_events *events;
	void *context;
	bool left, draining, full;
	uint32_t watched;
};

static void destroy(struct api_feed *feed)
{
	struct http_stream *http = feed->http;

	if (feed->next)
		feed->next->previous = feed->previous;
	*(feed->previous ? &feed->previous->next : &feed->api->feeds) = feed->next;
	loop_remove(feed->source);
	frame_queue_finish(&feed->queue);
	free(feed);
	if (http)
		http_stream_close(http);
}

static void watch(struct api_feed *feed)
{
	uint32_t events = EPOLLRDHUP;

	if (!feed->source)
		return;
	if (!feed->draining)
		events |= EPOLLIN;
	if (frame_queue_length(&feed->queue))
		events |= EPOLLOUT;
	if (events != feed->watched)
		loop_set_events(feed->source, events);
	feed->watched = events;
}

/* The owner is told; until it ends the feed, nothing is read or written any more. */
static void leave(struct api_feed *feed)
{
	loop_remove(feed->source);
	feed->source = NULL;
	if (feed->draining) {
		destroy(feed);
		return;
	}
	if (feed->left)
		return;
	feed->left = true;
	feed->api->metrics->clients_left++;
	feed->events->left(feed->context);
}

/* Writes what it can. True: the feed is gone, all of it written. A peer that is gone is told by its event. */
static bool flush(struct api_feed *feed)
{
	if (!feed->http || feed->left)
		return false;
	if (frame_queue_flush(&feed->queue, feed->fd) < 0)
		frame_queue_finish(&feed->queue);
	if (!feed->draining || frame_queue_length(&feed->queue)) {
		watch(feed);
		return false;
	}
	destroy(feed);
	return true;
}

static void break_off(struct api_feed *feed)
{
	struct error error;
	json_t *object;
	char *text;

	error_set(&error, ERROR_INVALID, "the client broke the frame protocol: it sends nothing in a build");
	feed->api->metrics->errors[error.kind]++;
	object = error_to_json(&error);
	text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	if (text)
		frame_queue_put(&feed->queue, AGENT_HOST_ERROR, text, strlen(text), NULL, 0);
	free(text);
	json_decref(object);
	frame_queue_flush(&feed->queue, feed->fd);
	leave(feed);
}

static void write_on(struct api_feed *feed)
{
	if (flush(feed) || !feed->full || !api_feed_has_room(feed))
		return;
	feed->full = false;
	feed->events->room(feed->context);
}

static void client_ready(void *context, uint32_t events)
{
	struct api_feed *feed = context;

	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		leave(feed);
		return;
	}
	if (events & EPOLLIN) {
		break_off(feed);
		return;
	}
	write_on(feed);
}

static void upgraded(void *context, struct http_stream *http, int fd, const void *extra, size_t extra_length)
{
	struct api_feed *feed = context;

	(void)extra;
	feed->http = http;
	feed->fd = fd;
	feed->watched = EPOLLIN | EPOLLRDHUP;
	feed->source = loop_add_fd(feed->api->loop, fd, feed->watched, client_ready, feed);
	if (extra_length && !feed->draining)
		break_off(feed);
	else if (!feed->source)
		leave(feed);
	else
		write_on(feed);
}

static void opening_left(void *context)
{
	leave(context);
}

struct api_feed *api_feed_open(
	struct api *api, struct http_request *request, const struct api_feed_events *events, void *context)
{
	const char *const headers[] = {NULL};
	struct api_feed *feed = calloc(1, sizeof *feed);

	if (!feed)
		return NULL;
	*feed = (struct api_feed){
		.api = api, .next = api->feeds, .fd = -1, .events = events, .context = context};
	if (feed->next)
		feed->next->previous = feed;
	api->feeds = feed;
	frame_queue_init(&feed->queue, API_FEED_QUEUE);
	http_upgrade(request, headers, upgraded, opening_left, feed);
	return feed;
}

bool api_feed_has_room(const struct api_feed *feed)
{
	return feed->left ||
	       frame_queue_room(&feed->queue) >= FEED_FRAME + API_FEED_TERMINAL + API_FEED_SMALL;
}

void api_feed_put(struct api_feed *feed, uint8_t type, const void *head, size_t head_length, const void *tail,
	size_t tail_length)
{
	if (feed->left)
		return;
	if (frame_queue_put(&feed->queue, type, head, head_length, tail, tail_length) < 0) {
		/* A hole in the stream is worse than its end. */
		log_error("no memory for the output of a build");
		frame_queue_finish(&feed->queue);
		leave(feed);
		return;
	}
	if (!flush(feed))
		feed->full = !api_feed_has_room(feed);
}

void api_feed_end(struct api_feed *feed, uint8_t type, json_t *payload)
{
	char *text = payload ? json_dumps(payload, JSON_COMPACT) : NULL;

	if (text && !feed->left)
		frame_queue_put(&feed->queue, type, text, strlen(text), NULL, 0);
	free(text);
	json_decref(payload);
	feed->draining = true;
	feed->full = false;
	if (feed->left)
		destroy(feed);
	else
		flush(feed);
}

static struct api_feed *find_ended(const struct api *api)
{
	struct api_feed *feed = api->feeds;

	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): one that was destroyed is not in the list */
	while (feed && !(feed->draining && feed->http))
		feed = feed->next;
	return feed;
}

void api_feeds_stop(struct api *api)
{
	struct api_feed *feed;

	/* Found anew each time: the end of one may let the HTTP server change the list. */
	while ((feed = find_ended(api)))
		destroy(feed);
}
