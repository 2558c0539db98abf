/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run: one command in one warm VM, from its NEW frame to its one result.
 *
 *   STARTING ───STARTED───▶ RUNNING ───EXIT────▶ ENDED
 *      │ EXIT (failed to start), ERROR,             ▲
 *      │ deadline, broken protocol, cancelled,      │
 *      │ no STARTED in time                         │
 *      ├────────────────────────────────────────────┤
 *      └──stream ended without EXIT──▶ LOST ────────┘  the vmm ended (guest_lost), or was killed (incomplete)
 *
 * The guest is hostile. Each frame is checked against common/proto_guest.h: type by state, length, the offset
 * of output (contiguous from 0), the values of EXIT. A frame that fails ends the run as `incomplete` with the
 * fault named, and the VM; so does a guest that has not said STARTED within
 * RUN_START_TIMEOUT_MS, unless its deadline comes first. At most RUN_READS_PER_TURN reads are made for one
 * run in one turn of the loop. The VM is ended with its run, whatever the result.
 */
#ifndef HOST_CTL_RUN_H
#define HOST_CTL_RUN_H

#include "common/frame.h"
#include "host-ctl/metrics.h"
#include "host-ctl/run_request.h"
#include "host-ctl/vm.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	RUN_READS_PER_TURN = 16,
	RUN_HOST_GRACE_MS = 2000,	  /* after timeout_ms for the guest to keep it; then the host does */
	RUN_START_TIMEOUT_MS = 10 * 1000, /* from NEW to STARTED */
	/* To the guest: a NEW, the request's stdin, or a full window and small frames. */
	RUN_INPUT_QUEUE = AGENT_FRAME_MAX + AGENT_STDIN_WINDOW + 64 * 1024,
};

enum run_state { RUN_STARTING, RUN_RUNNING, RUN_LOST, RUN_ENDED, RUN_STATE_COUNT };

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
	enum run_state state;
	struct vm *vm;
	struct loop *loop;
	struct metrics *metrics;
	const struct run_sink *sink;
	void *context;
	struct run_origin origin;
	struct frame_reader reader;
	struct frame_queue to_guest;
	struct loop_source *deadline;
	uint64_t output[2]; /* bytes of stdout, stderr so far */
	uint64_t credit;    /* stdin bytes the client may still send */
	uint64_t claimed_ns, first_byte_ns;
	bool paused, input_blocked, input_ended, overdue, warm;
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

/* "exited", "timed_out", ... or the error's code. */
const char *run_result_name(const struct run_result *result);

#endif
