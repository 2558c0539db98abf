/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All sandboxes of the daemon, and the operations on them. At most SANDBOXES_MAX are known: those that are
 * gone stay so for keep_ms, or until their place is wanted, the oldest first, then that of one that failed;
 * then more are refused as `exhausted`.
 */
#ifndef HOST_CTL_SANDBOXES_H
#define HOST_CTL_SANDBOXES_H

#include "host-ctl/journal/journal_queue.h"
#include "host-ctl/pool/templates.h"
#include "host-ctl/sandbox/operation.h"
#include "host-ctl/sandbox/sandbox.h"

enum { SANDBOXES_MAX = 1024 };

struct events;

struct sandboxes_config {
	struct loop *loop;
	struct templates *templates;
	struct metrics *metrics;
	struct events *events;
	uint64_t keep_ms;
	uint64_t keep_commands_ms;	   /* of those that have ended; 0: as long as their sandbox */
	const char *state_directory;	   /* where the files of those with a disk are */
	uint64_t disk_reserve_bytes;	   /* of that disk, without which no new one gets files; 0: none */
	struct journal_queue *journal;	   /* NULL: there is none... */
	const struct error *journal_error; /* ...for this reason */
	void (*idle)(void *context);	   /* the last worker has come to its end */
	void *context;
};

struct sandboxes;

/* NULL without memory, or an fd. */
struct sandboxes *sandboxes_create(const struct sandboxes_config *config);
/* Takes NULL. No VM is left of any. */
void sandboxes_destroy(struct sandboxes *sandboxes);

/* Workers have files of theirs, and the loop is to run on. */
bool sandboxes_are_busy(const struct sandboxes *sandboxes);
/* From now on nothing is written to the journal. */
void sandboxes_leave_journal(struct sandboxes *sandboxes);

/* A new one, which is CREATING or READY; takes the spec over when it succeeds. NULL with *error set:
 * exhausted, conflict (its name is another's), or as of sandbox_create. */
struct sandbox *sandboxes_new(
	struct sandboxes *sandboxes, struct sandbox_spec *spec, uid_t uid, struct error *error);
/* By its id, or by its name unless it is gone. NULL with *error not_found. */
struct sandbox *sandboxes_find(struct sandboxes *sandboxes, const char *id, struct error *error);

/* Which ones a list is of. */
struct sandboxes_filter {
	int state;		/* -1: all but those that are gone */
	const char *template;	/* NULL: of any */
	const json_t *metadata; /* an object of strings that it has to have; NULL: none */
};
/* {"sandboxes":[…]}, the oldest first; the caller's. NULL without memory. */
json_t *sandboxes_to_json(const struct sandboxes *sandboxes, const struct sandboxes_filter *filter);

/* Those of sandboxes and their commands; the others stay as they are. */
void sandboxes_read_gauges(const struct sandboxes *sandboxes, struct metrics_gauges *gauges);

/* --- operations (operation.h) --- */

/* One for what is about to be asked of that sandbox (NULL: of one that is to be made): the one of that kind
 * that runs already, or a new one. operation_follow or operation_cancel is to come before the loop goes on.
 * NULL with *error set: exhausted or internal. */
struct operation *sandboxes_plan_operation(struct sandboxes *sandboxes, const struct sandbox *sandbox,
	enum operation_kind kind, struct error *error);
/* NULL with *error not_found. */
struct operation *sandboxes_find_operation(struct sandboxes *sandboxes, const char *id, struct error *error);

#endif
