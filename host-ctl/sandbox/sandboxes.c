/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandboxes.h"
#include "host-ctl/sandbox/events.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/worker.h"

#include <stdlib.h>
#include <string.h>

struct sandboxes *sandboxes_create(const struct sandboxes_config *config)
{
	struct sandboxes *sandboxes = calloc(1, sizeof *sandboxes);

	if (!sandboxes)
		return NULL;
	sandboxes->config = *config;
	if (sandbox_clocks_init(sandboxes) == 0 &&
		journal_again_init(&sandboxes->again, config->loop, config->journal) == 0)
		return sandboxes;
	sandboxes_destroy(sandboxes);
	return NULL;
}

void sandboxes_destroy(struct sandboxes *sandboxes)
{
	if (!sandboxes)
		return;
	while (sandboxes->operations)
		operation_destroy(sandboxes->operations);
	sandbox_forks_finish(sandboxes);
	sandbox_snapshots_finish(sandboxes);
	while (sandboxes->first)
		sandboxes_forget(sandboxes->first);
	journal_again_finish(&sandboxes->again);
	sandbox_clocks_finish(sandboxes);
	free(sandboxes);
}

bool sandboxes_are_busy(const struct sandboxes *sandboxes)
{
	return sandboxes->workers > 0;
}

int sandboxes_begin_work(
	struct sandboxes *all, void (*work)(void *context), void (*done)(void *context), void *context)
{
	int status = worker_start(all->config.loop, work, done, context);

	all->workers += status == 0;
	return status;
}

void sandboxes_promise_disk(struct sandboxes *all, uint64_t *promised, uint64_t bytes)
{
	*promised += bytes;
	all->disk_promised += bytes;
}

void sandboxes_settle_disk(struct sandboxes *all, uint64_t *promised, uint64_t bytes)
{
	if (bytes > *promised)
		bytes = *promised;
	*promised -= bytes;
	all->disk_promised -= bytes;
}

void sandboxes_end_work(struct sandboxes *all)
{
	if (--all->workers == 0)
		all->config.idle(all->config.context);
}

void sandboxes_leave_journal(struct sandboxes *sandboxes)
{
	sandboxes->config.journal = NULL;
	journal_again_leave(&sandboxes->again);
}

void sandboxes_add(struct sandbox *sandbox)
{
	struct sandboxes *all = sandbox->all;

	sandbox->previous = all->last;
	*(all->last ? &all->last->next : &all->first) = sandbox;
	all->last = sandbox;
	all->count++;
}

void sandboxes_forget(struct sandbox *sandbox)
{
	struct sandboxes *all = sandbox->all;

	*(sandbox->previous ? &sandbox->previous->next : &all->first) = sandbox->next;
	*(sandbox->next ? &sandbox->next->previous : &all->last) = sandbox->previous;
	all->count--;
	sandbox_record_remove(sandbox);
	sandbox_destroy(sandbox);
}

void sandboxes_changed(struct sandbox *sandbox, enum sandbox_state before)
{
	if (sandbox->state != before)
		sandbox_record_state(sandbox);
	events_tell_sandbox(sandbox->all->config.events, sandbox, before);
}

/* The oldest in that state of which no VM is left, nor a worker that has its files. */
static struct sandbox *find_over(const struct sandboxes *sandboxes, enum sandbox_state state)
{
	for (struct sandbox *sandbox = sandboxes->first; sandbox; sandbox = sandbox->next)
		if (sandbox->state == state && !sandbox->vm && !sandbox->watchers.first && !sandbox->users &&
			!sandbox_suspension_works(sandbox))
			return sandbox;
	return NULL;
}

static int make_room(struct sandboxes *sandboxes, struct error *error)
{
	struct sandbox *over;

	if (sandboxes->count < SANDBOXES_MAX)
		return 0;
	over = find_over(sandboxes, SANDBOX_GONE);
	if (!over)
		over = find_over(sandboxes, SANDBOX_FAILED);
	if (!over)
		return error_set(
			error, ERROR_EXHAUSTED, "there are %d sandboxes: delete some", SANDBOXES_MAX);
	sandbox_remove_files(over);
	sandboxes_forget(over);
	return 0;
}

static struct sandbox *find_named(const struct sandboxes *sandboxes, const char *name)
{
	for (struct sandbox *sandbox = sandboxes->first; sandbox; sandbox = sandbox->next)
		if (sandbox->state != SANDBOX_GONE && !strcmp(sandbox->spec.name, name))
			return sandbox;
	return NULL;
}

struct sandbox *sandboxes_find(struct sandboxes *sandboxes, const char *id, struct error *error)
{
	struct sandbox *sandbox = id[0] ? find_named(sandboxes, id) : NULL;

	for (struct sandbox *other = sandboxes->first; other && !sandbox; other = other->next)
		if (!strcmp(other->id, id))
			sandbox = other;
	if (!sandbox)
		error_set(error, ERROR_NOT_FOUND, "there is no sandbox %.64s", id);
	return sandbox;
}

int sandboxes_check_new(struct sandboxes *all, const struct sandbox_spec *spec, struct error *error)
{
	const struct sandbox *other = spec->name[0] ? find_named(all, spec->name) : NULL;

	if (other)
		return error_set(
			error, ERROR_CONFLICT, "the name %s is that of sandbox %s", spec->name, other->id);
	return make_room(all, error);
}

struct sandbox *sandboxes_new(
	struct sandboxes *sandboxes, struct sandbox_spec *spec, uid_t uid, struct error *error)
{
	if (sandboxes_check_new(sandboxes, spec, error))
		return NULL;
	return sandbox_create(sandboxes, spec, uid, error);
}

static bool has_metadata(const struct sandbox *sandbox, const json_t *wanted)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)wanted, key, value)
	{
		if (!json_equal(json_object_get(sandbox->spec.metadata, key), value))
			return false;
	}
	return true;
}

static bool fits(const struct sandbox *sandbox, const struct sandboxes_filter *filter)
{
	if (filter->state < 0 ? sandbox->state == SANDBOX_GONE : (int)sandbox->state != filter->state)
		return false;
	if (filter->template && strcmp(filter->template, sandbox->spec.template) != 0)
		return false;
	return has_metadata(sandbox, filter->metadata);
}

json_t *sandboxes_to_json(const struct sandboxes *sandboxes, const struct sandboxes_filter *filter)
{
	json_t *list = json_array();

	for (struct sandbox *sandbox = sandboxes->first; sandbox; sandbox = sandbox->next)
		if (fits(sandbox, filter))
			json_array_append_new(list, sandbox_to_json(sandbox));
	return json_pack("{s:o}", "sandboxes", list);
}

_Static_assert((int)SANDBOX_STATE_COUNT <= (int)METRICS_STATES_MAX, "each state has a gauge");

void sandboxes_read_gauges(const struct sandboxes *sandboxes, struct metrics_gauges *gauges)
{
	for (int state = 0; state < SANDBOX_STATE_COUNT; state++)
		gauges->sandboxes[state].state = sandbox_state_name(state);
	for (struct sandbox *sandbox = sandboxes->first; sandbox; sandbox = sandbox->next) {
		gauges->sandboxes[sandbox->state].count++;
		gauges->commands += sandbox->running;
	}
}
