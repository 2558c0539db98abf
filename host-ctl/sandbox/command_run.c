/* SPDX-License-Identifier: Apache-2.0 */
/* A command from its stream to its end: what the guest says, what the clock says, what becomes of the
 * sandbox. What ends the command is the last thing that its caller does with it. */
#include "common/io.h"
#include "host-ctl/sandbox/command_private.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* --- the clock --- */

static bool stands_still(const struct command *command)
{
	static const bool still[SANDBOX_STATE_COUNT] = {[SANDBOX_PAUSED] = true,
		[SANDBOX_RESUMING] = true,
		[SANDBOX_COPYING] = true,
		[SANDBOX_SUSPENDING] = true,
		[SANDBOX_SUSPENDED] = true,
		[SANDBOX_WAKING] = true};

	return still[command->sandbox->state];
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

/* 0 of a reader who was further with an earlier daemon than its output is here. */
static uint64_t lag(const struct command *command, int stream)
{
	uint64_t total = command->output[stream].total, at = command->reader->at[stream];

	return total > at ? total - at : 0;
}

static bool has_room(void *context)
{
	const struct command *command = context;
	const struct command_reader *reader = command->reader;

	if (!reader || !reader->follows || command->unbounded)
		return true;
	return lag(command, 0) < COMMAND_LAG_MAX && lag(command, 1) < COMMAND_LAG_MAX;
}

/* The host's deadline from now on; 0: there is none. Of one that returns it is not known when the guest got
 * it, but it was at the latest then. */
static uint64_t left_of_time(const struct command *command)
{
	uint64_t since = clock_wall_ms() - command->started_ms;
	uint64_t latest = command->timeout_ms + SANDBOX_PATIENCE_MS + SESSION_START_TIMEOUT_MS;

	if (!command->timeout_ms)
		return 0;
	if (!command->returns)
		return command->timeout_ms + SESSION_HOST_GRACE_MS;
	/* A clock that was set back gives it all of its time anew; so does a sleep, in which its guest's
	 * stood. */
	if (since > INT64_MAX || command->slept)
		since = 0;
	return (latest > since ? latest - since : 0) + SESSION_HOST_GRACE_MS;
}

/* What came with the request, and an earlier daemon had not handed over. */
static void hand_over_rest(struct command *command, uint64_t taken)
{
	const struct run_request *request = &command->request;
	struct frame rest = {.type = AGENT_STDIN}, end = {.type = AGENT_STDIN_EOF};
	const char *why;

	if (!command->session.input_ended && request->has_input && !request->input_streams) {
		if (taken < request->input_length) {
			rest.payload = request->input + taken;
			rest.length = (uint32_t)(request->input_length - taken);
			session_input(&command->session, &rest, &why);
		}
		session_input(&command->session, &end, &why);
	}
	run_request_finish(&command->request);
}

static void drained(void *context)
{
	struct command *command = context;

	if (command->reader)
		command->reader->events->drained(command->reader->context);
}

/* Who was attached before a sleep knows it; who came in it was told of no window. */
static void tell_started(const struct command *command, const struct frame *frame, uint32_t window)
{
	const struct agent_credit credit = {.bytes = window};
	const struct frame more = {
		.type = AGENT_STDIN_CREDIT, .length = sizeof credit, .payload = (const uint8_t *)&credit};

	if (!command->reader)
		return;
	if (!command->slept || !command->tells)
		command->reader->events->frame(command->reader->context, frame);
	else if (window)
		command->reader->events->frame(command->reader->context, &more);
}

static void take_started(struct command *command, const struct frame *frame)
{
	struct agent_started started;

	memcpy(&started, frame->payload, sizeof started);
	command->started = true;
	command->pid = started.pid;
	if (command->returns) {
		command->input = started.stdin_offset;
		hand_over_rest(command, started.stdin_offset);
	}
	/* One that is being killed stays so. */
	if (command->phase == COMMAND_STARTS)
		command_set_phase(command, COMMAND_ENDS, left_of_time(command));
	tell_started(command, frame, started.stdin_credit);
	if (command->returns)
		drained(command);
	sandbox_suspension_look(command->sandbox);
}

/* After a sleep the guest tells again what it still holds. What it does not is lost, with what came before,
 * for an output has one beginning. */
static void add_output(struct command *command, const struct frame *frame)
{
	const size_t skip = sizeof(struct agent_output);
	struct run_output *output = &command->output[frame->type == AGENT_STDERR];
	uint64_t length = frame->length - skip, known;
	struct agent_output head;

	memcpy(&head, frame->payload, skip);
	if (command->returns && head.offset > output->total) {
		run_output_drop(output);
		run_output_begin_at(output, head.offset);
	}
	known = output->total - head.offset;
	if (known < length)
		run_output_add(output, frame->payload + skip + known, (size_t)(length - known));
}

static void take_frame(void *context, const struct frame *frame)
{
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
	add_output(command, frame);
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
	const struct command *command = context;
	struct error error;

	if (command->returns) {
		command_fail(context, ERROR_INCOMPLETE,
			command->slept ? "no result: the sandbox was suspended, and the guest does not hold "
					 "the command any more; it may have run"
				       : "no result: the daemon ended, and the guest does not hold the "
					 "command any more; it may have run",
			text);
		return;
	}
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

/* In words that stay true when it has gone on. */
static const char *end_name(const struct sandbox *sandbox)
{
	if (sandbox->state == SANDBOX_FAILED)
		return "has failed";
	return sandbox->state == SANDBOX_STOPPED ? "stopped" : "has ended";
}

/* The sandbox is over, and the command with it. */
static void end_with_sandbox(struct command *command)
{
	const struct sandbox *sandbox = command->sandbox;
	bool died = (sandbox->state == SANDBOX_FAILED || sandbox->lost) && !sandbox->failed_by_host;
	char message[ERROR_MESSAGE_MAX];

	/* What the guest had said before may hold the result. */
	command->unbounded = true;
	session_continue(&command->session);
	if (command->state == COMMAND_RUNNING)
		session_read(&command->session);
	if (command->state == COMMAND_ENDED)
		return;
	snprintf(message, sizeof message, "no result: sandbox %s %s: %.300s", sandbox->id, end_name(sandbox),
		sandbox->reason);
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

/* Held, for the session looks at the command after its events, and a client that hears of them may have it
 * removed once it has ended. */
static void stream_ready(void *context, uint32_t ready)
{
	struct command *command = context;

	command_hold(command);
	session_ready(&command->session, ready);
	command_drop(command);
}

static void start_session(struct command *command, int fd)
{
	struct sandbox *sandbox = command->sandbox;
	int status = -ENOMEM;

	command->fd = fd;
	command->source =
		loop_add_fd(sandbox->all->config.loop, fd, EPOLLIN | EPOLLRDHUP, stream_ready, command);
	if (command->source && command->returns)
		status = session_init_return(&command->session, command->session_id,
			command->request.has_terminal || command->has_terminal, &events, command);
	else if (command->source)
		status = session_init(
			&command->session, &command->request, command->session_id, &events, command);
	if (status) {
		command_fail(command, ERROR_INTERNAL, "out of memory for the command", "");
		return;
	}
	command->state = COMMAND_RUNNING;
	command->doomed = command->doomed || command->phase == COMMAND_IS_KILLED;
	command->running_ns = clock_now();
	/* What is on its way when the sandbox is suspended is handed over again. */
	if (!command->returns && (!command->request.has_input || command->request.input_streams))
		run_request_finish(&command->request);
	command_set_phase(command, COMMAND_STARTS, SESSION_START_TIMEOUT_MS);
	session_start(&command->session, fd, command->source);
	drained(command);
	if (command->doomed)
		command_kill(command);
}

/* fd becomes the command's. Held as in stream_ready. */
static void begin(struct command *command, int fd)
{
	command_hold(command);
	start_session(command, fd);
	command_drop(command);
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

/* One that returns has run. */
static void fail_unconnected(
	struct command *command, enum error_kind kind, const char *message, const char *cause)
{
	command_fail(command, command->returns ? ERROR_INCOMPLETE : kind, message, cause);
}

void command_connect(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;
	int fd, status;

	/* A KILL that came before this turn of the loop is over ends it in the next. */
	if (command->phase == COMMAND_IS_KILLED && !command->returns)
		return;
	command->doomed = command->doomed || command->phase == COMMAND_IS_KILLED;
	fd = take_stream(sandbox);
	command->state = COMMAND_CONNECTING;
	if (fd >= 0) {
		begin(command, fd);
		return;
	}
	command_set_phase(command, COMMAND_STARTS, SESSION_START_TIMEOUT_MS);
	status = vm_ask_stream(sandbox->vm, &command->stream);
	if (status == -EAGAIN)
		fail_unconnected(
			command, ERROR_EXHAUSTED, "too many streams to the guest are being opened", "");
	else if (status)
		fail_unconnected(command, ERROR_ATTACH_FAILED, "the VM is ending", "");
}

void command_stream_replied(struct command *command, int status, int fd)
{
	char message[ERROR_MESSAGE_MAX];

	if (!status) {
		begin(command, fd);
		return;
	}
	snprintf(message, sizeof message, "no stream to the guest's agent: %s", strerror(-status));
	fail_unconnected(command, ERROR_ATTACH_FAILED, message, strerror(-status));
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
		fail_unconnected(command, ERROR_ATTACH_FAILED, message, "no stream came");
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

static void read_all(struct command *command)
{
	bool unbounded = command->unbounded;
	uint64_t before;
	int reads = 0;

	command->unbounded = true;
	session_continue(&command->session);
	do {
		before = command->session.output[0] + command->session.output[1];
		if (command->state == COMMAND_RUNNING)
			session_read(&command->session);
	} while (command->state == COMMAND_RUNNING && ++reads < COMMAND_SLEEP_READS &&
		 command->session.output[0] + command->session.output[1] != before);
	command->unbounded = unbounded;
}

void command_sleep(struct command *command)
{
	if (command->state == COMMAND_RUNNING)
		read_all(command);
	if (command->state == COMMAND_CONNECTING) {
		if (command->sandbox->vm)
			vm_forget(command->sandbox->vm, &command->stream);
		command->state = COMMAND_WAKING;
	}
	if (command->state != COMMAND_RUNNING)
		return;
	command->doomed = command->doomed || command->phase == COMMAND_DIES;
	command->has_terminal = command->session.has_terminal;
	command->tells = command->started;
	loop_remove(command->source);
	command->source = NULL;
	fd_close(&command->fd);
	session_finish(&command->session);
	command->state = COMMAND_WAKING;
	command->returns = command->slept = true;
}

/* What was held back while it was to be suspended. */
static void take_input_again(struct command *command)
{
	if (command->state == COMMAND_RUNNING)
		drained(command);
}

void command_sandbox_changed(struct command *command)
{
	switch (command->sandbox->state) {
	case SANDBOX_READY:
		if (command->state == COMMAND_WAKING && command->intended) {
			command_connect(command);
			return;
		}
		go_on_clock(command);
		take_input_again(command);
		return;
	case SANDBOX_COPYING:
	case SANDBOX_SUSPENDING:
		stop_clock(command);
		return;
	case SANDBOX_PAUSED:
		if (command->state == COMMAND_WAKING && !command->returns) {
			end_asleep(command);
			return;
		}
		stop_clock(command);
		take_input_again(command);
		return;
	case SANDBOX_SUSPENDED:
		/* What was about to start when it was suspended does so when it is woken; after a wake that
		 * did not come about it ends. */
		if (command->state == COMMAND_WAKING && !command->returns && command->sandbox->error.kind)
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
