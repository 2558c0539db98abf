/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/journal/journal_again.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stddef.h>

struct journal_lasting *journal_lasting_of(struct journal_job *job)
{
	return (struct journal_lasting *)((char *)job - offsetof(struct journal_lasting, job));
}

/* Each is done, or kept anew: by then, perhaps, where the daemon waits for the disk itself, so that only
 * those that there are now may be looked at. */
static void ask_again(struct journal_again *again)
{
	struct list those = {.first = NULL};
	struct list_entry *entry;

	while ((entry = list_take(&again->undone)))
		list_add(&those, entry);
	while ((entry = list_take(&those))) {
		struct journal_lasting *lasting = (struct journal_lasting *)entry;

		again->count--;
		if (again->journal)
			journal_queue_put(again->journal, &lasting->job);
		else
			lasting->drop(lasting);
	}
}

static void time_is_up(void *context)
{
	struct journal_again *again = context;

	again->wait_ms =
		again->wait_ms < JOURNAL_AGAIN_MAX_MS / 2 ? 2 * again->wait_ms : JOURNAL_AGAIN_MAX_MS;
	ask_again(again);
}

int journal_again_init(struct journal_again *again, struct loop *loop, struct journal_queue *journal)
{
	*again = (struct journal_again){.journal = journal, .wait_ms = JOURNAL_AGAIN_MIN_MS};
	again->timer = loop_add_timer(loop, time_is_up, again);
	return again->timer ? 0 : -ENOMEM;
}

void journal_again_leave(struct journal_again *again)
{
	again->journal = NULL;
}

void journal_again_finish(struct journal_again *again)
{
	journal_again_leave(again);
	ask_again(again);
	loop_remove(again->timer);
	again->timer = NULL;
}

void journal_again_keep(struct journal_again *again, struct journal_lasting *lasting)
{
	if (!again->undone.first)
		loop_set_timer(again->timer, again->wait_ms * CLOCK_NS_PER_MS);
	list_add(&again->undone, &lasting->entry);
	again->count++;
}

void journal_again_settle(struct journal_again *again, struct journal_lasting *lasting, bool must)
{
	const bool failed = lasting->job.error.kind;

	if (failed && must) {
		journal_again_keep(again, lasting);
		return;
	}
	lasting->drop(lasting);
	if (!failed)
		journal_again_taken(again);
}

bool journal_again_forget(struct journal_again *again, struct journal_lasting *lasting)
{
	if (!lasting->entry.link)
		return false;
	list_remove(&lasting->entry);
	again->count--;
	return true;
}

void journal_again_taken(struct journal_again *again)
{
	again->wait_ms = JOURNAL_AGAIN_MIN_MS;
	ask_again(again);
}
