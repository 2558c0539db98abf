/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/run/run.h"
#include "common/log.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

void run_result_count(const struct run_result *result, struct metrics *metrics)
{
	if (!result->error.kind)
		metrics->results[kinds[result->exit.kind].counter]++;
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
		(unsigned long long)run->session.output[0], (unsigned long long)run->session.output[1]);
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

	run_result_count(result, metrics);
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
	session_finish(&run->session);
	vm_release(run->vm, cause);
	run->vm = NULL;
}

/* The run's last act; the caller does not touch it afterwards. The answer goes out before the VM is torn
 * down, which takes longer than it: both at the end of the loop's round, in the order they are asked for. */
static void finish(struct run *run, struct run_result *result)
{
	struct run copy;

	run->ended = true;
	loop_remove(run->deadline);
	run->deadline = NULL;
	fill_times(run, result);
	count(run, result);
	copy = *run;
	run->sink->done(run->context, result);
	log_run(&copy, result, run_result_name(result));
	release(&copy, NULL);
}

/* error: but for its VM. */
static void fail(struct run *run, const struct error *error)
{
	struct run_result result = {.by_host = false, .error = *error};

	snprintf(result.error.vm, sizeof result.error.vm, "%s", run->vm->id);
	finish(run, &result);
}

static void finish_overdue(struct run *run)
{
	struct run_result result = {.exit = {.kind = AGENT_TIMED_OUT}, .by_host = true};

	result.exit.stdout_bytes = run->session.output[0];
	result.exit.stderr_bytes = run->session.output[1];
	result.exit.wall_us = (clock_now() - run->claimed_ns) / CLOCK_NS_PER_US;
	finish(run, &result);
}

static void fail_lost(struct run *run)
{
	struct error error;

	if (run->overdue) {
		finish_overdue(run);
		return;
	}
	if (run->vm->killed)
		error_set(&error, ERROR_INCOMPLETE, "no result, and the VM was destroyed: %.400s",
			vm_cause(run->vm));
	else
		error_set(&error, ERROR_GUEST_LOST, "the VM died during the run: %.400s", vm_cause(run->vm));
	snprintf(error.cause, sizeof error.cause, "%s", vm_cause(run->vm));
	fail(run, &error);
}

static void deadline_passed(void *context)
{
	struct run *run = context;

	run->overdue = true;
	/* A slow client may have a result waiting behind its output: that one counts, if it is there. */
	if (run->session.paused)
		vm_end(run->vm, "its deadline passed");
	else
		finish_overdue(run);
}

/* --- from the guest --- */

static bool has_room(void *context)
{
	struct run *run = context;

	return run->sink->has_room(run->context);
}

static void take_frame(void *context, const struct frame *frame)
{
	struct run *run = context;

	if (!run->first_byte_ns && (frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR))
		run->first_byte_ns = clock_now();
	run->sink->frame(run->context, frame);
}

static void settled(void *context)
{
	struct run *run = context;

	if (run->sink->settled)
		run->sink->settled(run->context);
}

static void drained(void *context)
{
	struct run *run = context;

	run->sink->drained(run->context);
}

static void exited(void *context, const struct agent_exit *exit)
{
	struct run_result result = {.exit = *exit};

	finish(context, &result);
}

static void refused(void *context, const char *text, bool started)
{
	struct error error;

	session_error_refused(&error, text, started);
	fail(context, &error);
}

static void broken(void *context, const char *fault)
{
	struct error error;

	session_error_broken(&error, fault);
	fail(context, &error);
}

/* Whether the guest or the vmm ended the stream, the vmm's end tells. */
static void lost(void *context)
{
	struct run *run = context;

	if (run->vm->reaped)
		fail_lost(run);
	else
		vm_lose(run->vm, "the guest ended the session's stream without a result");
}

static const struct session_events events = {.has_room = has_room,
	.frame = take_frame,
	.settled = settled,
	.drained = drained,
	.exited = exited,
	.refused = refused,
	.broken = broken,
	.lost = lost};

/* --- the VM --- */

static void vm_ready(void *context, uint32_t ready)
{
	struct run *run = context;

	session_ready(&run->session, ready);
}

/* The process is gone; what it had written can still be read. */
static void vm_ended(void *context)
{
	struct run *run = context;

	if (run->session.state == SESSION_LOST)
		fail_lost(run);
	else
		session_read(&run->session);
}

/* The guest's time to say STARTED is over; it may have been in time, and the daemon late to read it. */
static void start_overdue(void *context)
{
	struct run *run = context;
	struct error error;

	if (run->session.state != SESSION_STARTING || session_read(&run->session) ||
		run->session.state != SESSION_STARTING)
		return;
	session_error_overdue(&error);
	fail(run, &error);
}

static const struct vm_session_events vm_events = {
	.ready = vm_ready, .ended = vm_ended, .alarm = start_overdue};

/* --- for the owner --- */

static int set_deadline(struct run *run, uint64_t timeout_ms)
{
	if (!timeout_ms)
		return 0;
	run->deadline = loop_add_timer(run->loop, deadline_passed, run);
	if (!run->deadline)
		return -ENOMEM;
	return loop_set_timer(run->deadline, (timeout_ms + SESSION_HOST_GRACE_MS) * CLOCK_NS_PER_MS);
}

int run_start(struct run *run, struct vm *vm, const struct run_request *request, bool warm,
	const struct run_origin *origin, struct loop *loop, struct metrics *metrics,
	const struct run_sink *sink, void *context)
{
	int status;

	*run = (struct run){.vm = vm,
		.loop = loop,
		.metrics = metrics,
		.sink = sink,
		.context = context,
		.origin = *origin,
		.warm = warm,
		.claimed_ns = clock_now()};
	status = session_init(&run->session, request, RUN_SESSION, &events, run);
	if (status)
		return status;
	status = set_deadline(run, request->timeout_ms);
	if (status) {
		loop_remove(run->deadline);
		session_finish(&run->session);
		return status;
	}
	memcpy(run->name, request->name, sizeof run->name);
	vm_take(vm, &vm_events, run);
	session_start(&run->session, vm->session, vm->session_source);
	/* A deadline before it does as well. */
	if (!run->deadline || request->timeout_ms + SESSION_HOST_GRACE_MS > SESSION_START_TIMEOUT_MS)
		vm_set_alarm(vm, SESSION_START_TIMEOUT_MS);
	if (origin->pool)
		metrics_observe(&origin->pool->claim, run->claimed_ns - origin->received_ns);
	return 0;
}

void run_continue(struct run *run)
{
	session_continue(&run->session);
}

int run_input(struct run *run, const struct frame *frame, const char **why)
{
	return session_input(&run->session, frame, why);
}

void run_cancel(struct run *run, const char *why)
{
	struct run_result result = {.by_host = false};

	if (run->ended)
		return;
	run->ended = true;
	fill_times(run, &result);
	log_run(run, &result, why);
	loop_remove(run->deadline);
	run->deadline = NULL;
	release(run, why);
}
