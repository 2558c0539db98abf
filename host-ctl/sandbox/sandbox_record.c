/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/journal/journal_sandboxes.h"
#include "host-ctl/sandbox/command_record.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/process.h"
#include "host-ctl/vm/standby.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)JOURNAL_SANDBOX_ID >= (int)SANDBOX_ID_MAX && (int)JOURNAL_VM_ID >= (int)VM_ID_MAX &&
		       (int)JOURNAL_REASON_MAX >= (int)VM_CAUSE_MAX,
	"what is written is read again");

/* A change that is under way, with all that it needs. Those that are undone are at most the sandboxes that
 * there were: without room for them, no other is noted down. */
struct sandbox_writing {
	struct journal_lasting lasting;
	struct journal_sandbox row;
	struct sandboxes *all;
	struct sandbox *waits; /* its `writing` is this; NULL: nobody */
	bool syncs;	       /* its files first */
	bool must;	       /* be written at last, though nothing waits for it */
};

static struct sandbox_writing *writing_of(struct journal_job *job)
{
	return (struct sandbox_writing *)journal_lasting_of(job);
}

static int put(struct journal *journal, struct journal_job *job, struct error *error)
{
	const struct sandbox_writing *writing = writing_of(job);

	if (writing->syncs &&
		sandbox_files_sync(writing->all->config.state_directory, writing->row.id, error))
		return -EIO;
	return journal_sandbox_put(journal, &writing->row, error);
}

static int take_out(struct journal *journal, struct journal_job *job, struct error *error)
{
	return journal_sandbox_remove(journal, writing_of(job)->row.id, error);
}

static void drop(struct sandbox_writing *writing)
{
	if (writing->waits)
		writing->waits->writing = NULL;
	free(writing->row.spec);
	free(writing);
}

static void drop_lasting(struct journal_lasting *lasting)
{
	drop((struct sandbox_writing *)lasting);
}

static bool must_be_written(const struct sandbox_writing *writing)
{
	return writing->must || writing->lasting.job.work == take_out ||
	       writing->row.state == JOURNAL_SANDBOX_DELETING;
}

static void written(struct journal_job *job)
{
	struct sandbox_writing *writing = writing_of(job);
	struct sandboxes *all = writing->all;
	struct sandbox *sandbox = writing->waits;
	struct error error = job->error;

	journal_again_settle(&all->again, &writing->lasting, must_be_written(writing));
	if (sandbox)
		sandbox_recorded(sandbox, error.kind ? &error : NULL);
}

/* Without what is not asked for, so that it can be parsed again. And with when its ttl began, by a clock that
 * nobody sets, which is that of the boot in which its VM lives. */
static char *dump_spec(const struct sandbox *sandbox)
{
	json_t *object = sandbox_spec_to_json(&sandbox->spec), *value;
	const char *key;
	void *next;
	char *text;

	json_object_foreach_safe(object, next, key, value)
	{
		if (json_is_null(value))
			json_object_del(object, key);
	}
	json_object_set_new(object, SANDBOX_RECORD_CREATED, json_integer((json_int_t)sandbox->ttl_from_ns));
	if (sandbox->ttl_from_ms != sandbox->created_ms)
		json_object_set_new(
			object, SANDBOX_RECORD_RENEWED, json_integer((json_int_t)sandbox->ttl_from_ms));
	if (sandbox->cold)
		json_object_set_new(object, SANDBOX_RECORD_COLD, json_true());
	if (sandbox->made)
		json_object_set(object, SANDBOX_RECORD_MADE, sandbox->made);
	text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	return text;
}

/* NULL without memory. */
static struct sandbox_writing *make(const struct sandbox *sandbox, enum journal_sandbox_state state)
{
	struct sandbox_writing *writing = calloc(1, sizeof *writing);

	if (!writing)
		return NULL;
	writing->lasting =
		(struct journal_lasting){.job = {.work = put, .done = written}, .drop = drop_lasting};
	writing->all = sandbox->all;
	writing->row = (struct journal_sandbox){.state = state,
		.uid = sandbox->uid,
		.pid = sandbox->pid,
		.start_ticks = sandbox->start_ticks,
		.slot = sandbox->slot,
		.seat = sandbox->seat,
		.created_ms = sandbox->created_ms,
		.spec = dump_spec(sandbox)};
	memcpy(writing->row.id, sandbox->id, sizeof sandbox->id);
	memcpy(writing->row.vm, sandbox->vm_id, sizeof sandbox->vm_id);
	memcpy(writing->row.reason, sandbox->reason, sizeof sandbox->reason);
	if (writing->row.spec)
		return writing;
	free(writing);
	return NULL;
}

int sandbox_record(struct sandbox *sandbox, struct error *error)
{
	struct journal_queue *journal = sandbox->all->config.journal;
	struct sandbox_writing *writing;

	if (!journal) {
		*error = *sandbox->all->config.journal_error;
		return -1;
	}
	if (process_start_time(sandbox->pid, &sandbox->start_ticks))
		return error_set(error, ERROR_GUEST_LOST, "the VM of sandbox %s has ended", sandbox->id);
	writing = make(sandbox, JOURNAL_SANDBOX_LIVES);
	if (!writing)
		return error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
	sandbox_record_forget(sandbox);
	/* What its guest has written since is its own to bring there: it may be much, and all rows wait. */
	writing->syncs = sandbox->has_new_files;
	sandbox->recorded = true;
	sandbox->writing = writing;
	writing->waits = sandbox;
	journal_queue_put(journal, &writing->lasting.job);
	return 0;
}

void sandbox_record_forget(struct sandbox *sandbox)
{
	struct sandbox_writing *writing = sandbox->writing;

	if (!writing)
		return;
	writing->waits = NULL;
	/* What comes after it holds, at once or, of one that is to wake, when its VM is held: it is not to be
	 * written over that. */
	writing->must = false;
	sandbox->writing = NULL;
	/* One that is not the journal's now is nobody's. */
	if (journal_again_forget(&sandbox->all->again, &writing->lasting))
		drop(writing);
}

/* waits: sandbox_recorded is to be called. */
static void write_row(struct sandbox *sandbox, enum journal_sandbox_state state, bool remove, bool waits)
{
	struct journal_queue *journal = sandbox->all->config.journal;
	struct sandbox_writing *writing;

	sandbox_record_forget(sandbox);
	if (!journal || !sandbox->recorded)
		return;
	/* What is not written for want of memory is found out at the next start. */
	writing = make(sandbox, state);
	if (!writing)
		return;
	if (remove)
		writing->lasting.job.work = take_out;
	if (waits) {
		writing->waits = sandbox;
		sandbox->writing = writing;
	}
	journal_queue_put(journal, &writing->lasting.job);
}

void sandbox_record_state(struct sandbox *sandbox)
{
	if (sandbox->state == SANDBOX_DELETING)
		write_row(sandbox, JOURNAL_SANDBOX_DELETING, false, true);
	else if (sandbox->state == SANDBOX_FAILED && !sandbox->unnoted)
		write_row(sandbox, JOURNAL_SANDBOX_FAILED, false, false);
	else if (sandbox->state == SANDBOX_STOPPING)
		write_row(sandbox, JOURNAL_SANDBOX_STOPPED, false, true);
	else if (sandbox->state == SANDBOX_GONE)
		sandbox_record_remove(sandbox);
}

int sandbox_record_suspended(struct sandbox *sandbox, struct error *error)
{
	const bool waits = sandbox->state == SANDBOX_SUSPENDING || sandbox->state == SANDBOX_WAKING;

	if (!sandbox->all->config.journal) {
		*error = *sandbox->all->config.journal_error;
		return -1;
	}
	write_row(sandbox, JOURNAL_SANDBOX_SUSPENDED, false, waits);
	/* A guest that is let run again was not suspended; one that was not woken is so still. */
	if (sandbox->writing)
		sandbox->writing->must = sandbox->state == SANDBOX_WAKING;
	if (!waits || sandbox->writing)
		return 0;
	return error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
}

void sandbox_record_renewed(struct sandbox *sandbox)
{
	write_row(sandbox, JOURNAL_SANDBOX_LIVES, false, false);
}

void sandbox_record_remove(struct sandbox *sandbox)
{
	for (struct command *command = sandbox->commands; command; command = command->next)
		command_record_leave(command);
	write_row(sandbox, JOURNAL_SANDBOX_DELETING, true, false);
	sandbox->recorded = false;
}
