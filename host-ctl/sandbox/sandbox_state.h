/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a sandbox and what may be asked of one in each: the one table of it, which docs/sandboxes.md
 * shows and tests/unit/hostctl_sandbox_state.c walks.
 *
 *   CREATING ──▶ READY ──▶ PAUSING ──▶ PAUSED         any ──▶ FAILED (its VM ended by itself)
 *      │         ▲ │ ▲                   │ │          any ──▶ DELETING ──▶ GONE
 *      ▼         │ │ └───── RESUMING ◀───┘ │
 *    GONE        │ └────▶ STOPPING ◀───────┘
 *   (no VM)      │           ▼
 *             STARTING ◀── STOPPED
 *
 * One that has its files on a disk does not fail when its VM ends by itself: it goes by STOPPING to STOPPED,
 * with the reason, and may be started.
 *
 *   READY, PAUSED ──▶ SUSPENDING ──▶ SUSPENDED ◀──▶ WAKING ──▶ READY
 *
 *   READY ──▶ COPYING ──▶ READY, or PAUSED if its vmm does not let it run on
 *
 * SUSPENDED has no VM, and all of its guest on the disk. What fails before leads back: to READY or PAUSED
 * from SUSPENDING, to SUSPENDED from WAKING. One that has its files on a disk may be stopped from there: what
 * was saved of its memory is given up, whether it could have been woken or not.
 *
 * A vmm that refuses to pause or resume leaves it where it was, and so does a journal that cannot note a
 * stop. A start that does not come about ends in STOPPED again, by STOPPING where there is a VM already; one
 * that is STOPPING, STOPPED or STARTING never fails. A deletion that the journal cannot note ends in FAILED,
 * without a VM, and goes on by itself to GONE when it can.
 */
#ifndef HOST_CTL_SANDBOX_STATE_H
#define HOST_CTL_SANDBOX_STATE_H

#include "host-ctl/support/error.h"
#include <stdbool.h>

enum sandbox_state {
	SANDBOX_CREATING,
	SANDBOX_READY,
	SANDBOX_PAUSING,
	SANDBOX_PAUSED,
	SANDBOX_RESUMING,
	SANDBOX_COPYING,
	SANDBOX_SUSPENDING,
	SANDBOX_SUSPENDED,
	SANDBOX_WAKING,
	SANDBOX_STOPPING,
	SANDBOX_STOPPED,
	SANDBOX_STARTING,
	SANDBOX_DELETING,
	SANDBOX_GONE,
	SANDBOX_FAILED,
	SANDBOX_STATE_COUNT
};

enum sandbox_verb {
	SANDBOX_PAUSE,
	SANDBOX_RESUME,
	SANDBOX_SUSPEND,
	SANDBOX_WAKE, /* any way back to READY */
	SANDBOX_STOP,
	SANDBOX_START,
	SANDBOX_DELETE,
	SANDBOX_EXEC,
	SANDBOX_COPY, /* a fork, or a snapshot */
	SANDBOX_VERB_COUNT
};

/*
 * What a verb makes of a state. 0 with *next: the state to move to; the present one means that there is
 * nothing to do but, where it is a passing one, to wait. Otherwise -1 with *error set: `conflict`, or
 * `not_ready` in a passing state, after which it would be legal. id, and the reason of its state, empty where
 * it has none: of the sandbox, for the words.
 */
int sandbox_state_apply(enum sandbox_state state, enum sandbox_verb verb, const char *id, const char *reason,
	enum sandbox_state *next, struct error *error);

/* May it go from one to the other, by whatever cause? */
bool sandbox_state_may_go(enum sandbox_state from, enum sandbox_state to);

/* "creating", "ready", ... */
const char *sandbox_state_name(enum sandbox_state state);
/* The state of a name, or -1. */
int sandbox_state_of_name(const char *name);

#endif
