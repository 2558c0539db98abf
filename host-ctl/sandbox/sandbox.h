/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sandbox: a VM that stays, out of a template's pool, from the claim to the proof that nothing of it is
 * left. What may happen when is in sandbox_state.h; each change goes through one function, which tells the
 * registry's hook (sandboxes.h) and then the watchers.
 *
 * A VM that ends by itself leaves a FAILED sandbox with the reason; or a STOPPED one, if that has its files
 * on a disk. One that is stopped (sandbox_power.c) has none until it is started; then it gets another. TTL
 * and idleness end, pause or suspend it by themselves. A vmm that does not answer to a pause or resume within
 * SANDBOX_PATIENCE_MS is ended, as is a guest that has not shut down by then.
 */
#ifndef HOST_CTL_SANDBOX_H
#define HOST_CTL_SANDBOX_H

#include "host-ctl/pool/pool.h"
#include "host-ctl/sandbox/sandbox_files.h"
#include "host-ctl/sandbox/sandbox_spec.h"
#include "host-ctl/sandbox/sandbox_state.h"
#include "host-ctl/support/list.h"
#include "host-ctl/vm/vm.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SANDBOX_ID_MAX = 24, /* "sb-" and 16 hexadecimal digits */
	SANDBOX_PATIENCE_MS = 10 * 1000,
	SANDBOX_ARRIVAL_MS = 5 * 1000,	  /* for what is on its way to a guest that is to be suspended */
	SANDBOX_SAVE_MS = 10 * 60 * 1000, /* for its vmm to write all of its memory */
	SANDBOX_RETURN_MS = 60 * 1000, /* for the agent of one that was taken back, which runs, to be there */
	/* After one that failed, before idleness or the ttl asks for the next; doubled with each. */
	SANDBOX_IDLE_AGAIN_MIN_MS = 10 * 1000,
	SANDBOX_IDLE_AGAIN_MAX_MS = 60 * 60 * 1000,
	SANDBOX_GRACE_MS = 2000, /* of a stop, for its processes between TERM and KILL */
	/* Ids of its sessions are above: those below are of rehearsals, and of a template's preparation. */
	SANDBOX_SESSION_FIRST = 1 << 20,
};

struct command;
struct command_fetch;
struct journal_sandbox;
struct sandbox;
struct sandboxes;
struct sandbox_removal;
struct sandbox_suspension;
struct sandbox_writing;

/* Told of each change of a sandbox's state, from within it; in its owner's memory until sandbox_unwatch. */
struct sandbox_watcher {
	struct list_entry entry;
	void (*changed)(struct sandbox_watcher *watcher, struct sandbox *sandbox);
};

/* What it does when (sandbox_clocks.c). */
enum sandbox_clock {
	SANDBOX_CLOCK_TTL,
	SANDBOX_CLOCK_IDLE,
	SANDBOX_CLOCK_PATIENCE,
	SANDBOX_CLOCK_KEEP,	/* of one that is gone: then it is forgotten */
	SANDBOX_CLOCK_COMMANDS, /* the first of its commands that have ended is forgotten */
	SANDBOX_CLOCK_COUNT
};

struct sandbox {
	struct sandbox *next, *previous; /* in the registry */
	struct sandboxes *all;
	char id[SANDBOX_ID_MAX];
	struct sandbox_spec spec;
	uid_t uid; /* who asked for it */
	enum sandbox_state state;
	char reason[VM_CAUSE_MAX]; /* of failed, stopped and gone: why; else empty */
	/* What is to be `reason` again: of STARTING, if that cannot be noted; of `unnoted`, why it was
	 * deleted. */
	char former_reason[VM_CAUSE_MAX];
	struct error error;  /* why the last transition did not come about; kind ERROR_NONE: it did */
	uint64_t created_ms; /* CLOCK_REALTIME, to be shown */
	/* When its ttl began, by both clocks: at its creation, or when it was ready again after it was over.
	 */
	uint64_t ttl_from_ms, ttl_from_ns;
	struct pool *pool; /* that it waits in; NULL: in none */
	struct pool_claim claim;
	struct vm *vm; /* NULL: not yet, or nothing is left of it */
	char vm_id[VM_ID_MAX];
	pid_t pid;
	bool warm;		      /* a VM was there at once */
	bool cold;		      /* one was booted for it, for it has another shape than its template */
	bool verified;		      /* nothing is left of its VM, and of its files */
	bool has_files;		      /* those of its guest are on a disk, in its folder (sandbox_files.h) */
	bool has_new_files;	      /* that no row was written with yet, which brings them to the disk */
	bool has_folder;	      /* it has one for what was saved of it (sandbox_saved.h) */
	bool forked;		      /* of one that is CREATING: it goes on as a copy of another */
	bool discards;		      /* of one that is stopping: these go */
	bool lost;		      /* of one that is stopping, or stopped: its VM ended otherwise */
	struct sandbox_files removed; /* of one that is gone */
	bool stood;		      /* of one that is stopping: its guest did not run */
	bool slept;		      /* of one that is stopping: it was suspended */
	const struct vm_config *vm_config;
	int stream; /* to the agent, open and unused; or -1 */
	struct vm_request request, knock;
	struct list watchers;
	uint64_t due_ns[SANDBOX_CLOCK_COUNT]; /* CLOCK_MONOTONIC; 0: never */
	unsigned int users;		      /* of sandbox_hold */
	unsigned int unsaved;		      /* suspensions that failed since the last one that did not */
	bool ttl_due;		/* its ttl is over, and it is still to pause or be suspended for that */
	bool ttl_over;		/* it has: it begins anew when it is ready again */
	unsigned int ttl_tries; /* of one that is due */
	uint64_t ttl_again_ns;	/* it is not tried again before */
	bool failed_by_host;	/* FAILED, or lost, by sandbox_fail */
	struct command *commands, *last_command; /* the oldest first (commands.h) */
	unsigned int command_count, running;
	uint64_t last_session;		       /* the id of the last one in its guest */
	struct sandbox_suspension *suspension; /* under way; or NULL */
	struct sandbox_removal *removal;       /* of what was saved, that READY waits for; or NULL */
	json_t *made; /* what its VM is made of (sandbox_saved.h); NULL: an older daemon has not noted it */
	struct command_fetch
		*fetch; /* of output of an earlier daemon's commands; NULL: there is none to come */
	/* What its row has (sandbox_record.h). */
	uint64_t start_ticks;
	unsigned int slot;
	int seat;
	bool interrupted;		 /* its daemon ended while it was copied */
	bool runs;			 /* of one that wakes: its guest was let run */
	bool falls_back;		 /* of one that wakes: to SUSPENDED, when its row says so */
	bool seen;			 /* it is known whether its guest stands */
	bool comes_up;			 /* its guest runs, but does not take commands yet */
	bool recorded;			 /* there is a row, or one is being written */
	bool unnoted;			 /* it was deleted, and its row does not say so yet */
	struct sandbox_writing *writing; /* that READY waits for; or NULL */
};

/*
 * Takes the spec over, when it succeeds, and claims a VM. NULL with *error set: not_found, exhausted,
 * not_ready, or internal. For sandboxes.c.
 */
struct sandbox *sandbox_create(
	struct sandboxes *all, struct sandbox_spec *spec, uid_t uid, struct error *error);
/* One of an earlier daemon: with its VM, of which the vmm is still to say whether it stands; or FAILED, vm
 * NULL. -1 with *error set: its row makes no sense, or no memory. For sandboxes.c. */
int sandbox_restore(
	struct sandboxes *all, const struct journal_sandbox *row, struct vm *vm, struct error *error);
/*
 * A copy of another, of which `made` tells what its VM was made of, that is not in the registry yet: its id
 * is drawn. Takes the spec over. NULL without memory; else sandbox_begin_fork is to follow, or
 * sandbox_destroy.
 */
struct sandbox *sandbox_make_fork(struct sandboxes *all, struct sandbox_spec *spec, uid_t uid, json_t *made);
/* Into the registry, to be CREATING with the folder that is there under its id. 0, or -1 with *error set: it
 * is in no registry, and its folder is the caller's. For sandbox_fork.c. */
int sandbox_begin_fork(struct sandbox *sandbox, struct pool_source *source, struct error *error);
/* Only one that is gone, or whose VM is. For sandboxes.c. */
void sandbox_destroy(struct sandbox *sandbox);

/* What a verb would make of it now (sandbox_state_apply). */
int sandbox_check(
	const struct sandbox *sandbox, enum sandbox_verb verb, enum sandbox_state *next, struct error *error);
/*
 * Has it do what a verb asks for, as the table says: 0 when it is done or begun, -1 with *error set (of a
 * start also as of sandbox_create). reason: of a stop or a deletion, for people.
 */
int sandbox_ask(struct sandbox *sandbox, enum sandbox_verb verb, const char *reason, struct error *error);
/* Its guest misbehaves: the VM ends, and it is FAILED, or with files STOPPED, with the reason. Takes any
 * state. */
void sandbox_fail(struct sandbox *sandbox, const char *reason);

/* Its files go at once: of one that is stopped, and is to start without them. */
void sandbox_discard_files(struct sandbox *sandbox);

void sandbox_watch(struct sandbox *sandbox, struct sandbox_watcher *watcher);
/* Takes one that watches nothing. */
void sandbox_unwatch(struct sandbox_watcher *watcher);

/* Somebody uses it, so it is not idle, until as many calls of sandbox_release. */
void sandbox_hold(struct sandbox *sandbox);
void sandbox_release(struct sandbox *sandbox);

/* As the API tells it, the caller's; NULL without memory. */
json_t *sandbox_to_json(const struct sandbox *sandbox);
/* {"removed":{…},"verified":…} of one that is gone; null before. */
json_t *sandbox_receipt_to_json(const struct sandbox *sandbox);

#endif
