/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One session over one stream to a guest's agent, from its NEW frame, or ATTACH, to its end; who owns the VM,
 * and what becomes of it, is its owner's affair (run.c, command.c).
 *
 *   STARTING ───STARTED───▶ RUNNING ───EXIT────▶ OVER
 *      │ EXIT (failed to start), ERROR, broken protocol ▲
 *      ├────────────────────────────────────────────────┤
 *      └──stream ended without EXIT──▶ LOST ────────────┘ session_finish
 *
 * The guest is hostile. Each frame is checked against common/proto_guest.h: type by state, length, the offset
 * of output (contiguous from 0, after ATTACH from wherever it begins), the values of EXIT; the first that
 * fails ends the session, with the fault named. At most SESSION_READS_PER_TURN reads are made in one turn of
 * the loop. What a client sends is checked as well.
 */
#ifndef HOST_CTL_SESSION_H
#define HOST_CTL_SESSION_H

#include "common/frame.h"
#include "common/loop.h"
#include "host-ctl/run/run_request.h"
#include "host-ctl/support/error.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	SESSION_READS_PER_TURN = 16,
	SESSION_START_TIMEOUT_MS = 10 * 1000, /* from NEW to STARTED, for owners */
	SESSION_HOST_GRACE_MS = 2000, /* after timeout_ms for the guest to keep it; then the host does */
	/* To the guest: a NEW, the request's stdin, or a full window and small frames. */
	SESSION_INPUT_QUEUE = AGENT_FRAME_MAX + AGENT_STDIN_WINDOW + 64 * 1024,
};

/* Where output may begin after ATTACH. */
#define SESSION_OFFSET_MAX (UINT64_C(1) << 62)

enum session_state { SESSION_STARTING, SESSION_RUNNING, SESSION_LOST, SESSION_OVER, SESSION_STATE_COUNT };

/*
 * Called from within session_ready, session_read and session_continue. One of the last four is called once;
 * after it the session reads no more, and its memory may be gone.
 */
struct session_events {
	/* False: no frame is read from the guest until session_continue. */
	bool (*has_room)(void *context);
	/* STARTED, STDOUT, STDERR or STDIN_CREDIT, checked. */
	void (*frame)(void *context, const struct frame *frame);
	/* The frames of this turn, if any, are handed over. May be NULL. */
	void (*settled)(void *context);
	/* session_input has room again after -EAGAIN. */
	void (*drained)(void *context);
	void (*exited)(void *context, const struct agent_exit *exit);
	/* The guest refused it in these words, before or after STARTED. */
	void (*refused)(void *context, const char *text, bool started);
	/* The guest broke the protocol. */
	void (*broken)(void *context, const char *fault);
	/* The stream is over and no EXIT came: LOST. */
	void (*lost)(void *context);
};

struct session {
	enum session_state state;
	uint64_t id;
	int fd;			    /* the owner's, as is */
	struct loop_source *source; /* its source */
	const struct session_events *events;
	void *context;
	struct frame_reader reader;
	struct frame_queue to_guest;
	uint64_t output[2]; /* bytes of stdout, stderr so far */
	uint64_t credit;    /* stdin bytes that may still be sent */
	bool paused, input_blocked, input_ended, has_terminal;
	bool returns;	  /* it was begun by ATTACH */
	bool anywhere[2]; /* the first byte of stdout, stderr may stand where it likes */
};

/* How an end without a result is told; *error but for its VM. The guest refused it in these words: */
void session_error_refused(struct error *error, const char *text, bool started);
/* It broke the protocol; or said no STARTED in time. Its VM was destroyed for that. */
void session_error_broken(struct error *error, const char *fault);
void session_error_overdue(struct error *error);

/* The request goes into the queue, under this id, and may be finished after the call. 0, or -ENOMEM: there is
 * nothing to finish. */
int session_init(struct session *session, const struct run_request *request, uint64_t id,
	const struct session_events *events, void *context);
/* The same, for one that the guest has under this id: ATTACH, to all that is held of its output. What may be
 * sent of stdin STARTED says. */
int session_init_return(struct session *session, uint64_t id, bool has_terminal,
	const struct session_events *events, void *context);
/* Sends it. fd: a stream to the agent that does not block; source: watches it for EPOLLIN | EPOLLRDHUP, and
 * its callback calls session_ready. Both stay the owner's. */
void session_start(struct session *session, int fd, struct loop_source *source);
/* Frees what it holds; OVER from then on. Takes one that is, and a zeroed one. */
void session_finish(struct session *session);

void session_ready(struct session *session, uint32_t events);
/* Reads what is there, though nothing woke: true when the session is over or lost by it. */
bool session_read(struct session *session);
/* The owner has room again. */
void session_continue(struct session *session);

/*
 * A frame from the client: STDIN, STDIN_EOF, SIGNAL, RESIZE or KILL. 0; -EAGAIN: not taken, wait for drained;
 * -EPROTO with *why a constant sentence: the client broke the protocol.
 */
int session_input(struct session *session, const struct frame *frame, const char **why);

#endif
