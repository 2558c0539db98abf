/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes that go on from where another one is, which runs on:
 *
 *   the parent is copied (sandbox_suspend.c) into a folder of the fork's own
 *     ──▶ for one child after the other, a worker makes its folder (sandbox_files_copy)
 *           ──▶ its VM is restored, and told who it is now ──▶ READY, its row in the journal
 *     ──▶ when each child is READY or refused, the folder goes, and the asker is told
 *
 * Each child comes about or not on its own. The parent stands only while it is copied. A child is CREATING
 * until it has its row; a daemon that ends before that leaves nothing of it: its VM and its folder are
 * nobody's for the next one, as is the folder of the fork, and a parent that still stood is let run on.
 */
#ifndef HOST_CTL_SANDBOX_FORK_H
#define HOST_CTL_SANDBOX_FORK_H

#include "host-ctl/sandbox/sandboxes.h"

enum { FORK_CHILDREN_MAX = 64 };

struct sandbox_fork;

/*
 * Called once, from the loop and never from within sandbox_fork_begin; *fork is no more after it. answer: as
 * the API tells it, the callee's, NULL without memory; or NULL, and error: nothing was forked.
 */
typedef void sandbox_fork_done_fn(void *context, json_t *answer, const struct error *error);

/* What is asked for: of each child what differs from its parent, as the body of a creation has it; of several
 * children a name gets "-1", "-2" and so on. */
struct sandbox_fork_order {
	unsigned int count; /* 1 to FORK_CHILDREN_MAX */
	json_t *fields;	    /* an object of sandbox_fork_fields */
	uid_t uid;	    /* whose they are */
};
/* Ended by NULL: "count", and those of a creation but "template". */
extern const char *const sandbox_fork_fields[];

/* Begins. NULL with *error set: as of sandbox_check; invalid; conflict, exhausted or so, when not one of them
 * can be made. */
struct sandbox_fork *sandbox_fork_begin(struct sandbox *parent, const struct sandbox_fork_order *order,
	sandbox_fork_done_fn *done, void *context, struct error *error);
/* Nobody learns of it any more: `done` is not called, and its children are deleted. */
void sandbox_fork_leave(struct sandbox_fork *fork);

#endif
