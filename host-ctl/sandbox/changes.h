/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox has added, changed and removed against its template: its guest's agent tells it over a
 * stream of its own (docs/agent-protocol.md), a page at a time. Nobody here looks at a guest's disk.
 *
 *   asked ──stream──▶ told, entry by entry ──CHANGES_END──▶ done
 *     └─ refused, lost, broken, overdue, or the sandbox is READY no more ──▶ done, with the error
 *
 * The guest is hostile, and can fool nobody but its owner: each entry is checked, they come in order and no
 * more than were asked for, with no more bytes of paths than AGENT_CHANGES_BYTES_MAX and one path. A guest
 * that breaks that, or has not told all within CHANGES_MS, gives an error; the sandbox stays as it is.
 */
#ifndef HOST_CTL_CHANGES_H
#define HOST_CTL_CHANGES_H

#include "host-ctl/sandbox/sandbox.h"

enum { CHANGES_MS = 30 * 1000, CHANGES_LIMIT_DEFAULT = 1000 };

/* What is asked for. */
struct changes_query {
	const char *after; /* an absolute path of at most AGENT_PATH_MAX bytes; NULL: from the first on */
	uint32_t limit;	   /* 1 to AGENT_CHANGES_MAX */
};

struct changes;

/* Called once, from the loop, and never from within changes_ask. answer: as the API tells it, the callee's,
 * NULL without memory; or NULL, and error. *changes is no more after it. */
typedef void changes_done_fn(void *context, json_t *answer, const struct error *error);

/* Begins. NULL with *error set: not_ready or conflict, when it is not READY; exhausted; guest_lost;
 * internal. */
struct changes *changes_ask(struct sandbox *sandbox, const struct changes_query *query, changes_done_fn *done,
	void *context, struct error *error);
/* Nobody wants to know any more. */
void changes_leave(struct changes *changes);

#endif
