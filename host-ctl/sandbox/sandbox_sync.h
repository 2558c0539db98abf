/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that runs brings what it has written to its disk (AGENT_HOLD), before it is made to stand: so the
 * disk alone, too, has its files as they are, and little is left to be flushed while it stands.
 *
 *   begun ──stream──▶ HOLD sent ──HELD──▶ done
 *     └─ refused, lost, broken, overdue ──▶ done, with the error
 *
 * The guest is hostile: what it sends is bounded, and it has SANDBOX_SYNC_MS. All that it can spoil is the
 * copy of it that was asked for.
 */
#ifndef HOST_CTL_SANDBOX_SYNC_H
#define HOST_CTL_SANDBOX_SYNC_H

#include "host-ctl/sandbox/sandbox.h"

enum { SANDBOX_SYNC_MS = 30 * 1000 };

struct sandbox_sync;

/* Called once, from the loop, and never from within sandbox_sync_begin; *sync is no more after it. error:
 * NULL, or incomplete, attach_failed. */
typedef void sandbox_sync_done_fn(void *context, const struct error *error);

/* Of one that has a VM and is to keep it until then, or sandbox_sync_leave. NULL with *error set: exhausted,
 * guest_lost, internal. */
struct sandbox_sync *sandbox_sync_begin(
	struct sandbox *sandbox, sandbox_sync_done_fn *done, void *context, struct error *error);
/* `done` is not called. Takes NULL, and one whose VM has ended. */
void sandbox_sync_leave(struct sandbox_sync *sync);

#endif
