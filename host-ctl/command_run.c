/* SPDX-License-Identifier: Apache-2.0 */
/* A command from its stream to its end: what the guest says, what the clock says, what becomes of the
 * sandbox. What ends the command is the last thing that its caller does with it. */
#include "common/io.h"
#include "host-ctl/clock.h"
#include "host-ctl/command_private.h"
#include "host-ctl/sandboxes_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* --- the clock --- */

static bool stands_still(const struct command *command)
{
	return command->sandbox->state == SANDBOX_PAUSED || command->sandbox->state == SANDBOX_RESUMING;
}

/* 0 nanoseconds: there is no end to it. */
static void arm(struct command *command, uint64_t nanoseconds)
{
	command->due_ns = nanoseconds ? clock_now() + nanoseconds : 0;
	command->left_ns = 0;
	if (stands_still(command)) {
		command->left_ns = nanoseconds;
		nanoseconds = 0;
	}
	loop_set_timer(command->timer, nanoseconds);
}

void command_set_phase(struct command *command, enum command_phase phase, uint64_t milliseconds)
{
	command->phase = phase;
	arm(command, milliseconds * CLOCK_NS_PER_MS);
}

static void stop_clock(struct command *command)
{
	uint64_t now = clock_now();

	if (!command->due_ns || command->left_ns)
		return;
	command->left_ns = command->due_ns > now ? command->due_ns - now : 1;
	loop_set_timer(command->timer, 0);
}

/* The guest had no time to do its part meanwhile. */
static void go_on_clock(struct command *command)
{
	const uint64_t least = SESSION_HOST_GRACE_MS * CLOCK_NS_PER_MS;

	if (command->left_ns)
		arm(command, command->left_ns > least ? command->left_ns : least);
}

/* --- what the guest says --- */

static bool has_room(void *context)
{
	const struct command *command = context;
	const struct command_reader *reader = command->reader;

	if (!reader || !reader->follows || command->unbounded)
		return true;
	return command->output[0].total - reader->at[0] < COMMAND_LAG_MAX &&
	       command->output[1].total - reader->at[1] < COMMAND_LAG_MAX;
}

static void take_started(struct command *command, const struct frame *frame)
{
	struct agent_started started;

	memcpy(&started, frame->payload, sizeof started);
	command->started = true;
	command->pid = started.pid;
	/* One that is being killed stays so. */
	if (command->phase == COMMAND_STARTS)
		command_set_phase(command, COMMAND_ENDS,
			command->timeout_ms ? command->timeout_ms + SESSION_HOST_GRACE_MS : 0);
	if (command->reader)
		command->reader->events->frame(command->reader->context, frame);
}

static void take_frame(void *context, const struct frame *frame)
{
	const size_t skip = sizeof(struct agent_output);
	struct command *command = context;

	if (frame->type == AGENT_STARTED) {
		take_started(command, frame);
		return;
	}
	if (frame->type == AGENT_STDIN_CREDIT) {
		if (command->reader)
			command->reader->events->frame(command->reader->context, frame);
		return;
	}
	if (!command->first_byte_ns)
		command->first_byte_ns = clock_now();
	run_output_add(
		&command->output[frame->type == AGENT_STDERR], frame->payload + skip, frame->length - skip);
	if (command->reader)
		command->reader->events->more(command->reader->context);
}

static void settled(void *context)
{
	struct command *command = context;

	command_tell(command);
	if (command->reader)
		command->reader->events->settled(command->reader->context);
}

static void drained(void *context)
{
	struct command *command = context;

	if (command->reader)
		command->reader->events->drained(command->reader->context);
}

static void end_timed_out(struct command *command)
{
	struct run_result result = {.exit = {.kind = AGENT_TIMED_OUT}, .by_host = true};

	result.exit.wall_us = (clock_now() - command->running_ns) / CLOCK_NS_PER_US;
	command_end(command, &result);
}

static void exited(void *context, const struct agent_exit *exit)
{
	struct command *command = context;
	struct run_result result = {.exit = *exit};

	if (command->overdue && exit->kind == AGENT_KILLED) {
		result.exit.kind = AGENT_TIMED_OUT;
		result.by_host = true;
	}
	command_end(command, &result);
}

static void refused(void *context, const char *text, bool started)
{
	struct error error;

	session_error_refused(&error, text, started);
	command_fail(context, error.kind, error.message, error.cause);
}

static void broken(void *context, const char *fault)
{
	struct command *command = context;
	struct sandbox *sandbox = command->sandbox;
	struct error error;
	char reason[VM_CAUSE_MAX];

	session_error_broken(&error, fault);
	snprintf(reason, sizeof reason, "its guest broke the agent protocol: %s", fault);
	command_fail(command, error.kind, error.message, error.cause);
	sandbox_fail(sandbox, reason);
}

/* The sandbox is over, and the command with it. */
static void end_with_sandbox(struct command *command)
{
	const struct sandbox *sandbox = command->sandbox;
	bool died = sandbox->state == SANDBOX_FAILED && !sandbox->failed_by_host;
	char message[ERROR_MESSAGE_MAX];

	/* What the guest had said before may hold the result. */
	command->unbounded = true;
	session_continue(&command->session);
	if (command->state == COMMAND_RUNNING)
		session_read(&command->session);
	if (command->state == COMMAND_ENDED)
		return;
	snprintf(message, sizeof message, "no result: sandbox %s is %s: %.300s", sandbox->id,
		sandbox_state_name(sandbox->state), sandbox->reason);
	command_fail(command, died ? ERROR_GUEST_LOST : ERROR_INCOMPLETE, message, sandbox->reason);
}

static bool is_over(const struct sandbox *sandbox)
{
	return sandbox->state == SANDBOX_FAILED || sandbox->state == SANDBOX_STOPPED ||
	       sandbox->state == SANDBOX_DELETING || sandbox->state == SANDBOX_GONE;
}

/* Whether the guest or the vmm ended the stream, the vmm's end tells. */
static void lost(void *context)
{
	struct command *command = context;

	if (!is_over(command->sandbox))
		command_set_phase(command, COMMAND_IS_LOST, COMMAND_LOST_MS);
}

static const struct session_events events = {.has_room = has_room,
	.frame = take_frame,
	.settled = settled,
	.drained = drained,
	.exited = exited,
	.refused = refused,
	.broken = broken,
	.lost = lost};

/* --- the stream --- */

static void stream_ready(void *context, uint32_t ready)
{
	struct command *command = context;

	session_ready(&command->session, ready);
}

/* fd becomes the command's. */
static void begin(struct command *command, int fd)
{
	struct sandbox *sandbox = command->sandbox;
	int status = -ENOMEM;

	command->fd = fd;
	command->source =
		loop_add_fd(sandbox->all->config.loop, fd, EPOLLIN | EPOLLRDHUP, stream_ready, command);
	if (command->source)
		status = session_init(
			&command->session, &command->request, ++sandbox->last_session, &events, command);
	if (status) {
		command_fail(command, ERROR_INTERNAL, "out of memory for the command", "");
		return;
	}
	command->state = COMMAND_RUNNING;
	command->running_ns = clock_now();
	run_request_finish(&command->request);
	command_set_phase(command, COMMAND_STARTS, SESSION_START_TIMEOUT_MS);
	session_start(&command->session, fd, command->source);
	drained(command);
}

/* The stream that was open before the sandbox was, unless the guest has closed it since. */
static int take_stream(struct sandbox *sandbox)
{
	int fd = sandbox->stream;
	char byte;

	sandbox->stream = -1;
	if (fd >= 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		fd_close(&fd);
	return fd;
}

void command_connect(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;
	int fd = take_stream(sandbox), status;

	command->state = COMMAND_CONNECTING;
	if (fd >= 0) {
		begin(command, fd);
		return;
	}
	command_set_phase(command, COMMAND_STARTS, SESSION_START_TIMEOUT_MS);
	status = vm_ask_stream(sandbox->vm, &command->stream);
	if (status == -EAGAIN)
		command_fail(command, ERROR_EXHAUSTED, "too many streams to the guest are being opened", "");
	else if (status)
		command_fail(command, ERROR_ATTACH_FAILED, "the VM is ending", "");
}

void command_stream_replied(struct command *command, int status, int fd)
{
	char message[ERROR_MESSAGE_MAX];

	if (!status) {
		begin(command, fd);
		return;
	}
	snprintf(message, sizeof message, "no stream to the guest's agent: %s", strerror(-status));
	command_fail(command, ERROR_ATTACH_FAILED, message, strerror(-status));
}

/* --- what happens to it --- */

static void start_overdue(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;
	char message[ERROR_MESSAGE_MAX];
	struct error error;

	if (command->state == COMMAND_CONNECTING) {
		snprintf(message, sizeof message, "the guest's agent took no stream within %d s",
			SESSION_START_TIMEOUT_MS / 1000);
		command_fail(command, ERROR_ATTACH_FAILED, message, "no stream came");
		return;
	}
	/* It may have been in time, and the daemon late to read it. */
	if (session_read(&command->session) || command->started)
		return;
	session_error_overdue(&error);
	command_fail(command, error.kind, error.message, error.cause);
	sandbox_fail(sandbox, "its agent did not answer a command");
}

static void kill_overdue(struct command *command)
{
	const struct run_result killed = {.exit = {.kind = AGENT_KILLED}, .by_host = true};
	struct sandbox *sandbox = command->sandbox;

	if (command->overdue)
		end_timed_out(command);
	else
		command_end(command, &killed);
	sandbox_fail(sandbox, "its agent did not end a command that was killed");
}

void command_time_is_up(struct command *command)
{
	switch (command->phase) {
	case COMMAND_STARTS:
		start_overdue(command);
		return;
	case COMMAND_ENDS:
		command->overdue = true;
		command_kill(command);
		return;
	case COMMAND_IS_KILLED:
		command_kill(command);
		return;
	case COMMAND_DIES:
		kill_overdue(command);
		return;
	case COMMAND_IS_LOST:
		command_fail(command, ERROR_INCOMPLETE,
			"no result: the guest ended the session's stream without one",
			"the guest ended the session's stream without a result");
	}
}

/* The sandbox could not be woken. */
static void end_asleep(struct command *command)
{
	const struct error *error = &command->sandbox->error;

	command_fail(command, error->kind ? error->kind : ERROR_CONFLICT,
		error->kind ? error->message : "the sandbox could not be resumed", error->cause);
}

void command_sandbox_changed(struct command *command)
{
	switch (command->sandbox->state) {
	case SANDBOX_READY:
		if (command->state == COMMAND_WAKING)
			command_connect(command);
		else
			go_on_clock(command);
		return;
	case SANDBOX_PAUSED:
		if (command->state == COMMAND_WAKING)
			end_asleep(command);
		else
			stop_clock(command);
		return;
	case SANDBOX_FAILED:
	case SANDBOX_STOPPED:
	case SANDBOX_DELETING:
	case SANDBOX_GONE:
		end_with_sandbox(command);
		return;
	default:
		return;
	}
}
