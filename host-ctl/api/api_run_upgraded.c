/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upgraded form of a run: frames both ways (host-ctl/api/api_stream.h).
 *
 * A client that reads slowly fills its own queue; then its guest is no longer read, and nothing else waits.
 * When the run is over its VM is gone, whether the client has read its frames or not; so is it when the
 * client leaves or breaks the protocol.
 */
#include "host-ctl/api/api_run.h"
#include "host-ctl/api/api_stream.h"

#include <stdio.h>

struct upgraded_run {
	struct api_run base;
	struct api_stream stream;
};

/* --- the run's side --- */

static bool has_room(void *context)
{
	struct upgraded_run *run = context;

	return api_stream_has_room(&run->stream);
}

static void take_frame(void *context, const struct frame *frame)
{
	struct upgraded_run *run = context;

	api_stream_put(&run->stream, frame->type, frame->payload, frame->length, NULL, 0);
}

/* The frames of a turn are gathered, for a guest may send them small. */
static void settled(void *context)
{
	struct upgraded_run *run = context;

	api_stream_flush(&run->stream);
}

static void drained(void *context)
{
	struct upgraded_run *run = context;

	api_stream_read_on(&run->stream);
}

static void done(void *context, const struct run_result *result)
{
	struct upgraded_run *run = context;

	run->base.running = false;
	if (result->error.kind)
		api_stream_put_error(&run->stream, &result->error);
	else
		api_stream_put(&run->stream, AGENT_EXIT, &result->exit, sizeof result->exit, NULL, 0);
	api_stream_end(&run->stream);
}

/* --- the client's side --- */

static int input(void *context, const struct frame *frame, const char **why)
{
	struct upgraded_run *run = context;

	return run_input(&run->base.run, frame, why);
}

static void room(void *context)
{
	struct upgraded_run *run = context;

	run_continue(&run->base.run);
}

static void left(void *context, const char *why)
{
	struct upgraded_run *run = context;

	run_cancel(&run->base.run, why);
	run->base.running = false;
	api_stream_end(&run->stream);
}

/* It was given to a guest, so it may have run: as the plain form says (run.c). */
static void stop(void *context)
{
	static const char why[] = "the daemon is stopping";
	struct upgraded_run *run = context;
	struct error error;

	error_set(&error, ERROR_INCOMPLETE, "no result, and the VM was destroyed: %s", why);
	snprintf(error.vm, sizeof error.vm, "%s", run->base.run.vm->id);
	snprintf(error.cause, sizeof error.cause, "%s", why);
	api_stream_put_error(&run->stream, &error);
	left(run, "stopping");
}

static void closed(void *context)
{
	api_run_destroy(context, NULL);
}

static const struct api_stream_events events = {
	.frame = input, .room = room, .left = left, .stop = stop, .closed = closed};

static void begin(struct api_run *base)
{
	struct upgraded_run *run = (struct upgraded_run *)base;
	const char *const headers[] = {
		"Tinderbox-VM", base->run.vm->id, "Tinderbox-Warm", base->run.warm ? "true" : "false", NULL};

	/* The client is the stream's from now on. */
	api_stream_open(&run->stream, base->api, base->request, headers, &events, run);
}

static void finish(struct api_run *base)
{
	(void)base;
}

static const struct run_sink sink = {
	.has_room = has_room, .frame = take_frame, .settled = settled, .drained = drained, .done = done};

const struct api_run_form api_run_upgraded = {
	.size = sizeof(struct upgraded_run), .sink = &sink, .begin = begin, .finish = finish};
