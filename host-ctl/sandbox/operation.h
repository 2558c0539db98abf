/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transition of a sandbox that takes a while, under an id of its own: it runs while the sandbox is in the
 * passing state of its kind, is done when that has come to its goal, and has failed when it went elsewhere.
 * At most OPERATIONS_MAX are known; of those that are over the oldest gives way.
 *
 *   sandboxes_plan_operation ──▶ PLANNED ──operation_follow──▶ RUNNING ──▶ DONE or FAILED
 *                                   └────operation_cancel────▶ none
 *
 * It is planned before anything is asked of a sandbox, or one is made: what is refused for want of a place
 * among them was not done. Who asks for what runs already is given the operation that runs: of each sandbox
 * at most one of a kind does.
 */
#ifndef HOST_CTL_OPERATION_H
#define HOST_CTL_OPERATION_H

#include "host-ctl/sandbox/sandbox.h"
#include "host-ctl/support/list.h"

enum { OPERATIONS_MAX = 1024, OPERATION_ID_MAX = 24 };

enum operation_kind {
	OPERATION_CREATE,
	OPERATION_PAUSE,
	OPERATION_RESUME,
	OPERATION_SUSPEND,
	OPERATION_WAKE,
	OPERATION_STOP,
	OPERATION_START,
	OPERATION_DELETE,
	OPERATION_KIND_COUNT
};
enum operation_state { OPERATION_PLANNED, OPERATION_RUNNING, OPERATION_DONE, OPERATION_FAILED };

struct operation {
	struct operation *next, *previous; /* none of one that is planned */
	struct sandboxes *all;
	char id[OPERATION_ID_MAX];
	enum operation_kind kind;
	enum operation_state state;
	struct error error; /* of one that failed */
	struct sandbox_watcher watcher;
	struct sandbox *sandbox; /* of one that runs; else NULL */
	char sandbox_id[SANDBOX_ID_MAX];
	struct list waiters;
	bool telling; /* them, and so it stays */
};

/* Whoever waits for one: told once, when it is over; in its owner's memory until then, or operation_leave. */
struct operation_waiter {
	struct list_entry entry;
	void (*over)(struct operation_waiter *waiter, struct operation *operation);
};

/* Of what was asked for, which has begun or is done already. One that ran before goes on as it is. */
void operation_follow(struct operation *operation, struct sandbox *sandbox);
/* What it was planned for was refused. Takes one that runs, which stays. */
void operation_cancel(struct operation *operation);

/* Of one that runs. */
void operation_wait(struct operation *operation, struct operation_waiter *waiter);
/* Takes one that waits for nothing. */
void operation_leave(struct operation_waiter *waiter);

/* In its registry's list. */
void operation_destroy(struct operation *operation);
/* {"operation":{"id","kind","state","sandbox","error"}}, the caller's. NULL without memory. */
json_t *operation_to_json(const struct operation *operation);

#endif
