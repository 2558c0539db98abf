/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant: the command that is fetched now is held, and has a stream, or has asked for one. */
#include "host-ctl/sandbox/command_fetch.h"
#include "common/io.h"
#include "host-ctl/sandbox/command_private.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct command_fetch {
	struct sandbox_watcher watcher;
	struct sandbox *sandbox;
	struct command *command; /* NULL: none at present */
	unsigned int tries;	 /* to ask for its stream */
	bool waits;		 /* to try again */
	struct vm_request stream;
	struct session session;
	int fd;
	struct loop_source *source, *timer;
	struct run_output output[2]; /* of the command, as far as it came */
};

static void set_timer(struct command_fetch *fetch, uint64_t milliseconds)
{
	loop_set_timer(fetch->timer, milliseconds * CLOCK_NS_PER_MS);
}

/* What is under way is as if it had not begun. */
static void let_go(struct command_fetch *fetch)
{
	struct command *command = fetch->command;

	set_timer(fetch, 0);
	if (!command)
		return;
	if (fetch->sandbox->vm)
		vm_forget(fetch->sandbox->vm, &fetch->stream);
	loop_remove(fetch->source);
	fetch->source = NULL;
	fd_close(&fetch->fd);
	session_finish(&fetch->session);
	run_output_finish(&fetch->output[0]);
	run_output_finish(&fetch->output[1]);
	fetch->command = NULL;
	command_drop(command);
}

void command_fetch_end(struct sandbox *sandbox)
{
	struct command_fetch *fetch = sandbox->fetch;

	if (!fetch)
		return;
	sandbox->fetch = NULL;
	let_go(fetch);
	for (struct command *command = sandbox->commands; command; command = command->next) {
		if (!command->fetches)
			continue;
		command->fetches = false;
		command_tell(command);
	}
	sandbox_unwatch(&fetch->watcher);
	loop_remove(fetch->timer);
	free(fetch);
}

static void ask_stream(struct command_fetch *fetch)
{
	int status = vm_ask_stream(fetch->sandbox->vm, &fetch->stream);

	fetch->waits = status == -EAGAIN && ++fetch->tries < COMMAND_FETCH_MS / COMMAND_FETCH_RETRY_MS;
	if (!status || fetch->waits)
		set_timer(fetch, status ? COMMAND_FETCH_RETRY_MS : COMMAND_FETCH_MS);
	else
		command_fetch_end(fetch->sandbox);
}

/* The oldest, for it is the first that a guest gives up; without one, this is over. */
static void fetch_next(struct command_fetch *fetch)
{
	struct command *command = fetch->sandbox->commands;

	while (command && !command->fetches)
		command = command->next;
	if (!command) {
		command_fetch_end(fetch->sandbox);
		return;
	}
	fetch->command = command;
	fetch->tries = 0;
	command_hold(command);
	ask_stream(fetch);
}

static bool is_whole(const struct command_fetch *fetch)
{
	const struct run_output *output = fetch->command->output;

	return fetch->output[0].total == output[0].total && fetch->output[1].total == output[1].total;
}

/* The guest has told all that it does of this one. */
static void settle(struct command_fetch *fetch, bool whole)
{
	struct command *command = fetch->command;

	command->fetches = false;
	for (int i = 0; i < 2 && whole; i++) {
		run_output_finish(&command->output[i]);
		command->output[i] = fetch->output[i];
		fetch->output[i] = (struct run_output){0};
	}
	commands_note_ended(command);
	command_tell(command);
	let_go(fetch);
}

/* --- what the guest says --- */

static bool has_room(void *context)
{
	(void)context;
	return true;
}

static void take_frame(void *context, const struct frame *frame)
{
	const size_t skip = sizeof(struct agent_output);
	struct command_fetch *fetch = context;
	struct run_output *output = &fetch->output[frame->type == AGENT_STDERR];
	struct agent_output head;

	if (frame->type != AGENT_STDOUT && frame->type != AGENT_STDERR)
		return;
	memcpy(&head, frame->payload, skip);
	if (!output->total)
		run_output_begin_at(output, head.offset);
	run_output_add(output, frame->payload + skip, frame->length - skip);
}

static void exited(void *context, const struct agent_exit *exit)
{
	struct command_fetch *fetch = context;

	(void)exit;
	settle(fetch, is_whole(fetch));
	fetch_next(fetch);
}

static void refused(void *context, const char *text, bool started)
{
	struct command_fetch *fetch = context;

	(void)text;
	(void)started;
	settle(fetch, false);
	fetch_next(fetch);
}

static void broken(void *context, const char *fault)
{
	struct command_fetch *fetch = context;
	struct sandbox *sandbox = fetch->sandbox;
	char reason[VM_CAUSE_MAX];

	command_fetch_end(sandbox);
	snprintf(reason, sizeof reason, "its guest broke the agent protocol: %s", fault);
	sandbox_fail(sandbox, reason);
}

static void lost(void *context)
{
	struct command_fetch *fetch = context;

	settle(fetch, false);
	fetch_next(fetch);
}

static const struct session_events events = {.has_room = has_room,
	.frame = take_frame,
	.exited = exited,
	.refused = refused,
	.broken = broken,
	.lost = lost};

/* --- the stream --- */

static void stream_ready(void *context, uint32_t ready)
{
	struct command_fetch *fetch = context;

	session_ready(&fetch->session, ready);
}

static void stream_replied(struct vm_request *request, int status, int fd)
{
	struct command_fetch *fetch =
		(struct command_fetch *)((char *)request - offsetof(struct command_fetch, stream));

	if (!status) {
		fetch->fd = fd;
		fetch->source = loop_add_fd(
			fetch->sandbox->all->config.loop, fd, EPOLLIN | EPOLLRDHUP, stream_ready, fetch);
		status = fetch->source ? session_init_return(&fetch->session, fetch->command->session_id,
						 false, &events, fetch)
				       : -ENOMEM;
	}
	if (status)
		command_fetch_end(fetch->sandbox);
	else
		session_start(&fetch->session, fd, fetch->source);
}

static void timer_fired(void *context)
{
	struct command_fetch *fetch = context;

	if (fetch->waits)
		ask_stream(fetch);
	else
		command_fetch_end(fetch->sandbox);
}

/* --- its sandbox --- */

static void changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	struct command_fetch *fetch = (struct command_fetch *)watcher;

	switch (sandbox->state) {
	case SANDBOX_READY:
		if (!fetch->command)
			fetch_next(fetch);
		return;
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
	case SANDBOX_COPYING:
	case SANDBOX_SUSPENDING:
	case SANDBOX_SUSPENDED:
	case SANDBOX_WAKING:
		let_go(fetch);
		return;
	default:
		command_fetch_end(sandbox);
	}
}

/* NULL without memory, or an fd. */
static struct command_fetch *make(struct sandbox *sandbox)
{
	struct command_fetch *fetch = calloc(1, sizeof *fetch);

	if (!fetch)
		return NULL;
	fetch->watcher.changed = changed;
	fetch->sandbox = sandbox;
	fetch->stream.replied = stream_replied;
	fetch->fd = -1;
	fetch->timer = loop_add_timer(sandbox->all->config.loop, timer_fired, fetch);
	if (!fetch->timer) {
		free(fetch);
		return NULL;
	}
	sandbox_watch(sandbox, &fetch->watcher);
	return fetch;
}

void command_fetch(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;

	if (!sandbox->fetch && (sandbox->vm || sandbox->state == SANDBOX_SUSPENDED))
		sandbox->fetch = make(sandbox);
	command->fetches = sandbox->fetch != NULL;
}
