/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/run.h"
#include "common/log.h"
#include "host-ctl/clock.h"
#include "host-ctl/run_check.h"
#include "host-ctl/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TO(state) (1u << (state))

static const unsigned int transitions[RUN_STATE_COUNT] = {
	[RUN_STARTING] = TO(RUN_RUNNING) | TO(RUN_LOST) | TO(RUN_ENDED),
	[RUN_RUNNING] = TO(RUN_LOST) | TO(RUN_ENDED),
	[RUN_LOST] = TO(RUN_ENDED),
	[RUN_ENDED] = 0,
};

static const struct {
	const char *name;
	enum metrics_result counter;
} kinds[] = {
	[AGENT_EXITED] = {"exited", METRICS_EXITED},
	[AGENT_SIGNALLED] = {"signalled", METRICS_SIGNALLED},
	[AGENT_TIMED_OUT] = {"timed_out", METRICS_TIMED_OUT},
	[AGENT_OUT_OF_MEMORY] = {"out_of_memory", METRICS_OUT_OF_MEMORY},
	[AGENT_FAILED_TO_START] = {"failed_to_start", METRICS_FAILED_TO_START},
	[AGENT_KILLED] = {"killed", METRICS_KILLED},
};

const char *run_result_name(const struct run_result *result)
{
	return result->error.kind ? error_code(result->error.kind) : kinds[result->exit.kind].name;
}

static void move(struct run *run, enum run_state next)
{
	if (!(transitions[run->state] & TO(next)))
		log_error("%s: bug: run from state %d to %d", run->vm->id, run->state, next);
	run->state = next;
}

/* --- the end --- */

/* One line a run: the record of who ran what where and how it ended. */
static void log_run(const struct run *run, const struct run_result *result, const char *ending)
{
	log_info("run vm=%s uid=%u pid=%d argv0=\"%s\" result=%s code=%d warm=%d queued_us=%llu "
		 "first_byte_us=%llu total_us=%llu stdout=%llu stderr=%llu",
		run->vm->id, (unsigned)run->origin.uid, (int)run->origin.pid, run->name, ending,
		(int)result->exit.code, result->warm, (unsigned long long)result->queued_us,
		(unsigned long long)result->first_byte_us, (unsigned long long)result->total_us,
		(unsigned long long)run->output[0], (unsigned long long)run->output[1]);
	if (result->error.kind)
		log_warn("run vm=%s: %s", run->vm->id, result->error.message);
}

static uint64_t since_us(const struct run *run, uint64_t then)
{
	return then > run->origin.received_ns ? (then - run->origin.received_ns) / CLOCK_NS_PER_US : 0;
}

static void count(struct run *run, const struct run_result *result)
{
	struct metrics *metrics = run->metrics;

	/* Errors are counted where they are answered. */
	if (!result->error.kind)
		metrics->results[kinds[result->exit.kind].counter]++;
	if (run->first_byte_ns && run->origin.pool)
		metrics_observe(&run->origin.pool->first_byte, result->first_byte_us * CLOCK_NS_PER_US);
	metrics_observe(&metrics->run, result->total_us * CLOCK_NS_PER_US);
}

static void fill_times(const struct run *run, struct run_result *result)
{
	memcpy(result->vm, run->vm->id, sizeof result->vm);
	result->warm = run->warm;
	result->queued_us = since_us(run, run->claimed_ns);
	result->first_byte_us = since_us(run, run->first_byte_ns);
	result->total_us = since_us(run, clock_now());
}

/* Takes what the run holds but its sink; run is a copy when its owner may have freed the original. */
static void release(struct run *run, const char *cause)
{
	frame_reader_finish(&run->reader);
	frame_queue_finish(&run->to_guest);
	vm_release(run->vm, cause);
	run->vm = NULL;
}

/* The run's last act; the caller does not touch it afterwards. The answer goes out before the rest is torn
 * down, which takes longer than it. */
static void finish(struct run *run, struct run_result *result)
{
	struct run copy;

	move(run, RUN_ENDED);
	loop_remove(run->deadline);
	run->deadline = NULL;
	fill_times(run, result);
	count(run, result);
	copy = *run;
	run->sink->done(run->context, result);
	log_run(&copy, result, run_result_name(result));
	release(&copy, NULL);
}

static void fail(struct run *run, enum error_kind kind, const char *message, const char *cause)
{
	struct run_result result = {.by_host = false};

	error_set(&result.error, kind, "%s", message);
	snprintf(result.error.vm, sizeof result.error.vm, "%s", run->vm->id);
	snprintf(result.error.cause, sizeof result.error.cause, "%s", cause);
	finish(run, &result);
}

static void break_off(struct run *run, const char *fault)
{
	char message[ERROR_MESSAGE_MAX];

	snprintf(message, sizeof message,
		"no result: the guest broke the agent protocol (%s); its VM was destroyed", fault);
	fail(run, ERROR_INCOMPLETE, message, fault);
}

static void finish_overdue(struct run *run)
{
	struct run_result result = {.exit = {.kind = AGENT_TIMED_OUT}, .by_host = true};

	result.exit.stdout_bytes = run->output[0];
	result.exit.stderr_bytes = run->output[1];
	result.exit.wall_us = (clock_now() - run->claimed_ns) / CLOCK_NS_PER_US;
	finish(run, &result);
}

static void fail_lost(struct run *run)
{
	char message[ERROR_MESSAGE_MAX];

	if (run->overdue) {
		finish_overdue(run);
	} else if (run->vm->killed) {
		snprintf(message, sizeof message, "no result, and the VM was destroyed: %.400s",
			vm_cause(run->vm));
		fail(run, ERROR_INCOMPLETE, message, vm_cause(run->vm));
	} else {
		snprintf(message, sizeof message, "the VM died during the run: %.400s", vm_cause(run->vm));
		fail(run, ERROR_GUEST_LOST, message, vm_cause(run->vm));
	}
}

/* The stream is over and no terminal frame came. Whether the guest or the vmm ended it, the vmm's end tells.
 */
static void lose(struct run *run)
{
	if (run->state == RUN_LOST)
		return;
	move(run, RUN_LOST);
	if (run->vm->reaped) {
		fail_lost(run);
		return;
	}
	/* Edge-triggered and nothing asked for: a hang-up that is known already does not wake again. */
	vm_watch_session(run->vm, EPOLLET);
	vm_lose(run->vm, "the guest ended the session's stream without a result");
}

static void deadline_passed(void *context)
{
	struct run *run = context;

	run->overdue = true;
	/* A slow client may have a result waiting behind its output: that one counts, if it is there. */
	if (run->paused)
		vm_end(run->vm, "its deadline passed");
	else
		finish_overdue(run);
}

/* --- from the guest --- */

enum { GOES_ON = 0, IS_OVER = 1 };

static int handle_output(struct run *run, const struct frame *frame)
{
	int stream = frame->type == AGENT_STDERR;
	const char *fault = run_check_output(frame, run->output[stream]);

	if (fault) {
		break_off(run, fault);
		return IS_OVER;
	}
	if (!run->first_byte_ns)
		run->first_byte_ns = clock_now();
	run->output[stream] += frame->length - sizeof(struct agent_output);
	run->sink->frame(run->context, frame);
	return GOES_ON;
}

static int handle_exit(struct run *run, const struct frame *frame)
{
	struct run_result result = {.by_host = false};
	const char *fault = run_check_exit(frame, run->output, &result.exit);

	if (fault)
		break_off(run, fault);
	else
		finish(run, &result);
	return IS_OVER;
}

static int handle_refusal(struct run *run, const struct frame *frame)
{
	char text[256], message[ERROR_MESSAGE_MAX];
	const char *fault = run_check_error(frame, text, sizeof text);

	if (fault) {
		break_off(run, fault);
		return IS_OVER;
	}
	snprintf(message, sizeof message, "the guest refused the command: %s", text);
	fail(run, run->state == RUN_STARTING ? ERROR_ATTACH_FAILED : ERROR_INCOMPLETE, message, text);
	return IS_OVER;
}

static int handle_credit(struct run *run, const struct frame *frame)
{
	struct agent_credit credit;
	const char *fault = run_check_credit(frame, &credit);

	if (fault) {
		break_off(run, fault);
		return IS_OVER;
	}
	run->credit += credit.bytes;
	run->sink->frame(run->context, frame);
	return GOES_ON;
}

static int handle_started(struct run *run, const struct frame *frame)
{
	const char *fault = run_check_started(frame);

	if (fault) {
		break_off(run, fault);
		return IS_OVER;
	}
	move(run, RUN_RUNNING);
	run->sink->frame(run->context, frame);
	return GOES_ON;
}

static int handle_frame(struct run *run, const struct frame *frame)
{
	bool running = run->state == RUN_RUNNING;

	if (frame->type == AGENT_STARTED && !running)
		return handle_started(run, frame);
	if ((frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR) && running)
		return handle_output(run, frame);
	if (frame->type == AGENT_STDIN_CREDIT)
		return handle_credit(run, frame);
	if (frame->type == AGENT_EXIT)
		return handle_exit(run, frame);
	if (frame->type == AGENT_ERROR)
		return handle_refusal(run, frame);
	break_off(
		run, running ? "a frame of a type that has no place in a session" : "a frame before STARTED");
	return IS_OVER;
}

/* Hands over the frames that are in the buffer, while the sink has room. */
static int handle_buffered(struct run *run)
{
	struct frame frame;
	int status;

	while (run->sink->has_room(run->context)) {
		status = frame_reader_next(&run->reader, &frame);
		if (status == 0)
			return GOES_ON;
		if (status < 0) {
			break_off(run, status == -EMSGSIZE ? "a frame over the limit"
							   : "a frame with a malformed header");
			return IS_OVER;
		}
		if (handle_frame(run, &frame) == IS_OVER)
			return IS_OVER;
	}
	run->paused = true;
	return GOES_ON;
}

static void settle(struct run *run)
{
	if (run->sink->settled)
		run->sink->settled(run->context);
}

/* Reads until nothing is there, the sink is full, or the turn's share is used up. */
static int read_guest(struct run *run)
{
	if (run->state == RUN_LOST)
		return GOES_ON;
	for (int reads = 0; reads < RUN_READS_PER_TURN; reads++) {
		int got;

		if (handle_buffered(run) == IS_OVER)
			return IS_OVER;
		if (run->paused)
			return GOES_ON;
		got = frame_reader_fill(&run->reader, run->vm->session);
		if (got == -EAGAIN)
			return GOES_ON;
		if (got <= 0) {
			settle(run);
			lose(run);
			return IS_OVER;
		}
		/* There was no more, or what came since wakes again. */
		if (frame_reader_has_room(&run->reader))
			return handle_buffered(run);
	}
	return GOES_ON;
}

static int pump(struct run *run)
{
	int status = read_guest(run);

	if (status == GOES_ON)
		settle(run);
	return status;
}

/* The events that fit the present state; only a change costs a system call. */
static void update_watch(struct run *run, bool was_paused, bool was_blocked)
{
	bool blocked = frame_queue_length(&run->to_guest) > 0;

	if (run->paused != was_paused || blocked != was_blocked)
		vm_watch_session(
			run->vm, (run->paused ? EPOLLET : EPOLLIN | EPOLLRDHUP) | (blocked ? EPOLLOUT : 0));
}

/* 0, or -errno: the stream takes no more. */
static int flush(struct run *run)
{
	int status = frame_queue_flush(&run->to_guest, run->vm->session);

	return status < 0 ? status : 0;
}

static void session_ready(void *context, uint32_t events)
{
	struct run *run = context;
	bool was_paused = run->paused, was_blocked = frame_queue_length(&run->to_guest) > 0;

	/* A write that fails says less than what is still to be read, the end of stream included. */
	if ((events & EPOLLOUT) && flush(run) < 0)
		frame_queue_finish(&run->to_guest);
	if (!run->paused && (events & ~(uint32_t)EPOLLOUT) && pump(run) == IS_OVER)
		return;
	if (run->state == RUN_LOST)
		return;
	update_watch(run, was_paused, was_blocked);
	if (run->input_blocked && frame_queue_room(&run->to_guest) > RUN_INPUT_QUEUE / 2) {
		run->input_blocked = false;
		run->sink->drained(run->context);
	}
}

/* The process is gone; what it had written can still be read. */
static void session_ended(void *context)
{
	struct run *run = context;

	if (run->state == RUN_LOST)
		fail_lost(run);
	else if (!run->paused)
		session_ready(run, EPOLLIN);
}

/* The guest's time to say STARTED is over; it may have been in time, and the daemon late to read it. */
static void start_overdue(void *context)
{
	struct run *run = context;
	bool was_paused = run->paused, was_blocked = frame_queue_length(&run->to_guest) > 0;
	char message[ERROR_MESSAGE_MAX];

	if (run->state != RUN_STARTING || (!was_paused && pump(run) == IS_OVER))
		return;
	if (run->state != RUN_STARTING) {
		update_watch(run, was_paused, was_blocked);
		return;
	}
	snprintf(message, sizeof message,
		"the guest did not answer the command within %d s; its VM was destroyed. The command may "
		"have run",
		RUN_START_TIMEOUT_MS / 1000);
	fail(run, ERROR_INCOMPLETE, message, "no STARTED came");
}

static const struct vm_session_events session_events = {
	.ready = session_ready, .ended = session_ended, .alarm = start_overdue};

void run_continue(struct run *run)
{
	bool was_paused = run->paused, was_blocked = frame_queue_length(&run->to_guest) > 0;

	if (!run->paused || run->state == RUN_LOST)
		return;
	run->paused = false;
	if (pump(run) == GOES_ON)
		update_watch(run, was_paused, was_blocked);
}

/* --- to the guest --- */

static int queue_request(struct run *run, const struct run_request *request)
{
	int status = frame_queue_put(
		&run->to_guest, AGENT_NEW, request->payload, request->payload_length, NULL, 0);

	if (!status && request->input_length)
		status = frame_queue_put(
			&run->to_guest, AGENT_STDIN, request->input, request->input_length, NULL, 0);
	if (!status && request->has_input && !request->input_streams)
		status = frame_queue_put(&run->to_guest, AGENT_STDIN_EOF, NULL, 0, NULL, 0);
	return status;
}

static int set_deadline(struct run *run, uint64_t timeout_ms)
{
	if (!timeout_ms)
		return 0;
	run->deadline = loop_add_timer(run->loop, deadline_passed, run);
	if (!run->deadline)
		return -ENOMEM;
	return loop_set_timer(run->deadline, (timeout_ms + RUN_HOST_GRACE_MS) * CLOCK_NS_PER_MS);
}

int run_start(struct run *run, struct vm *vm, const struct run_request *request, bool warm,
	const struct run_origin *origin, struct loop *loop, struct metrics *metrics,
	const struct run_sink *sink, void *context)
{
	int status;

	*run = (struct run){.state = RUN_STARTING,
		.vm = vm,
		.loop = loop,
		.metrics = metrics,
		.sink = sink,
		.context = context,
		.origin = *origin,
		.credit = AGENT_STDIN_WINDOW,
		.warm = warm,
		.claimed_ns = clock_now(),
		.input_ended = !request->input_streams};
	frame_queue_init(&run->to_guest, RUN_INPUT_QUEUE);
	status = frame_reader_init(&run->reader, sizeof(struct agent_output) + AGENT_DATA_MAX);
	run->reader.flags = MSG_DONTWAIT;
	if (!status)
		status = queue_request(run, request);
	if (!status)
		status = set_deadline(run, request->timeout_ms);
	if (status) {
		loop_remove(run->deadline);
		frame_reader_finish(&run->reader);
		frame_queue_finish(&run->to_guest);
		return status;
	}
	memcpy(run->name, request->name, sizeof run->name);
	vm_take(vm, &session_events, run);
	/* A stream that is gone already is found by the first read. */
	if (flush(run) < 0)
		frame_queue_finish(&run->to_guest);
	update_watch(run, false, false);
	/* A deadline before it does as well. */
	if (!run->deadline || request->timeout_ms + RUN_HOST_GRACE_MS > RUN_START_TIMEOUT_MS)
		vm_set_alarm(vm, RUN_START_TIMEOUT_MS);
	if (origin->pool)
		metrics_observe(&origin->pool->claim, run->claimed_ns - origin->received_ns);
	return 0;
}

static int check_client_frame(struct run *run, const struct frame *frame, const char **why)
{
	*why = run_check_client(frame);
	if (*why)
		return -EPROTO;
	if (frame->type != AGENT_STDIN && frame->type != AGENT_STDIN_EOF)
		return 0;
	*why = "STDIN after the end of stdin, or in a run without stdin_stream";
	if (run->input_ended)
		return -EPROTO;
	*why = "STDIN beyond the credit that STDIN_CREDIT frames gave";
	return frame->type == AGENT_STDIN && frame->length > run->credit ? -EPROTO : 0;
}

int run_input(struct run *run, const struct frame *frame, const char **why)
{
	bool was_blocked = frame_queue_length(&run->to_guest) > 0;
	int status = check_client_frame(run, frame, why);

	if (status)
		return status;
	/* A session of a run has no terminal, so there is nothing to resize; a lost one takes nothing. */
	if (frame->type == AGENT_RESIZE || run->state == RUN_LOST)
		return 0;
	status = frame_queue_put(&run->to_guest, frame->type, frame->payload, frame->length, NULL, 0);
	if (status) {
		run->input_blocked = true;
		return -EAGAIN;
	}
	if (frame->type == AGENT_STDIN)
		run->credit -= frame->length;
	run->input_ended = run->input_ended || frame->type == AGENT_STDIN_EOF;
	if (!was_blocked && flush(run) < 0)
		frame_queue_finish(&run->to_guest);
	update_watch(run, run->paused, was_blocked);
	return 0;
}

void run_cancel(struct run *run, const char *why)
{
	struct run_result result = {.by_host = false};

	if (run->state == RUN_ENDED)
		return;
	move(run, RUN_ENDED);
	fill_times(run, &result);
	log_run(run, &result, why);
	loop_remove(run->deadline);
	run->deadline = NULL;
	release(run, why);
}
