/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal as the daemon's loop uses it: a commit waits for the disk, so it is a worker's.
 *
 * Jobs that come while a commit is under way are the next one's, in the order in which they came, at most
 * JOURNAL_BATCH: many clients share one sync of the disk. A job that fails leaves the others of its commit as
 * they are; when the journal itself does, as on a full disk, all of them fail.
 */
#ifndef HOST_CTL_JOURNAL_QUEUE_H
#define HOST_CTL_JOURNAL_QUEUE_H

#include "common/loop.h"
#include "host-ctl/journal/journal.h"
#include <stdbool.h>

enum { JOURNAL_BATCH = 64, JOURNAL_LAZY_MS = 50 };

/* The owner's memory, as part of a struct of its own, until done was called. */
struct journal_job {
	struct journal_job *next;
	/* It is to outlive this process, but not the host: it waits for no sync, unless others of its commit
	 * do. */
	bool unsynced;
	/* Nobody waits for it: it goes with the next that somebody waits for, or after JOURNAL_LAZY_MS. */
	bool lazy;
	/* Within a transaction, and on a worker: it touches what is the job's alone. 0 or -errno with *error
	 * set. */
	int (*work)(struct journal *journal, struct journal_job *job, struct error *error);
	/* From the loop, once: it is on the disk; or, with job->error set, nothing of it. */
	void (*done)(struct journal_job *job);
	struct error error; /* kind ERROR_NONE: none */
};

struct journal_queue;

/* journal: its own from now on. NULL without memory: it is still the caller's. */
struct journal_queue *journal_queue_create(struct loop *loop, struct journal *journal);
/* Takes NULL. Waits for the jobs that are there, and for those that their ends bring about; not from within
 * the loop. */
void journal_queue_destroy(struct journal_queue *queue);

/* Where no thread can be had, the work and its end are before this returns. */
void journal_queue_put(struct journal_queue *queue, struct journal_job *job);

/* Why the last commit failed, until another is made; NULL: it did not, whatever single jobs did. */
const struct error *journal_queue_error(const struct journal_queue *queue);

#endif
