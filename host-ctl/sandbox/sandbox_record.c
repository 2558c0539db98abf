/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/journal/journal_sandboxes.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/process.h"
#include "host-ctl/vm/standby.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)JOURNAL_SANDBOX_ID >= (int)SANDBOX_ID_MAX && (int)JOURNAL_VM_ID >= (int)VM_ID_MAX &&
		       (int)JOURNAL_REASON_MAX >= (int)VM_CAUSE_MAX,
	"what is written is read again");

/* A change that is under way, with all that it needs. Those of `undone` are at most the sandboxes that there
 * were: without room for them, no other is noted down. */
struct sandbox_writing {
	struct journal_job job;
	struct journal_sandbox row;
	struct sandboxes *all;
	struct sandbox *waits; /* NULL: nobody */
	struct sandbox_writing *next;
};

static int put(struct journal *journal, struct journal_job *job, struct error *error)
{
	return journal_sandbox_put(journal, &((struct sandbox_writing *)job)->row, error);
}

static int take_out(struct journal *journal, struct journal_job *job, struct error *error)
{
	return journal_sandbox_remove(journal, ((struct sandbox_writing *)job)->row.id, error);
}

static void drop(struct sandbox_writing *writing)
{
	free(writing->row.spec);
	free(writing);
}

/* The disk takes something again. */
static void take_out_undone(struct sandboxes *all)
{
	struct sandbox_writing *writing = all->undone, *next;

	all->undone = NULL;
	for (; writing; writing = next) {
		next = writing->next;
		if (all->config.journal)
			journal_queue_put(all->config.journal, &writing->job);
		else
			drop(writing);
	}
}

static void written(struct journal_job *job)
{
	struct sandbox_writing *writing = (struct sandbox_writing *)job;
	struct sandboxes *all = writing->all;
	struct sandbox *sandbox = writing->waits;
	struct error error = job->error;

	if (error.kind && job->work == take_out) {
		writing->next = all->undone;
		all->undone = writing;
		return;
	}
	drop(writing);
	if (!error.kind)
		take_out_undone(all);
	if (!sandbox)
		return;
	sandbox->writing = NULL;
	sandbox_recorded(sandbox, error.kind ? &error : NULL);
}

/* Without what is not asked for, so that it can be parsed again. And with the time of its creation by a clock
 * that nobody sets, which is that of the boot in which its VM lives. */
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
	json_object_set_new(object, SANDBOX_RECORD_CREATED, json_integer((json_int_t)sandbox->created_ns));
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
	writing->job = (struct journal_job){.work = put, .done = written};
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
	sandbox->recorded = true;
	sandbox->writing = writing;
	writing->waits = sandbox;
	journal_queue_put(journal, &writing->job);
	return 0;
}

void sandbox_record_forget(struct sandbox *sandbox)
{
	if (sandbox->writing)
		sandbox->writing->waits = NULL;
	sandbox->writing = NULL;
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
		writing->job.work = take_out;
	if (waits) {
		writing->waits = sandbox;
		sandbox->writing = writing;
	}
	journal_queue_put(journal, &writing->job);
}

void sandbox_record_state(struct sandbox *sandbox)
{
	if (sandbox->state == SANDBOX_DELETING)
		write_row(sandbox, JOURNAL_SANDBOX_DELETING, false, true);
	else if (sandbox->state == SANDBOX_FAILED)
		write_row(sandbox, JOURNAL_SANDBOX_FAILED, false, false);
	else if (sandbox->state == SANDBOX_STOPPING)
		write_row(sandbox, JOURNAL_SANDBOX_STOPPED, false, true);
	else if (sandbox->state == SANDBOX_GONE)
		sandbox_record_remove(sandbox);
}

void sandbox_record_remove(struct sandbox *sandbox)
{
	write_row(sandbox, JOURNAL_SANDBOX_DELETING, true, false);
	sandbox->recorded = false;
}

void sandbox_records_finish(struct sandboxes *all)
{
	struct sandbox_writing *writing;

	while ((writing = all->undone)) {
		all->undone = writing->next;
		drop(writing);
	}
}
