/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/changes.h"
#include "common/io.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/text.h"
#include "host-ctl/vm/agent_check.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct changes {
	struct sandbox_watcher watcher;
	struct sandbox *sandbox;
	struct vm_request stream;
	int fd;
	struct loop_source *source, *timer;
	struct frame_reader reader;
	uint32_t limit, count;
	size_t path_bytes;
	char after[AGENT_PATH_MAX + 1]; /* the last path, at first that of the query */
	json_t *list;
	struct error error; /* why there is nothing to tell; kind ERROR_NONE: there is */
	struct agent_changes_end end;
	bool over; /* the timer brings it to its end */
	changes_done_fn *done;
	void *context;
};

void changes_leave(struct changes *changes)
{
	struct sandbox *sandbox = changes->sandbox;

	if (sandbox->vm)
		vm_forget(sandbox->vm, &changes->stream);
	sandbox_unwatch(&changes->watcher);
	loop_remove(changes->source);
	loop_remove(changes->timer);
	fd_close(&changes->fd);
	frame_reader_finish(&changes->reader);
	json_decref(changes->list);
	free(changes);
	sandbox_release(sandbox);
}

/* --- its end --- */

/* Not from here: who is told may ask for the next, or for anything. */
static void settle(struct changes *changes)
{
	changes->over = true;
	loop_remove(changes->source);
	changes->source = NULL;
	loop_set_timer(changes->timer, 1);
}

static void finish(struct changes *changes)
{
	const struct error error = changes->error;
	changes_done_fn *done = changes->done;
	void *context = changes->context;
	json_t *answer = NULL;

	if (!error.kind)
		answer = json_pack("{s:O,s:b,s:I}", "changes", changes->list, "more", (int)changes->end.more,
			"skipped", (json_int_t)changes->end.skipped);
	changes_leave(changes);
	done(context, answer, error.kind ? &error : NULL);
}

static void break_off(struct changes *changes, const char *fault)
{
	error_set(&changes->error, ERROR_INCOMPLETE,
		"the guest of sandbox %s did not tell its changes: it broke the agent protocol (%s)",
		changes->sandbox->id, fault);
	snprintf(changes->error.cause, sizeof changes->error.cause, "%s", fault);
	settle(changes);
}

static void time_is_up(void *context)
{
	struct changes *changes = context;

	if (!changes->over)
		error_set(&changes->error, ERROR_INCOMPLETE,
			"the guest of sandbox %s did not tell its changes within %d s", changes->sandbox->id,
			CHANGES_MS / 1000);
	finish(changes);
}

/* --- what the guest says --- */

static const char *type_of(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "char_device";
	case S_IFBLK:
		return "block_device";
	default:
		return "unknown";
	}
}

static const char *kind_of(const struct agent_change *change)
{
	static const char *const names[] = {
		[AGENT_ADDED] = "added", [AGENT_CHANGED] = "changed", [AGENT_REMOVED] = "removed"};

	return names[change->kind];
}

/* NULL without memory. */
static json_t *to_json(const struct agent_change *change, const char *path)
{
	json_t *text = json_stringn(path, change->path_length), *entry;
	const char *key = text ? "path" : "path_b64";

	if (!text)
		text = text_base64_to_json(path, change->path_length);
	if (change->kind == AGENT_REMOVED)
		return json_pack(
			"{s:s,s:o,s:s}", "kind", kind_of(change), key, text, "type", type_of(change->mode));
	entry = json_pack("{s:s,s:o,s:s,s:I,s:I,s:I,s:I,s:I}", "kind", kind_of(change), key, text, "type",
		type_of(change->mode), "mode", (json_int_t)(change->mode & ~(uint32_t)S_IFMT), "uid",
		(json_int_t)change->uid, "gid", (json_int_t)change->gid, "size",
		(json_int_t)(change->size > INT64_MAX ? INT64_MAX : change->size), "modified_ms",
		(json_int_t)change->modified_ms);
	return entry;
}

/* NULL, or what is wrong with it; *change is set. */
static const char *take_entry(
	struct changes *changes, const uint8_t *bytes, size_t left, struct agent_change *change)
{
	const char *fault = agent_check_change(bytes, left, change);
	char path[AGENT_PATH_MAX + 1];

	if (fault)
		return fault;
	if (++changes->count > changes->limit || changes->path_bytes >= AGENT_CHANGES_BYTES_MAX)
		return "CHANGE_LIST with more than was asked for";
	changes->path_bytes += change->path_length;
	memcpy(path, bytes + sizeof *change, change->path_length);
	path[change->path_length] = '\0';
	if (frame_compare_paths(path, changes->after) <= 0)
		return "CHANGE_LIST out of order";
	memcpy(changes->after, path, change->path_length + 1u);
	if (json_array_append_new(changes->list, to_json(change, path)))
		error_set(&changes->error, ERROR_INTERNAL, "out of memory for the changes");
	return NULL;
}

static const char *take_list(struct changes *changes, const struct frame *frame)
{
	struct agent_change change;
	const char *fault = frame->length ? NULL : "CHANGE_LIST of a wrong length";

	for (size_t at = 0; !fault && at < frame->length; at += sizeof change + change.path_length) {
		fault = take_entry(changes, frame->payload + at, frame->length - at, &change);
		if (fault)
			break;
	}
	return fault;
}

/* What its status tells a program; the words are for people. */
static enum error_kind kind_of_refusal(int status)
{
	switch (status) {
	case EAGAIN:
		return ERROR_EXHAUSTED;
	case EPERM:
		return ERROR_NOT_READY;
	case EOPNOTSUPP:
		return ERROR_CONFLICT;
	default:
		return ERROR_ATTACH_FAILED;
	}
}

static const char *take_refusal(struct changes *changes, const struct frame *frame)
{
	struct agent_status status;
	char text[256];
	const char *fault = agent_check_error(frame, text, sizeof text);

	if (fault)
		return fault;
	memcpy(&status, frame->payload, sizeof status);
	error_set(&changes->error, kind_of_refusal(status.status),
		"the guest of sandbox %s does not tell its changes: %s (%s)", changes->sandbox->id, text,
		strerror(status.status));
	snprintf(changes->error.cause, sizeof changes->error.cause, "%s", text);
	settle(changes);
	return NULL;
}

static const char *take_end(struct changes *changes, const struct frame *frame)
{
	const char *fault = agent_check_changes_end(frame, changes->count, &changes->end);

	if (!fault)
		settle(changes);
	return fault;
}

static const char *take_frame(struct changes *changes, const struct frame *frame)
{
	switch (frame->type) {
	case AGENT_CHANGE_LIST:
		return take_list(changes, frame);
	case AGENT_CHANGES_END:
		return take_end(changes, frame);
	case AGENT_ERROR:
		return take_refusal(changes, frame);
	default:
		return "a frame of a type that has no place among changes";
	}
}

static void take_buffered(struct changes *changes)
{
	const char *fault = NULL;
	struct frame frame;
	int status = 0;

	while (!fault && !changes->over && (status = frame_reader_next(&changes->reader, &frame)) > 0)
		fault = take_frame(changes, &frame);
	if (!fault && status < 0)
		fault = "a malformed frame";
	if (fault)
		break_off(changes, fault);
}

/* One read a turn, which is at most one frame and what fits behind it. */
static void stream_ready(void *context, uint32_t events)
{
	struct changes *changes = context;
	int got = frame_reader_fill(&changes->reader, changes->fd);

	(void)events;
	if (got == -EAGAIN)
		return;
	if (got > 0) {
		take_buffered(changes);
		return;
	}
	error_set(&changes->error, ERROR_INCOMPLETE,
		"the guest of sandbox %s did not tell all of its changes: its stream ended",
		changes->sandbox->id);
	settle(changes);
}

/* --- the stream --- */

/* A new stream takes so little at once. */
static int send_request(const struct changes *changes)
{
	struct agent_changes request = {
		.limit = changes->limit, .after_length = (uint32_t)strlen(changes->after)};
	struct frame_queue queue;
	int status;

	frame_queue_init(&queue, AGENT_FRAME_HEADER + sizeof request + request.after_length);
	status = frame_queue_put(
		&queue, AGENT_CHANGES, &request, sizeof request, changes->after, request.after_length);
	if (!status)
		status = frame_queue_flush(&queue, changes->fd) == 0 ? 0 : -EPIPE;
	frame_queue_finish(&queue);
	return status;
}

static void stream_replied(struct vm_request *request, int status, int fd)
{
	struct changes *changes = (struct changes *)((char *)request - offsetof(struct changes, stream));

	if (changes->over) {
		fd_close(&fd);
		return;
	}
	if (!status) {
		changes->fd = fd;
		changes->source = loop_add_fd(
			changes->sandbox->all->config.loop, fd, EPOLLIN | EPOLLRDHUP, stream_ready, changes);
		status = changes->source ? send_request(changes) : -ENOMEM;
	}
	if (!status)
		return;
	error_set(&changes->error, ERROR_ATTACH_FAILED, "no stream to the guest of sandbox %s: %s",
		changes->sandbox->id, strerror(-status));
	settle(changes);
}

/* --- its sandbox --- */

static void changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	struct changes *changes = (struct changes *)watcher;
	bool lost = sandbox->state == SANDBOX_FAILED;

	if (sandbox->state == SANDBOX_READY || changes->over)
		return;
	error_set(&changes->error, lost ? ERROR_GUEST_LOST : ERROR_CONFLICT,
		"sandbox %s did not tell all of its changes: it is %s%s%.300s", sandbox->id,
		sandbox_state_name(sandbox->state), lost ? ": " : "", lost ? sandbox->reason : "");
	settle(changes);
}

/* Its guest has to run, and is not made to for a look. */
static int check_state(const struct sandbox *sandbox, struct error *error)
{
	enum sandbox_state next;

	if (sandbox_check(sandbox, SANDBOX_EXEC, &next, error))
		return -1;
	if (sandbox->state == SANDBOX_READY)
		return 0;
	if (sandbox->state == next)
		return error_set(error, ERROR_NOT_READY, "sandbox %s is %s, and cannot tell its changes yet",
			sandbox->id, sandbox_state_name(sandbox->state));
	return error_set(error, ERROR_CONFLICT, "sandbox %s is %s, and cannot tell its changes: resume it",
		sandbox->id, sandbox_state_name(sandbox->state));
}

/* 0, or -1 with *error set: it is to be finished by changes_leave. */
static int begin(struct changes *changes, struct error *error)
{
	struct sandbox *sandbox = changes->sandbox;
	int status = frame_reader_init(&changes->reader, AGENT_CHANGE_LIST_MAX);

	changes->reader.flags = MSG_DONTWAIT;
	changes->timer = loop_add_timer(sandbox->all->config.loop, time_is_up, changes);
	changes->list = json_array();
	if (status || !changes->list || !changes->timer ||
		loop_set_timer(changes->timer, CHANGES_MS * CLOCK_NS_PER_MS) < 0)
		return error_set(error, ERROR_INTERNAL, "out of memory for the changes");
	status = vm_ask_stream(sandbox->vm, &changes->stream);
	if (status == -EAGAIN)
		return error_set(
			error, ERROR_EXHAUSTED, "too much is asked of the vmm of sandbox %s", sandbox->id);
	return status ? error_set(error, ERROR_GUEST_LOST, "the VM of sandbox %s is ending", sandbox->id) : 0;
}

struct changes *changes_ask(struct sandbox *sandbox, const struct changes_query *query, changes_done_fn *done,
	void *context, struct error *error)
{
	struct changes *changes;

	if (check_state(sandbox, error))
		return NULL;
	changes = calloc(1, sizeof *changes);
	if (!changes) {
		error_set(error, ERROR_INTERNAL, "out of memory for the changes");
		return NULL;
	}
	changes->watcher.changed = changed;
	changes->sandbox = sandbox;
	changes->stream.replied = stream_replied;
	changes->fd = -1;
	changes->limit = query->limit;
	changes->done = done;
	changes->context = context;
	if (query->after)
		snprintf(changes->after, sizeof changes->after, "%s", query->after);
	sandbox_hold(sandbox);
	sandbox_watch(sandbox, &changes->watcher);
	if (!begin(changes, error))
		return changes;
	changes_leave(changes);
	return NULL;
}
