/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A feed: frames to a client that has upgraded its connection and sends none itself.
 *
 *   OPENING (101 is under way) ──▶ OPEN ──api_feed_end──▶ DRAINING ──all written──▶ closed
 *
 * A client that closes or half-closes has left; one that sends anything gets HOST_ERROR `invalid` and counts
 * as one that left. One that reads slowly fills its queue (API_FEED_QUEUE bytes), and then there is no room;
 * in DRAINING it holds a connection and that queue only.
 */
#ifndef HOST_CTL_API_FEED_H
#define HOST_CTL_API_FEED_H

#include "host-ctl/api.h"

enum {
	API_FEED_TERMINAL = 4096, /* of a feed's queue, kept free for the terminal frame... */
	API_FEED_SMALL = 4096,	  /* ...and for small frames, which do not ask for room */
	API_FEED_QUEUE = 256 * 1024 + API_FEED_TERMINAL + API_FEED_SMALL,
};

/* Called from the loop; not after api_feed_end. */
struct api_feed_events {
	void (*room)(void *context); /* there is room again */
	void (*left)(void *context); /* the client has left: nothing may be put any more, but for the end */
};

struct api_feed;

/* Answers the request with 101. NULL without memory: the request is not answered then. */
struct api_feed *api_feed_open(
	struct api *api, struct http_request *request, const struct api_feed_events *events, void *context);
/* Is there room for output of AGENT_DATA_MAX bytes? */
bool api_feed_has_room(const struct api_feed *feed);
/* One frame: head, then tail. One that does not fit ends the stream without a terminal frame. */
void api_feed_put(struct api_feed *feed, uint8_t type, const void *head, size_t head_length, const void *tail,
	size_t tail_length);
/* The terminal frame, JSON, whose reference is taken (NULL: none, for want of memory). The feed is gone for
 * its owner; it ends when all is written, or when the client leaves. */
void api_feed_end(struct api_feed *feed, uint8_t type, json_t *payload);

/* Closes those that have ended but are not written out. For the daemon's stop. */
void api_feeds_stop(struct api *api);

#endif
