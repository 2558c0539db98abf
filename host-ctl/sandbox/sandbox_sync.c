/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_sync.h"
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/vm/agent_check.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

struct sandbox_sync {
	struct sandbox *sandbox;
	struct vm_request stream;
	int fd;
	struct loop_source *source, *timer;
	struct frame_reader reader;
	bool greeted;
	bool over;	    /* the timer brings it to its end */
	struct error error; /* kind ERROR_NONE: it is on the disk */
	sandbox_sync_done_fn *done;
	void *context;
};

void sandbox_sync_leave(struct sandbox_sync *sync)
{
	if (!sync)
		return;
	if (sync->sandbox->vm)
		vm_forget(sync->sandbox->vm, &sync->stream);
	loop_remove(sync->source);
	loop_remove(sync->timer);
	fd_close(&sync->fd);
	frame_reader_finish(&sync->reader);
	free(sync);
}

/* Not from here: who is told may ask for anything. */
static void settle(struct sandbox_sync *sync)
{
	sync->over = true;
	loop_remove(sync->source);
	sync->source = NULL;
	loop_set_timer(sync->timer, 1);
}

static void fail(struct sandbox_sync *sync, enum error_kind kind, const char *why)
{
	error_set(&sync->error, kind, "the guest of sandbox %s did not bring its files to its disk: %.300s",
		sync->sandbox->id, why);
	snprintf(sync->error.cause, sizeof sync->error.cause, "%s", why);
	settle(sync);
}

static void time_is_up(void *context)
{
	struct sandbox_sync *sync = context;
	sandbox_sync_done_fn *done = sync->done;
	void *of = sync->context;
	struct error error;

	if (!sync->over)
		fail(sync, ERROR_INCOMPLETE, "it took too long");
	error = sync->error;
	sandbox_sync_leave(sync);
	done(of, error.kind ? &error : NULL);
}

/* --- what the guest says --- */

/* Each of these returns NULL, or what is wrong with the frame. */

static const char *take_hello(struct sandbox_sync *sync, const struct frame *frame)
{
	struct agent_hello hello;

	if (frame->length < sizeof hello)
		return "HELLO of a wrong length";
	memcpy(&hello, frame->payload, sizeof hello);
	if (hello.version != AGENT_PROTO_VERSION)
		return "HELLO of another version";
	sync->greeted = true;
	return NULL;
}

static const char *take_held(struct sandbox_sync *sync, const struct frame *frame)
{
	struct agent_status held;

	if (frame->length != sizeof held)
		return "HELD of a wrong length";
	memcpy(&held, frame->payload, sizeof held);
	if (held.status < 0 || held.text_length)
		return "HELD that is malformed";
	if (held.status)
		fail(sync, ERROR_INCOMPLETE, strerror(held.status));
	else
		settle(sync);
	return NULL;
}

static const char *take_refusal(struct sandbox_sync *sync, const struct frame *frame)
{
	char text[256];
	const char *fault = agent_check_error(frame, text, sizeof text);

	if (!fault)
		fail(sync, ERROR_ATTACH_FAILED, text);
	return fault;
}

static const char *take_frame(struct sandbox_sync *sync, const struct frame *frame)
{
	if (frame->type == AGENT_ERROR)
		return take_refusal(sync, frame);
	if (frame->type == AGENT_HELLO && !sync->greeted)
		return take_hello(sync, frame);
	if (frame->type == AGENT_HELD && sync->greeted)
		return take_held(sync, frame);
	return "a frame that was not asked for";
}

static void take_buffered(struct sandbox_sync *sync)
{
	const char *fault = NULL;
	struct frame frame;
	char why[128];
	int status = 0;

	while (!fault && !sync->over && (status = frame_reader_next(&sync->reader, &frame)) > 0)
		fault = take_frame(sync, &frame);
	if (!fault && status < 0)
		fault = "a malformed frame";
	if (!fault)
		return;
	snprintf(why, sizeof why, "it broke the agent protocol (%s)", fault);
	fail(sync, ERROR_INCOMPLETE, why);
}

static void stream_ready(void *context, uint32_t events)
{
	struct sandbox_sync *sync = context;
	int got = frame_reader_fill(&sync->reader, sync->fd);

	(void)events;
	if (got > 0)
		take_buffered(sync);
	else if (got != -EAGAIN)
		fail(sync, ERROR_INCOMPLETE, "its stream ended");
}

/* --- the stream --- */

/* A new stream takes so little at once. */
static int send_request(const struct sandbox_sync *sync)
{
	const struct agent_control control = {.version = AGENT_PROTO_VERSION};
	struct frame_queue queue;
	int status;

	frame_queue_init(&queue, 2 * AGENT_FRAME_HEADER + sizeof control);
	status = frame_queue_put(&queue, AGENT_CONTROL, &control, sizeof control, NULL, 0);
	if (!status)
		status = frame_queue_put(&queue, AGENT_HOLD, NULL, 0, NULL, 0);
	if (!status)
		status = frame_queue_flush(&queue, sync->fd) == 0 ? 0 : -EPIPE;
	frame_queue_finish(&queue);
	return status;
}

static void stream_replied(struct vm_request *request, int status, int fd)
{
	struct sandbox_sync *sync =
		(struct sandbox_sync *)((char *)request - offsetof(struct sandbox_sync, stream));

	if (sync->over) {
		fd_close(&fd);
		return;
	}
	if (!status) {
		sync->fd = fd;
		sync->source = loop_add_fd(
			sync->sandbox->all->config.loop, fd, EPOLLIN | EPOLLRDHUP, stream_ready, sync);
		status = sync->source ? send_request(sync) : -ENOMEM;
	}
	if (status)
		fail(sync, ERROR_ATTACH_FAILED, strerror(-status));
}

/* 0, or -1 with *error set. */
static int begin(struct sandbox_sync *sync, struct error *error)
{
	struct sandbox *sandbox = sync->sandbox;
	int status = frame_reader_init(&sync->reader, sizeof(struct agent_hello) + AGENT_TEXT_MAX);

	sync->reader.flags = MSG_DONTWAIT;
	sync->timer = loop_add_timer(sandbox->all->config.loop, time_is_up, sync);
	if (status || !sync->timer || loop_set_timer(sync->timer, SANDBOX_SYNC_MS * CLOCK_NS_PER_MS) < 0)
		return error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
	status = vm_ask_stream(sandbox->vm, &sync->stream);
	return status ? sandbox_refuse_request(sandbox, status, error) : 0;
}

struct sandbox_sync *sandbox_sync_begin(
	struct sandbox *sandbox, sandbox_sync_done_fn *done, void *context, struct error *error)
{
	struct sandbox_sync *sync = calloc(1, sizeof *sync);

	if (!sync) {
		error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
		return NULL;
	}
	*sync = (struct sandbox_sync){.sandbox = sandbox,
		.stream.replied = stream_replied,
		.fd = -1,
		.done = done,
		.context = context};
	if (!begin(sync, error))
		return sync;
	sandbox_sync_leave(sync);
	return NULL;
}
