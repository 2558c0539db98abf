/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant: while `busy` the batch and the journal are the worker's, and the loop touches `waiting` alone.
 */
#include "host-ctl/journal/journal_queue.h"
#include "common/log.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/worker.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct journal_queue {
	struct loop *loop;
	struct journal *journal;
	struct journal_job *waiting, **last;
	struct journal_job *batch; /* in their order */
	bool busy;
	struct loop_source *timer; /* of lazy jobs that wait; NULL: they do not */
	bool timed;
	struct error batch_error; /* why nothing of the batch was done; kind ERROR_NONE: it was */
	struct error last_error;  /* of the last commit; kind ERROR_NONE: it was made */
};

static void fail_batch(struct journal_queue *queue, const struct error *error)
{
	for (struct journal_job *job = queue->batch; job; job = job->next)
		job->error = *error;
}

static bool is_synced(const struct journal_queue *queue)
{
	for (const struct journal_job *job = queue->batch; job; job = job->next)
		if (!job->unsynced)
			return true;
	return false;
}

/* What it fails of itself is its own, in job->error. 0, or of the journal -errno with *error set. */
static int do_job(struct journal *journal, struct journal_job *job, struct error *error)
{
	int status = journal_part_begin(journal, error);

	if (status)
		return status;
	if (job->work(journal, job, &job->error) == 0) {
		job->error.kind = ERROR_NONE;
		return journal_part_end(journal, error);
	}
	*error = job->error;
	return journal_part_undo(journal, error);
}

static int do_batch(struct journal_queue *queue, struct error *error)
{
	int status = journal_set_synced(queue->journal, is_synced(queue), error);

	if (!status)
		status = journal_begin(queue->journal, error);
	if (status)
		return status;
	for (struct journal_job *job = queue->batch; job && !status; job = job->next)
		status = do_job(queue->journal, job, error);
	if (!status)
		return journal_commit(queue->journal, error);
	journal_rollback(queue->journal);
	return status;
}

/* On the worker. */
static void commit_batch(void *context)
{
	struct journal_queue *queue = context;

	queue->batch_error.kind = ERROR_NONE;
	if (do_batch(queue, &queue->batch_error))
		fail_batch(queue, &queue->batch_error);
	else
		queue->batch_error.kind = ERROR_NONE;
}

static void start_batch(struct journal_queue *queue);

static bool somebody_waits(const struct journal_queue *queue)
{
	for (const struct journal_job *job = queue->waiting; job; job = job->next)
		if (!job->lazy)
			return true;
	return false;
}

/* With what waits, if anything does. */
static void go_on(struct journal_queue *queue)
{
	if (queue->busy || !queue->waiting)
		return;
	if (!queue->timer || somebody_waits(queue)) {
		start_batch(queue);
	} else if (!queue->timed) {
		queue->timed = true;
		loop_set_timer(queue->timer, JOURNAL_LAZY_MS * CLOCK_NS_PER_MS);
	}
}

static void time_is_up(void *context)
{
	struct journal_queue *queue = context;

	queue->timed = false;
	if (!queue->busy && queue->waiting)
		start_batch(queue);
}

static void batch_is_done(void *context)
{
	struct journal_queue *queue = context;
	struct journal_job *job = queue->batch, *next;

	queue->batch = NULL;
	queue->last_error = queue->batch_error;
	for (; job; job = next) {
		next = job->next;
		job->next = NULL;
		if (job->error.kind)
			log_warn("%s", job->error.message);
		job->done(job);
	}
	queue->busy = false;
	go_on(queue);
}

static void take_batch(struct journal_queue *queue)
{
	struct journal_job *end = queue->waiting;

	for (int i = 1; i < JOURNAL_BATCH && end->next; i++)
		end = end->next;
	queue->batch = queue->waiting;
	queue->waiting = end->next;
	if (!queue->waiting)
		queue->last = &queue->waiting;
	end->next = NULL;
}

static void start_batch(struct journal_queue *queue)
{
	int status;

	queue->busy = true;
	if (queue->timed)
		loop_set_timer(queue->timer, 0);
	queue->timed = false;
	take_batch(queue);
	status = worker_start(queue->loop, commit_batch, batch_is_done, queue);
	if (!status)
		return;
	log_warn("no thread for the journal: %s: the daemon waits for the disk itself", strerror(-status));
	commit_batch(queue);
	batch_is_done(queue);
}

void journal_queue_put(struct journal_queue *queue, struct journal_job *job)
{
	job->next = NULL;
	job->error.kind = ERROR_NONE;
	*queue->last = job;
	queue->last = &job->next;
	go_on(queue);
}

const struct error *journal_queue_error(const struct journal_queue *queue)
{
	return queue->last_error.kind ? &queue->last_error : NULL;
}

struct journal_queue *journal_queue_create(struct loop *loop, struct journal *journal)
{
	struct journal_queue *queue = calloc(1, sizeof *queue);

	if (!queue)
		return NULL;
	*queue = (struct journal_queue){.loop = loop, .journal = journal, .last = &queue->waiting};
	queue->timer = loop_add_timer(loop, time_is_up, queue);
	return queue;
}

void journal_queue_destroy(struct journal_queue *queue)
{
	if (!queue)
		return;
	loop_remove(queue->timer);
	queue->timer = NULL;
	queue->timed = false;
	go_on(queue);
	while (queue->busy)
		if (loop_turn(queue->loop, -1) < 0)
			break;
	journal_close(queue->journal);
	free(queue);
}
