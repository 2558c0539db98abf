/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: one command each, with its output kept for whoever reads it, now or later.
 *
 *            start               the leader ends             its output is taken in
 *    FREE ──────────→ RUNNING ───────────────────→ DRAINING ──────────────────────→ ENDED ──→ FREE
 *      │                 │ end (deadline, KILL,        ↑                             ↑   evict: the
 *      │                 ↓      shutdown)              │ the leader ends             │   slot is needed
 *      │               ENDING ─────────────────────────┘                             │
 *      └───────────────────────── fail (to start) ───────────────────────────────────┘
 *
 * A slot is an exit status and offsets: what runs and what is read are apart. A reader may come and go in
 * every state but FREE.
 *
 * While a reader is attached, output that it has not taken is never overwritten: the pipe is left alone when
 * the ring is full, so the command waits, and only it. Without a reader the oldest output gives way to the
 * newest.
 *
 * A session that was forgotten, since this is the clone of another machine now, is nobody's: its id finds
 * nothing, and it has no reader. What runs of it goes on as it was, with its limits and its deadline; nothing
 * comes to its stdin, which stays open, and its output is read and thrown away. The slot is used again when
 * it has ended.
 *
 * DRAINING ends at the offset that the output had when the leader ended: a child in the background that still
 * holds the pipe, and even writes to it, does not hold the end back. Then what is left in the session's
 * cgroup is killed, unless KEEP_CHILDREN was asked for; then its output is read and thrown away, so that it
 * lives.
 *
 * Split over session.c (states), session_io.c (bytes), session_start.c (from NEW to exec).
 */
#ifndef GUEST_INIT_SESSION_H
#define GUEST_INIT_SESSION_H

#include "common/frame.h"
#include "common/loop.h"
#include "guest-init/cgroup.h"
#include "guest-init/ring.h"
#include "guest-init/users.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

struct session;
struct sessions;

enum session_state {
	SESSION_FREE = 1, /* 0 is no state: the table of transitions uses it for "not allowed" */
	SESSION_RUNNING,
	SESSION_ENDING,
	SESSION_DRAINING,
	SESSION_ENDED,
	SESSION_STATES
};

enum session_event {
	SESSION_START,
	SESSION_FAIL,
	SESSION_END,
	SESSION_LEADER_ENDED,
	SESSION_DRAINED,
	SESSION_EVICT,
	SESSION_EVENTS
};

/* The stream that reads a session. Both functions are called from the loop only, never from within a call of
 * the reader's own. */
struct session_reader {
	void (*ready)(void *context);	 /* output, credit or the end: there is something to take */
	void (*replaced)(void *context); /* another reader has attached; this one is detached already */
	void *context;
};

enum session_stream { SESSION_STDOUT, SESSION_STDERR, SESSION_OUTPUTS };

struct session_output {
	struct session *session;
	int fd;			    /* read end, non-blocking; -1 after its end */
	struct loop_source *source; /* NULL while paused and after the end */
	struct ring ring;
	uint64_t taken; /* by the reader */
	uint64_t limit; /* where the leader's output ends; UINT64_MAX until that is known */
};

struct session_input {
	bool open;		    /* STDIN may come */
	bool eof;		    /* STDIN_EOF came; the pipe is closed when all is written */
	int fd;			    /* write end, non-blocking; -1: what comes is thrown away */
	struct loop_source *source; /* exists once the pipe was full */
	bool waiting;
	struct ring ring; /* end: received so far */
	uint64_t written; /* to the pipe, or thrown away */
	uint64_t allowed; /* the host may send up to here */
};

struct session {
	struct sessions *sessions;
	enum session_state state;
	enum agent_exit_kind cause; /* ENDING: why */
	uint64_t id;
	uint32_t flags;
	bool forgotten;
	pid_t pid; /* of the leader, and of its process group; 0: never started */
	struct cgroup *group;
	struct loop_source *deadline; /* made when first needed, kept with the slot */
	uint64_t started_ns, ended_order;
	const struct session_reader *reader;
	struct session_input in;
	struct session_output out[SESSION_OUTPUTS];
	struct agent_exit exit; /* final in ENDED */
};

enum { SESSION_VECTOR_MAX = AGENT_ARGC_MAX + AGENT_ENVC_MAX + 4 }; /* two NULLs, PATH and HOME */

struct sessions {
	struct loop *loop;
	struct cgroup_set *groups;
	const struct users_files *users;
	int null_fd;
	bool stopping;
	uint64_t ended; /* sessions so far, for the order of eviction */
	uint8_t *memory;
	char *vector[SESSION_VECTOR_MAX];
	struct session slots[AGENT_SESSIONS_MAX];
};

/*
 * An empty table. Memory for every ring is reserved here but taken from the system only when bytes come:
 * at most AGENT_SESSIONS_MAX times (2 AGENT_OUTPUT_BUFFER + AGENT_STDIN_WINDOW). loop, groups and users stay
 * the caller's and outlive it. fds 0 to 2 must be open. 0 or -errno. NULL is taken by destroy.
 */
int sessions_create(struct loop *loop, struct cgroup_set *groups, const struct users_files *users,
	struct sessions **sessions);
/* Kills what runs; reaps nothing. */
void sessions_destroy(struct sessions *sessions);

/* NULL when no slot holds it, or that was forgotten. */
struct session *sessions_find(struct sessions *sessions, uint64_t id);

/*
 * A new session from a NEW that frame_parse_new accepted; its strings are used during the call only. 0 also
 * when the command could not be started: then the session is ENDED and its exit says so. Refused, with *why:
 * -EEXIST (the id is held), -EAGAIN (every slot is used by one that runs or is read),
 * -ESHUTDOWN (the guest ends).
 */
int session_start(struct sessions *sessions, const struct agent_new_view *view, struct session **session,
	const char **why);

/* Ends a session that runs, for a cause that its exit will tell; else nothing. */
void session_end(struct session *session, enum agent_exit_kind cause);

/* From now on NEW is refused, and what runs will have been ended by AGENT_KILLED; the killing is the
 * caller's. */
void sessions_stop(struct sessions *sessions);

/* Sessions that ended are no more, those that run are nobody's any longer. Each reader is told that it was
 * replaced. */
void sessions_forget(struct sessions *sessions);

/* A child was reaped: does the rest if it was a leader. */
void sessions_child_ended(struct sessions *sessions, pid_t pid, int status, const struct rusage *usage);

/*
 * A reader, from these offsets on (AGENT_OFFSET_OLDEST is allowed). One that was there is replaced. 0,
 * -ENODATA (no longer held) or -EINVAL (not yet written), with *why.
 */
int session_attach(struct session *session, const struct session_reader *reader, uint64_t stdout_offset,
	uint64_t stderr_offset, const char **why);
void session_detach(struct session *session);

/* STDIN: 0, or -EPROTO with *why (no stdin, after its end, over the window). Ignored once the leader has
 * ended. */
int session_put_stdin(struct session *session, const void *data, size_t length, const char **why);
int session_end_stdin(struct session *session, const char **why);
/* 0, or -EPROTO with *why (no tty). Ignored once the leader has ended. */
int session_resize(struct session *session, uint16_t rows, uint16_t columns, const char **why);
/* To the leader's process group; nothing when the leader has ended. */
void session_signal(struct session *session, int signal);

/* For the reader. Bytes of an output that it has not taken yet, at most AGENT_DATA_MAX, and where they are.
 */
size_t session_peek(struct session *session, enum session_stream stream, struct iovec iov[2]);
void session_take(struct session *session, enum session_stream stream, size_t length);
/* STDIN bytes that may be sent on top of those told before; 0 until it is worth a frame. */
uint32_t session_take_credit(struct session *session);
/* True when the exit is final and all output is taken. */
bool session_is_over(const struct session *session);

/* Within session*.c: session.c */
bool session_step(struct session *session, enum session_event event);
void session_finish_drain(struct session *session);
/* ENDED, and without a reader: its slot is free after this. */
void session_evict(struct session *session);
/* session_io.c */
void session_pump(struct session *session);
void session_close_input(struct session *session);
void session_close_output(struct session_output *output);
int session_watch_output(struct session_output *output);
uint64_t session_now_ns(void);

#endif
