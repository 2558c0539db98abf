/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command in a sandbox, from its creation to its one result, and its output after it.
 *
 *   CREATED ──command_start──▶ WAKING ──the sandbox is ready──▶ CONNECTING ──stream──▶ RUNNING ──▶ ENDED
 *      │                          │                                │                               ▲
 *      └──────────────────────────┴────────────────────────────────┴───────────────────────────────┘
 *                                          killed, refused, the sandbox ended
 *
 * What the guest sends is kept, head and tail of each stream (run_output.h), and handed from there to the one
 * who is attached, who reads at offsets of their own. When that reader is COMMAND_LAG_MAX behind, the guest
 * is no longer read, and nothing else waits. Nobody need be attached.
 *
 * One that an earlier daemon had started comes back: from WAKING on as above, but its session is in the guest
 * already and is attached to, to all that this still holds of its output. When the guest does not know it, it
 * has ended without a result, and may have run.
 *
 * The host keeps the deadline: SESSION_HOST_GRACE_MS after it the guest is told to kill the session, and when
 * that is not over COMMAND_KILL_MS later, the sandbox fails. It also fails when its guest breaks the protocol
 * on the stream of a command, or does not answer a NEW within SESSION_START_TIMEOUT_MS: its agent cannot be
 * trusted. A paused sandbox's clocks stand. When its sandbox is suspended what runs goes back to WAKING, and
 * then comes back as well, to what it has not read yet.
 */
#ifndef HOST_CTL_COMMAND_H
#define HOST_CTL_COMMAND_H

#include "host-ctl/run/run.h"
#include "host-ctl/run/run_output.h"
#include "host-ctl/sandbox/command_token.h"
#include "host-ctl/sandbox/sandbox.h"
#include "host-ctl/support/list.h"

struct command_writing;
struct journal_command;

enum {
	COMMAND_ID_MAX = 24, /* "cmd-" and 16 hexadecimal digits */
	COMMAND_LAG_MAX = 256 * 1024,
	COMMAND_KILL_MS = 2000,
	COMMAND_SLEEP_READS = 64,  /* of what is there when its sandbox is suspended */
	COMMAND_LOST_MS = 2500,	   /* for the vmm to end, so that its reason is known */
	COMMAND_OUTPUT_MIN = 4096, /* of each stream, that may be asked to be held */
};

enum command_state {
	COMMAND_CREATED,
	COMMAND_WAKING,
	COMMAND_CONNECTING,
	COMMAND_RUNNING,
	COMMAND_ENDED,
	COMMAND_STATE_COUNT
};

/* What its clock is waiting for. */
enum command_phase {
	COMMAND_STARTS,
	COMMAND_ENDS,
	COMMAND_IS_KILLED, /* by a frame of its reader's: in the loop's next turn */
	COMMAND_DIES,
	COMMAND_IS_LOST
};

/* Who is attached; in the owner's memory until replaced, ended, or detached. Called from the loop. */
struct command_reader {
	const struct command_reader_events *events;
	void *context;
	bool follows;	/* it reads the output: at[] is how far it is */
	uint64_t at[2]; /* stdout, stderr */
};

struct command_reader_events {
	/* STARTED or STDIN_CREDIT. */
	void (*frame)(void *context, const struct frame *frame);
	/* There is more output than it has read. */
	void (*more)(void *context);
	/* The output of this turn is handed over. */
	void (*settled)(void *context);
	/* Input is taken again. */
	void (*drained)(void *context);
	/* ENDED: the result is there, and all output. It is not attached any more. */
	void (*ended)(void *context);
	/* Another attached in its place. */
	void (*replaced)(void *context);
};

/* Who waits for more output, or the end: told of it from within, as often as there is any, until
 * command_leave. In its owner's memory. */
struct command_waiter {
	struct list_entry entry;
	void (*news)(struct command_waiter *waiter);
};

struct command {
	struct command *next, *previous; /* in its sandbox */
	struct sandbox *sandbox;
	char id[COMMAND_ID_MAX];
	enum command_state state;
	bool keep;		  /* on_detach: it goes on without a reader */
	bool wakes;		  /* a paused or suspended sandbox */
	bool overdue;		  /* the host's deadline is over */
	bool unbounded;		  /* output is read on, though the reader lags */
	bool discarded;		  /* its output gave way to that of others */
	bool started;		  /* STARTED came */
	bool counted;		  /* among the sandbox's that run */
	bool returns;		  /* an earlier daemon had started it, or its sandbox was suspended since */
	bool slept;		  /* the latter; also of an earlier daemon's */
	bool has_terminal, tells; /* of one that slept; tells: who is attached was told that it started */
	bool doomed;		  /* to be killed as soon as it runs, or runs again */
	bool fetches;		  /* it ended under an earlier daemon, and its output is to come */
	bool uncounted;		  /* it may have written more than output[] counts, to an earlier daemon */
	bool intended;		  /* its row says that it is started */
	bool has_row;		  /* or one is being written */
	struct command_writing *writing; /* that somebody waits for; or NULL */
	struct command_writing *ending;	 /* how it ended, while that is being written; or NULL */
	/* Who waits for the row of its creation, called once; or NULL. With an error (else NULL) there is no
	 * row, and the command is the callee's to destroy. */
	void (*created)(struct command *command, const struct error *error);
	void *creator;
	uint64_t session_id; /* in the guest; 0: none yet */
	struct command_token token;
	/* Until it is started; with stdin in it to its end; of one that returns, until its guest took stdin.
	 */
	struct run_request request;
	char name[RUN_NAME_MAX];
	uint64_t timeout_ms; /* 0: none */
	struct sandbox_watcher watcher;
	struct vm_request stream;
	struct session session;
	int fd;
	struct loop_source *source, *timer;
	enum command_phase phase;
	uint64_t due_ns, left_ns; /* of the phase; left: while the sandbox is paused */
	uint32_t pid;		  /* in the guest */
	uint64_t input;		  /* bytes of stdin that were taken */
	struct run_output output[2];
	unsigned int output_max;       /* bytes of each that are held when it has ended; 0: all that were */
	struct command_reader *reader; /* NULL: nobody is attached */
	struct list waiters;
	unsigned int holders;			   /* of command_hold */
	struct run_result result;		   /* of ENDED */
	uint64_t created_ms, started_ms, ended_ms; /* CLOCK_REALTIME; 0: not yet */
	/* CLOCK_MONOTONIC; ended: as far as is known, of one of an earlier daemon's. */
	uint64_t asked_ns, running_ns, first_byte_ns, ended_ns;
};

/* Makes one of a body's object, with the sandbox's env for what it does not set. The sandbox need not be
 * ready. NULL with *error set: invalid, too_large, exhausted (of COMMANDS_MAX) or internal. */
struct command *command_create(struct sandbox *sandbox, json_t *body, size_t length, struct error *error);
/* One of an earlier daemon's, as its row has it; takes the row's bytes. 0, or -1 with *error set. */
int command_restore(struct sandbox *sandbox, struct journal_command *row, struct error *error);
/* Takes one in any state: one that runs is killed, and nobody is told. */
void command_destroy(struct command *command);

/* Starts a CREATED one. 0, or -1 with *error set: conflict, not_ready, exhausted; it is as it was. What fails
 * later is its result. */
int command_start(struct command *command, struct error *error);

/* Attaches in place of who was; an ENDED one has nobody attached. */
void command_attach(struct command *command, struct command_reader *reader);
/* Leaves; on_detach decides what becomes of the command. Harmless when it is not the one attached. */
void command_detach(struct command *command, const struct command_reader *reader);
/* Its memory stays, and so does its sandbox's, until as many calls of command_drop. */
void command_hold(struct command *command);
void command_drop(struct command *command);
void command_wait(struct command *command, struct command_waiter *waiter);
/* Takes one that waits for nothing. */
void command_leave(struct command_waiter *waiter);
/* The reader has room again. */
void command_read_on(struct command *command);
/* STARTED for one who attaches late: what has been taken of stdin, and how much more is. */
struct agent_started command_started(const struct command *command);

/* As session_input; besides -ENOTCONN: it does not run. It does not end the command: a KILL does in the
 * loop's next turn. */
int command_input(struct command *command, const struct frame *frame, const char **why);
/* Ends all of it: at once where nothing runs yet. */
void command_kill(struct command *command);

const char *command_state_name(const struct command *command);
/* The caller's; NULL without memory. */
json_t *command_to_json(const struct command *command);

#endif
