/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template that is made of a sandbox, which runs on:
 *
 *   the sandbox is copied, flat (sandbox_suspend.c), into a folder of the snapshot's own
 *     ──▶ the templates make one of that when its turn among the builds comes (templates_make)
 *           ──▶ it is there, or why not; the folder goes, and the asker is told
 *
 * The sandbox stands only while it is copied; from then on it may be removed. Before it is touched all is
 * looked at that would be in the way: the name, the image, room. A daemon that ends before the template has
 * its name leaves nothing of it: folders that are nobody's are removed by the next one, and a sandbox that
 * still stood is let run on.
 */
#ifndef HOST_CTL_SANDBOX_SNAPSHOT_H
#define HOST_CTL_SANDBOX_SNAPSHOT_H

#include "host-ctl/sandbox/sandboxes.h"

struct sandbox_snapshot;

/* Called once, from the loop and never from within sandbox_snapshot_begin; *snapshot is no more after it.
 * answer: as the API tells it, the callee's, NULL without memory; or NULL, and error. */
typedef void sandbox_snapshot_done_fn(void *context, json_t *answer, const struct error *error);

/* Nobody removes the image of that path, absolute or NULL, while the fd, the caller's, is open; -1: it is of
 * no store. */
typedef int sandbox_snapshot_hold_fn(const char *state_directory, const char *path);

/*
 * Begins. name: a valid one, copied. hold: called from within. NULL with *error set: as of sandbox_check and
 * templates_check_new; conflict, a snapshot of that name is under way, or the sandbox's image is not there as
 * it was; exhausted, the disk or the host has no room.
 */
struct sandbox_snapshot *sandbox_snapshot_begin(struct sandbox *parent, const char *name,
	sandbox_snapshot_hold_fn *hold, sandbox_snapshot_done_fn *done, void *context, struct error *error);
/* Nobody learns of it any more: `done` is not called, and there is no template, unless it is being given its
 * name. */
void sandbox_snapshot_leave(struct sandbox_snapshot *snapshot);

#endif
