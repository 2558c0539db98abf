/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/events, upgraded: a HOST_EVENT frame for each event from now on, until the client leaves.
 *
 * One that reads slowly is not waited for: what finds its queue full is counted, and when there is room again
 * it gets {"event":"lost","count":N} in their place.
 */
#include "host-ctl/api/api_stream.h"
#include "host-ctl/sandbox/events.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct watching {
	struct api_stream stream;
	struct events_listener listener;
	char sandbox[SANDBOX_ID_MAX]; /* only of that one; empty: of all */
	json_int_t lost;
};

static bool is_wanted(const struct watching *watching, const json_t *event)
{
	const char *sandbox = json_string_value(json_object_get(event, "sandbox"));

	return !watching->sandbox[0] || (sandbox && !strcmp(sandbox, watching->sandbox));
}

static void take_event(struct events_listener *listener, json_t *event)
{
	struct watching *watching =
		(struct watching *)((char *)listener - offsetof(struct watching, listener));

	if (!is_wanted(watching, event))
		return;
	if (watching->lost || !api_stream_has_room(&watching->stream)) {
		watching->lost++;
		return;
	}
	api_stream_put_json(&watching->stream, AGENT_HOST_EVENT, json_incref(event));
	api_stream_flush(&watching->stream);
}

static int stream_frame(void *context, const struct frame *frame, const char **why)
{
	(void)context;
	(void)frame;
	*why = "it sends nothing to events";
	return -EPROTO;
}

static void stream_room(void *context)
{
	struct watching *watching = context;

	api_stream_put_json(&watching->stream, AGENT_HOST_EVENT,
		json_pack("{s:s,s:I}", "event", "lost", "count", watching->lost));
	watching->lost = 0;
	api_stream_flush(&watching->stream);
}

static void stream_left(void *context, const char *why)
{
	struct watching *watching = context;

	(void)why;
	events_unlisten(&watching->listener);
	api_stream_end(&watching->stream);
}

static void stream_stop(void *context)
{
	struct watching *watching = context;
	struct error error;

	error_set(&error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	api_stream_put_error(&watching->stream, &error);
	stream_left(watching, "stopping");
}

static void stream_closed(void *context)
{
	struct watching *watching = context;

	events_unlisten(&watching->listener);
	free(watching);
}

static const struct api_stream_events stream_events = {.frame = stream_frame,
	.room = stream_room,
	.left = stream_left,
	.stop = stream_stop,
	.closed = stream_closed};

static struct watching *make(struct api *api, const struct http_request *request, struct error *error)
{
	static const char *const parameters[] = {"sandbox", NULL};
	const char *id = http_query(request, "sandbox");
	struct sandbox *sandbox = id ? sandboxes_find(api->sandboxes, id, error) : NULL;
	struct watching *watching;

	if ((id && !sandbox) || http_check_query(request, parameters, error))
		return NULL;
	if (!request->wants_upgrade) {
		error_set(error, ERROR_INVALID, "events need the upgraded form (Upgrade: tinderbox-frames)");
		return NULL;
	}
	watching = calloc(1, sizeof *watching);
	if (!watching)
		error_set(error, ERROR_INTERNAL, "out of memory for the events");
	else if (sandbox)
		memcpy(watching->sandbox, sandbox->id, sizeof watching->sandbox);
	return watching;
}

void api_events_get(struct api *api, struct http_request *request)
{
	const char *const headers[] = {NULL};
	struct error error;
	struct watching *watching = make(api, request, &error);

	if (!watching) {
		http_reply_error(request, &error);
		return;
	}
	watching->listener.event = take_event;
	events_listen(&api->events, &watching->listener);
	api_stream_open(&watching->stream, api, request, headers, &stream_events, watching);
}
