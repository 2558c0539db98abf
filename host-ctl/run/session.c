/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/run/session.h"
#include "common/log.h"
#include "host-ctl/vm/agent_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TO(state) (1u << (state))

static const unsigned int transitions[SESSION_STATE_COUNT] = {
	[SESSION_STARTING] = TO(SESSION_RUNNING) | TO(SESSION_LOST) | TO(SESSION_OVER),
	[SESSION_RUNNING] = TO(SESSION_LOST) | TO(SESSION_OVER),
	[SESSION_LOST] = TO(SESSION_OVER),
	[SESSION_OVER] = 0,
};

static void move(struct session *session, enum session_state next)
{
	if (!(transitions[session->state] & TO(next)))
		log_error("bug: session from state %d to %d", session->state, next);
	session->state = next;
}

/* --- from the guest --- */

enum { GOES_ON = 0, IS_OVER = 1 };

static int break_off(struct session *session, const char *fault)
{
	move(session, SESSION_OVER);
	session->events->broken(session->context, fault);
	return IS_OVER;
}

/* The stream is over and no terminal frame came. */
static int lose(struct session *session)
{
	move(session, SESSION_LOST);
	/* Edge-triggered and nothing asked for: a hang-up that is known already does not wake again. */
	loop_set_events(session->source, EPOLLET);
	session->events->lost(session->context);
	return IS_OVER;
}

static int handle_output(struct session *session, const struct frame *frame)
{
	int stream = frame->type == AGENT_STDERR;
	struct agent_output output = {.offset = 0};
	const char *fault;

	if (frame->length > sizeof output)
		memcpy(&output, frame->payload, sizeof output);
	if (session->anywhere[stream] && output.offset <= SESSION_OFFSET_MAX)
		session->output[stream] = output.offset;
	session->anywhere[stream] = false;
	fault = agent_check_output(frame, session->output[stream]);
	if (fault)
		return break_off(session, fault);
	session->output[stream] += frame->length - sizeof(struct agent_output);
	session->events->frame(session->context, frame);
	return GOES_ON;
}

static int handle_exit(struct session *session, const struct frame *frame)
{
	struct agent_exit exit;
	const char *fault = agent_check_exit(frame, session->output, &exit);

	if (fault)
		return break_off(session, fault);
	move(session, SESSION_OVER);
	session->events->exited(session->context, &exit);
	return IS_OVER;
}

static int handle_refusal(struct session *session, const struct frame *frame)
{
	bool started = session->state == SESSION_RUNNING;
	char text[256];
	const char *fault = agent_check_error(frame, text, sizeof text);

	if (fault)
		return break_off(session, fault);
	move(session, SESSION_OVER);
	session->events->refused(session->context, text, started);
	return IS_OVER;
}

static int handle_credit(struct session *session, const struct frame *frame)
{
	struct agent_credit credit;
	const char *fault = agent_check_credit(frame, &credit);

	if (fault)
		return break_off(session, fault);
	session->credit += credit.bytes;
	session->events->frame(session->context, frame);
	return GOES_ON;
}

/* After NEW it is known. */
static const char *take_window(struct session *session, const struct frame *frame)
{
	struct agent_started started;

	memcpy(&started, frame->payload, sizeof started);
	if (started.stdin_credit > AGENT_STDIN_WINDOW)
		return "STARTED with a window of a wrong size";
	session->credit = started.stdin_credit;
	session->input_ended = !started.stdin_credit;
	return NULL;
}

static int handle_started(struct session *session, const struct frame *frame)
{
	const char *fault = agent_check_started(frame, session->id);

	if (!fault && session->returns)
		fault = take_window(session, frame);
	if (fault)
		return break_off(session, fault);
	move(session, SESSION_RUNNING);
	session->events->frame(session->context, frame);
	return GOES_ON;
}

static int handle_frame(struct session *session, const struct frame *frame)
{
	bool running = session->state == SESSION_RUNNING;

	if (frame->type == AGENT_STARTED && !running)
		return handle_started(session, frame);
	if ((frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR) && running)
		return handle_output(session, frame);
	if (frame->type == AGENT_STDIN_CREDIT)
		return handle_credit(session, frame);
	if (frame->type == AGENT_EXIT)
		return handle_exit(session, frame);
	if (frame->type == AGENT_ERROR)
		return handle_refusal(session, frame);
	return break_off(session,
		running ? "a frame of a type that has no place in a session" : "a frame before STARTED");
}

/* Hands over the frames that are in the buffer, while the owner has room. */
static int handle_buffered(struct session *session)
{
	struct frame frame;
	int status;

	while (session->events->has_room(session->context)) {
		status = frame_reader_next(&session->reader, &frame);
		if (status == 0)
			return GOES_ON;
		if (status < 0)
			return break_off(session, status == -EMSGSIZE ? "a frame over the limit"
								      : "a frame with a malformed header");
		if (handle_frame(session, &frame) == IS_OVER)
			return IS_OVER;
	}
	session->paused = true;
	return GOES_ON;
}

static void settle(struct session *session)
{
	if (session->events->settled)
		session->events->settled(session->context);
}

/* Reads until nothing is there, the owner is full, or the turn's share is used up. */
static int read_guest(struct session *session)
{
	for (int reads = 0; reads < SESSION_READS_PER_TURN; reads++) {
		int got;

		if (handle_buffered(session) == IS_OVER)
			return IS_OVER;
		if (session->paused)
			return GOES_ON;
		got = frame_reader_fill(&session->reader, session->fd);
		if (got == -EAGAIN)
			return GOES_ON;
		if (got <= 0) {
			settle(session);
			return lose(session);
		}
		/* There was no more, or what came since wakes again. */
		if (frame_reader_has_room(&session->reader))
			return handle_buffered(session);
	}
	/* What the last of them brought, for which nothing wakes if the stream is empty now. */
	return handle_buffered(session);
}

static int pump(struct session *session)
{
	int status = read_guest(session);

	if (status == GOES_ON)
		settle(session);
	return status;
}

/* --- the stream --- */

static bool is_live(const struct session *session)
{
	return session->state == SESSION_STARTING || session->state == SESSION_RUNNING;
}

/* The events that fit the present state; only a change costs a system call. */
static void update_watch(struct session *session, bool was_paused, bool was_blocked)
{
	bool blocked = frame_queue_length(&session->to_guest) > 0;

	if (session->paused != was_paused || blocked != was_blocked)
		loop_set_events(session->source,
			(session->paused ? EPOLLET : EPOLLIN | EPOLLRDHUP) | (blocked ? EPOLLOUT : 0));
}

/* A write that fails says less than what is still to be read, the end of stream included. */
static void flush(struct session *session)
{
	if (frame_queue_flush(&session->to_guest, session->fd) < 0)
		frame_queue_finish(&session->to_guest);
}

void session_ready(struct session *session, uint32_t events)
{
	bool was_paused = session->paused, was_blocked = frame_queue_length(&session->to_guest) > 0;

	if (!is_live(session))
		return;
	if (events & EPOLLOUT)
		flush(session);
	if (!session->paused && (events & ~(uint32_t)EPOLLOUT) && pump(session) == IS_OVER)
		return;
	update_watch(session, was_paused, was_blocked);
	if (session->input_blocked && frame_queue_room(&session->to_guest) > SESSION_INPUT_QUEUE / 2) {
		session->input_blocked = false;
		session->events->drained(session->context);
	}
}

bool session_read(struct session *session)
{
	bool was_paused = session->paused, was_blocked = frame_queue_length(&session->to_guest) > 0;

	if (!is_live(session))
		return true;
	if (was_paused)
		return false;
	if (pump(session) == IS_OVER)
		return true;
	update_watch(session, was_paused, was_blocked);
	return false;
}

void session_continue(struct session *session)
{
	bool was_paused = session->paused, was_blocked = frame_queue_length(&session->to_guest) > 0;

	if (!session->paused || !is_live(session))
		return;
	session->paused = false;
	if (pump(session) == GOES_ON)
		update_watch(session, was_paused, was_blocked);
}

/* --- to the guest --- */

/* The NEW frame under our id: its struct, then what follows it. */
static int queue_new(struct session *session, const struct run_request *request)
{
	struct agent_new fixed;

	memcpy(&fixed, request->payload, sizeof fixed);
	fixed.session = session->id;
	return frame_queue_put(&session->to_guest, AGENT_NEW, &fixed, sizeof fixed,
		request->payload + sizeof fixed, request->payload_length - sizeof fixed);
}

static int queue_request(struct session *session, const struct run_request *request)
{
	int status = queue_new(session, request);

	if (!status && request->input_length)
		status = frame_queue_put(
			&session->to_guest, AGENT_STDIN, request->input, request->input_length, NULL, 0);
	if (!status && request->has_input && !request->input_streams)
		status = frame_queue_put(&session->to_guest, AGENT_STDIN_EOF, NULL, 0, NULL, 0);
	return status;
}

void session_error_refused(struct error *error, const char *text, bool started)
{
	error_set(error, started ? ERROR_INCOMPLETE : ERROR_ATTACH_FAILED,
		"the guest refused the command: %s", text);
	snprintf(error->cause, sizeof error->cause, "%s", text);
}

void session_error_broken(struct error *error, const char *fault)
{
	error_set(error, ERROR_INCOMPLETE,
		"no result: the guest broke the agent protocol (%s); its VM was destroyed", fault);
	snprintf(error->cause, sizeof error->cause, "%s", fault);
}

void session_error_overdue(struct error *error)
{
	error_set(error, ERROR_INCOMPLETE,
		"the guest did not answer the command within %d s; its VM was destroyed. The command may "
		"have run",
		SESSION_START_TIMEOUT_MS / 1000);
	snprintf(error->cause, sizeof error->cause, "no STARTED came");
}

/* What is put into the queue next is its first frame. 0 or -ENOMEM; either way it may be finished. */
static int prepare(struct session *session)
{
	int status;

	session->fd = -1;
	frame_queue_init(&session->to_guest, SESSION_INPUT_QUEUE);
	status = frame_reader_init(&session->reader, sizeof(struct agent_output) + AGENT_DATA_MAX);
	session->reader.flags = MSG_DONTWAIT;
	return status;
}

int session_init(struct session *session, const struct run_request *request, uint64_t id,
	const struct session_events *events, void *context)
{
	int status;

	*session = (struct session){.state = SESSION_STARTING,
		.id = id,
		.events = events,
		.context = context,
		.credit = AGENT_STDIN_WINDOW - request->input_length,
		.input_ended = !request->input_streams,
		.has_terminal = request->has_terminal};
	status = prepare(session);
	if (!status)
		status = queue_request(session, request);
	if (status)
		session_finish(session);
	return status;
}

int session_init_return(struct session *session, uint64_t id, bool has_terminal,
	const struct session_events *events, void *context)
{
	const struct agent_attach attach = {
		.session = id, .stdout_offset = AGENT_OFFSET_OLDEST, .stderr_offset = AGENT_OFFSET_OLDEST};
	int status;

	*session = (struct session){.state = SESSION_STARTING,
		.id = id,
		.events = events,
		.context = context,
		.input_ended = true,
		.has_terminal = has_terminal,
		.returns = true,
		.anywhere = {true, true}};
	status = prepare(session);
	if (!status)
		status = frame_queue_put(&session->to_guest, AGENT_ATTACH, &attach, sizeof attach, NULL, 0);
	if (status)
		session_finish(session);
	return status;
}

void session_start(struct session *session, int fd, struct loop_source *source)
{
	session->fd = fd;
	session->source = source;
	/* A stream that is gone already is found by the first read. */
	flush(session);
	update_watch(session, false, false);
}

void session_finish(struct session *session)
{
	frame_reader_finish(&session->reader);
	frame_queue_finish(&session->to_guest);
	session->state = SESSION_OVER;
}

static int check_client_frame(struct session *session, const struct frame *frame, const char **why)
{
	*why = agent_check_client(frame);
	if (*why)
		return -EPROTO;
	if (frame->type != AGENT_STDIN && frame->type != AGENT_STDIN_EOF)
		return 0;
	*why = "STDIN after the end of stdin, or in a run without stdin_stream";
	if (session->input_ended)
		return -EPROTO;
	*why = "STDIN beyond the credit that STDIN_CREDIT frames gave";
	return frame->type == AGENT_STDIN && frame->length > session->credit ? -EPROTO : 0;
}

int session_input(struct session *session, const struct frame *frame, const char **why)
{
	bool was_blocked = frame_queue_length(&session->to_guest) > 0;
	int status = check_client_frame(session, frame, why);

	if (status)
		return status;
	/* Without a terminal there is nothing to resize; a lost session takes nothing. */
	if ((frame->type == AGENT_RESIZE && !session->has_terminal) || !is_live(session))
		return 0;
	status = frame_queue_put(&session->to_guest, frame->type, frame->payload, frame->length, NULL, 0);
	if (status) {
		session->input_blocked = true;
		return -EAGAIN;
	}
	if (frame->type == AGENT_STDIN)
		session->credit -= frame->length;
	session->input_ended = session->input_ended || frame->type == AGENT_STDIN_EOF;
	/* Before session_start it only gathers. */
	if (session->fd < 0)
		return 0;
	if (!was_blocked)
		flush(session);
	update_watch(session, session->paused, was_blocked);
	return 0;
}
