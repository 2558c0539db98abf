/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of sandboxes: what was asked for, and the process that is its VM, by which a later daemon finds it.
 *
 *   none ──▶ LIVES ──▶ DELETING ──▶ none
 *            ▲ │ └───▶ FAILED ────▶ none
 *            │ └─────▶ STOPPED, SUSPENDED ──▶ DELETING
 *            └────────────┘
 *
 * The first two are called within a transaction, and return 0 or -errno with *error set, as of journal_begin.
 */
#ifndef HOST_CTL_JOURNAL_SANDBOXES_H
#define HOST_CTL_JOURNAL_SANDBOXES_H

#include "host-ctl/journal/journal.h"
#include <stdbool.h>
#include <sys/types.h>

enum {
	JOURNAL_SANDBOX_ID = 24,
	JOURNAL_VM_ID = 24,
	JOURNAL_REASON_MAX = 640,
};

enum journal_sandbox_state {
	JOURNAL_SANDBOX_LIVES,
	JOURNAL_SANDBOX_DELETING, /* asked for: whatever is left of it is to go */
	JOURNAL_SANDBOX_FAILED,
	JOURNAL_SANDBOX_STOPPED,   /* asked for, or done: no VM of it is to be left */
	JOURNAL_SANDBOX_SUSPENDED, /* it is on the disk: the same */
	JOURNAL_SANDBOX_STATES
};

struct journal_sandbox {
	char id[JOURNAL_SANDBOX_ID], vm[JOURNAL_VM_ID];
	enum journal_sandbox_state state;
	uid_t uid;
	pid_t pid;
	uint64_t start_ticks; /* of the process (process.h) */
	unsigned int slot;    /* of its pool */
	int seat;	      /* of standby; -1: none */
	uint64_t created_ms;  /* CLOCK_REALTIME */
	char *spec;	      /* JSON; from malloc */
	char reason[JOURNAL_REASON_MAX];
	bool this_boot; /* when read: the process may still be there */
};

/* One that is new, or in place of what was there of that id. */
int journal_sandbox_put(struct journal *journal, const struct journal_sandbox *sandbox, struct error *error);
/* With its commands (journal_commands.h). */
int journal_sandbox_remove(struct journal *journal, const char *id, struct error *error);

/* All, the oldest first: the spec of each is the caller's. How many, or -errno with *error set: -E2BIG: there
 * are more than `room`. Not within a transaction. */
int journal_sandboxes_read(
	struct journal *journal, struct journal_sandbox *sandboxes, size_t room, struct error *error);

#endif
