/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run: one command in one warm VM of its own, from its NEW frame to its one result. What is said on the
 * stream is session.h's; this is what becomes of the VM and how it is told.
 *
 *   STARTED, output, EXIT            the result
 *   ERROR                            attach_failed, or incomplete after STARTED
 *   broken protocol, no STARTED      incomplete
 *   stream ended without EXIT        the vmm ended: guest_lost; it was killed: incomplete
 *   deadline                         timed out, by the host
 *
 * The VM is ended with its run, whatever the result.
 */
#ifndef HOST_CTL_RUN_H
#define HOST_CTL_RUN_H

#include "host-ctl/run/session.h"
#include "host-ctl/support/metrics.h"
#include "host-ctl/vm/vm.h"
#include <stdbool.h>
#include <stdint.h>

struct run_result {
	struct error error;	/* kind ERROR_NONE: there is an exit */
	struct agent_exit exit; /* checked */
	bool by_host;		/* timed out, and the host had to enforce it */
	char vm[VM_ID_MAX];
	bool warm;
	uint64_t queued_us, first_byte_us,
		total_us; /* from the request's last byte; first_byte 0: no output */
};

/* Who gets what the guest sends. Called from the loop or from run_continue, not from run_start. */
struct run_sink {
	/* False: no frame is read from the guest until run_continue. */
	bool (*has_room)(void *context);
	/* STARTED, STDOUT, STDERR or STDIN_CREDIT, checked. */
	void (*frame)(void *context, const struct frame *frame);
	/* The frames of this turn, if any, are handed over; done may still follow. May be NULL. */
	void (*settled)(void *context);
	/* run_input has room again after -EAGAIN. */
	void (*drained)(void *context);
	/* The end. The run's memory may be freed; what it held is let go right after the call. */
	void (*done)(void *context, const struct run_result *result);
};

/* Who asked, when the last byte of it was read (CLOCK_MONOTONIC), and of which pool. */
struct run_origin {
	uid_t uid;
	pid_t pid;
	uint64_t received_ns;
	struct metrics_pool *pool; /* counted there as well; NULL: nowhere */
};

struct run {
	struct session session;
	struct vm *vm;
	struct loop *loop;
	struct metrics *metrics;
	const struct run_sink *sink;
	void *context;
	struct run_origin origin;
	struct loop_source *deadline;
	uint64_t claimed_ns, first_byte_ns;
	bool ended, overdue, warm;
	char name[RUN_NAME_MAX];
};

/*
 * Takes the warm VM and sends the request to its guest. The request may be finished after the call. 0, or
 * -ENOMEM: nothing was taken. What fails later comes by sink->done.
 */
int run_start(struct run *run, struct vm *vm, const struct run_request *request, bool warm,
	const struct run_origin *origin, struct loop *loop, struct metrics *metrics,
	const struct run_sink *sink, void *context);

/* The sink has room again. */
void run_continue(struct run *run);

/*
 * A frame from the client: STDIN, STDIN_EOF, SIGNAL, RESIZE or KILL. 0; -EAGAIN: not taken, wait for drained;
 * -EPROTO with *why a constant sentence: the client broke the protocol.
 */
int run_input(struct run *run, const struct frame *frame, const char **why);

/* The client left, or broke the protocol: the VM is ended, and done is not called. why: for the log. */
void run_cancel(struct run *run, const char *why);

/* Counts one that is no error: those are counted where they are answered. */
void run_result_count(const struct run_result *result, struct metrics *metrics);
/* "exited", "timed_out", ... or the error's code. */
const char *run_result_name(const struct run_result *result);

#endif
