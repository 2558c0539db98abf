/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of the journal that must be done at last, though nobody waits for them. What it did not take, as on a
 * full disk, is kept, and asked for again when it has taken anything else, and JOURNAL_AGAIN_MIN_MS later,
 * then twice as long each time. A daemon that ends before that leaves it undone.
 *
 *   queued ──done without error──▶ the owner's to free
 *     ▲ └──with one──journal_again_keep──▶ undone ──journal_again_forget──▶ the owner's
 *     └──────────────again──────────────────┘
 *
 * In whatever order: of two that are kept at a time neither may rely on the other.
 */
#ifndef HOST_CTL_JOURNAL_AGAIN_H
#define HOST_CTL_JOURNAL_AGAIN_H

#include "host-ctl/journal/journal_queue.h"
#include "host-ctl/support/list.h"

enum { JOURNAL_AGAIN_MIN_MS = 1000, JOURNAL_AGAIN_MAX_MS = 60 * 1000 };

/* The owner's memory, as part of a struct of its own, until job.done or drop. */
struct journal_lasting {
	struct list_entry entry; /* among those that are undone; else in no list */
	struct journal_job job;
	/* From journal_again_finish, or when there is no journal any more: it is not done, and the owner's.
	 */
	void (*drop)(struct journal_lasting *lasting);
};

struct journal_again {
	struct journal_queue *journal; /* NULL: there is none, or no more */
	struct loop_source *timer;
	struct list undone;
	unsigned int count; /* of them */
	uint64_t wait_ms;
};

struct journal_lasting *journal_lasting_of(struct journal_job *job);

/* journal: NULL for none; it stays the caller's. 0 or -ENOMEM, also without an fd. */
int journal_again_init(struct journal_again *again, struct loop *loop, struct journal_queue *journal);
/* Takes one that is all zero. */
void journal_again_finish(struct journal_again *again);
/* The journal is gone: what is still kept will not be done. */
void journal_again_leave(struct journal_again *again);

/* Its job has failed: it is asked for again later. */
void journal_again_keep(struct journal_again *again, struct journal_lasting *lasting);
/* It is the owner's again. False: it is not among those that are kept, but with the journal. */
bool journal_again_forget(struct journal_again *again, struct journal_lasting *lasting);
/* A job of the owner's was done: so others may be. */
void journal_again_taken(struct journal_again *again);
/* What is to become of one whose job is over: kept, if it failed and must be done, else dropped. */
void journal_again_settle(struct journal_again *again, struct journal_lasting *lasting, bool must);

#endif
