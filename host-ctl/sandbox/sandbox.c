/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/journal/journal_sandboxes.h"
#include "host-ctl/sandbox/command_fetch.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/vm/standby.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* --- who watches --- */

void sandbox_watch(struct sandbox *sandbox, struct sandbox_watcher *watcher)
{
	list_add(&sandbox->watchers, &watcher->entry);
}

void sandbox_unwatch(struct sandbox_watcher *watcher)
{
	list_remove(&watcher->entry);
}

/* Each once, though they come and go meanwhile. */
static void notify(struct sandbox *sandbox)
{
	struct list left = {NULL};
	struct list_entry *entry;

	/* Whoever is told may answer a client, whose next request may want its place (sandboxes_new). */
	sandbox->users++;
	while ((entry = list_take(&sandbox->watchers)))
		list_add(&left, entry);
	while ((entry = list_take(&left))) {
		struct sandbox_watcher *watcher = (struct sandbox_watcher *)entry;

		list_add(&sandbox->watchers, entry);
		watcher->changed(watcher, sandbox);
	}
	sandbox->users--;
}

/* --- the one place where its state changes --- */

void sandbox_move(struct sandbox *sandbox, enum sandbox_state next, const char *reason)
{
	enum sandbox_state before = sandbox->state;

	if (!sandbox_state_may_go(before, next))
		log_error("%s: bug: from %s to %s", sandbox->id, sandbox_state_name(before),
			sandbox_state_name(next));
	/* Why it stopped is over with that; why it failed is not. */
	if (before == SANDBOX_STOPPED || (before == SANDBOX_STOPPING && next != SANDBOX_STOPPED))
		sandbox->reason[0] = '\0';
	sandbox->state = next;
	if (before == SANDBOX_SUSPENDING || before == SANDBOX_COPYING)
		sandbox_suspension_leave(sandbox);
	/* Not before: the next daemon, too, is to let it run on. */
	if (before == SANDBOX_RESUMING && sandbox->interrupted) {
		sandbox->interrupted = false;
		sandbox_saved_end_copying(sandbox->all->config.state_directory, sandbox->id);
	}
	if (before == SANDBOX_WAKING)
		sandbox_removal_leave(sandbox);
	if (next == SANDBOX_SUSPENDED)
		sandbox->unsaved = 0;
	else if (before == SANDBOX_SUSPENDING && (next == SANDBOX_READY || next == SANDBOX_PAUSED))
		sandbox->unsaved++;
	if (reason && !sandbox->reason[0])
		snprintf(sandbox->reason, sizeof sandbox->reason, "%s", reason);
	log_info("sandbox %s: %s%s%s", sandbox->id, sandbox_state_name(next), reason ? ": " : "",
		reason ? reason : "");
	sandbox_settle_clocks(sandbox);
	sandboxes_changed(sandbox, before);
	notify(sandbox);
}

/* --- its VM --- */

static struct sandbox *sandbox_of_claim(struct pool_claim *claim)
{
	return (struct sandbox *)((char *)claim - offsetof(struct sandbox, claim));
}

static struct sandbox *sandbox_of_request(struct vm_request *request)
{
	return (struct sandbox *)((char *)request - offsetof(struct sandbox, request));
}

/* By what happens to it. One that is being deleted only fails to be noted so. */
static bool can_fail(const struct sandbox *sandbox)
{
	return sandbox->state != SANDBOX_DELETING && sandbox_state_may_go(sandbox->state, SANDBOX_FAILED);
}

/* Its guest is on the disk, as a whole: the end of its VM is no loss. Of one that wakes it is as long as its
 * disk has not gone on and nothing is removed. */
static bool loses_nothing(const struct sandbox *sandbox)
{
	return sandbox_needs_no_vm(sandbox) || (sandbox->state == SANDBOX_WAKING && !sandbox->removal &&
						       !(sandbox->runs && sandbox->has_files));
}

static void vm_ended(void *context)
{
	struct sandbox *sandbox = context;
	char reason[VM_CAUSE_MAX + 32];

	fd_close(&sandbox->stream);
	snprintf(reason, sizeof reason, "its VM ended: %s", vm_cause(sandbox->vm));
	sandbox->failed_by_host = sandbox->failed_by_host || sandbox->vm->killed;
	if (sandbox->state == SANDBOX_STARTING) {
		error_set(&sandbox->error, ERROR_GUEST_LOST, "%s", reason);
		sandbox_move(sandbox, SANDBOX_STOPPING, reason);
	} else if (can_fail(sandbox) && !loses_nothing(sandbox)) {
		if (sandbox->state == SANDBOX_SUSPENDING || sandbox->state == SANDBOX_COPYING ||
			sandbox->state == SANDBOX_WAKING)
			error_set(&sandbox->error, ERROR_GUEST_LOST, "%s", reason);
		sandbox_lose(sandbox, reason);
	}
}

void sandbox_forget_vm(struct sandbox *sandbox)
{
	if (sandbox->verified)
		sandbox->vm_id[0] = '\0';
	sandbox->pid = 0;
}

static void vm_gone(void *context)
{
	struct sandbox *sandbox = context;

	sandbox->vm = NULL;
	sandbox->verified = vm_left_nothing(sandbox->vm_config, sandbox->vm_id);
	if (sandbox->state == SANDBOX_DELETING)
		sandbox_settle_deleted(sandbox);
	else if (sandbox->state == SANDBOX_STOPPING)
		sandbox_settle_stopped(sandbox);
	else if (sandbox->state == SANDBOX_SUSPENDING)
		sandbox_suspend_gone(sandbox);
	else if (sandbox->state == SANDBOX_WAKING)
		sandbox_wake_gone(sandbox);
}

static const struct vm_owner_events owner_events = {
	.ended = vm_ended, .gone = vm_gone, .stands = sandbox_stands, .identified = sandbox_identified};

void sandbox_know_vm(struct sandbox *sandbox, const struct vm *vm)
{
	sandbox->vm_config = vm->config;
	sandbox->pid = vm->pid;
	sandbox->slot = vm->slot;
	sandbox->seat = standby_number(vm->config->standby, vm->seat);
	memcpy(sandbox->vm_id, vm->id, sizeof sandbox->vm_id);
}

void sandbox_follow(struct sandbox *sandbox, struct vm *vm)
{
	sandbox->vm = vm;
	sandbox_know_vm(sandbox, vm);
	vm_set_owner(vm, &owner_events, sandbox);
}

/* It cannot be made ready; sandbox->error says why. */
static void give_up(struct sandbox *sandbox, const char *reason)
{
	if (loses_nothing(sandbox)) {
		vm_end(sandbox->vm, reason);
		return;
	}
	if (sandbox->state != SANDBOX_STARTING) {
		sandbox_fail(sandbox, reason);
		return;
	}
	vm_end(sandbox->vm, reason);
	sandbox_stop(sandbox, reason);
}

/* Its client is told that it has had no effect: neither it nor its name is to stay. */
static void end_unborn(struct sandbox *sandbox, const char *reason)
{
	/* That there is no room passes; why it was stopped stays so. */
	give_up(sandbox, sandbox->state == SANDBOX_STARTING && sandbox->former_reason[0]
				 ? sandbox->former_reason
				 : reason);
	if (sandbox->state == SANDBOX_FAILED)
		sandbox_delete(sandbox, reason);
}

/* Its first row, or that of its start. */
static void life_recorded(struct sandbox *sandbox, const struct error *error)
{
	if (!error) {
		sandbox->has_new_files = false;
		sandbox_move(sandbox, SANDBOX_READY, NULL);
		return;
	}
	sandbox->error = *error;
	if (sandbox->state == SANDBOX_CREATING)
		sandbox_record_remove(sandbox);
	end_unborn(sandbox, error->message);
}

void sandbox_recorded(struct sandbox *sandbox, const struct error *error)
{
	switch (sandbox->state) {
	case SANDBOX_DELETING:
		sandbox_deletion_recorded(sandbox, error);
		return;
	case SANDBOX_STOPPING:
		sandbox_stop_recorded(sandbox, error);
		return;
	case SANDBOX_SUSPENDING:
		sandbox_suspend_recorded(sandbox, error);
		return;
	case SANDBOX_WAKING:
		sandbox_wake_recorded(sandbox, error);
		return;
	case SANDBOX_CREATING:
	case SANDBOX_STARTING:
		life_recorded(sandbox, error);
		return;
	case SANDBOX_FAILED:
		/* What it was deleted for is noted at last. */
		if (sandbox->unnoted && !error)
			sandbox_delete(sandbox, NULL);
		return;
	default:
		return;
	}
}

/* Its template may have been replaced by one of another shape while it waited for its VM. What has files, is
 * woken or is a copy has a VM of what it was. 0, or -1 with sandbox->error set. */
static int check_shape(struct sandbox *sandbox)
{
	const struct sandbox_spec *spec = &sandbox->spec;
	const struct vm_source *source = sandbox->vm->source;

	if (sandbox->has_files || sandbox->forked)
		return 0;
	if ((!spec->memory_bytes || spec->memory_bytes == source->memory_bytes) &&
		(!spec->cpus || spec->cpus == source->cpus))
		return 0;
	return error_set(&sandbox->error, ERROR_NOT_READY,
		"the template of sandbox %s was replaced just now: try again", sandbox->id);
}

/* Its VM is there: what is kept of it now. */
static void begin_life(struct sandbox *sandbox)
{
	if (sandbox->state == SANDBOX_WAKING) {
		if (sandbox_woken(sandbox))
			give_up(sandbox, sandbox->error.message);
		return;
	}
	if (check_shape(sandbox)) {
		end_unborn(sandbox, sandbox->error.message);
		return;
	}
	if (!sandbox->forked) {
		json_decref(sandbox->made);
		sandbox->made = sandbox_saved_describe(sandbox->vm);
	}
	sandbox->forked = false;
	if (sandbox_keep_files(sandbox))
		end_unborn(sandbox, sandbox->error.message);
	else if (sandbox_record(sandbox, &sandbox->error))
		give_up(sandbox, sandbox->error.message);
}

void sandbox_own(struct sandbox *sandbox, struct vm *vm)
{
	struct pool *pool = sandbox->pool;
	int status;

	sandbox->vm = vm;
	sandbox_know_vm(sandbox, vm);
	sandbox->seen = true;
	vm_own(vm, &owner_events, sandbox, &sandbox->stream);
	sandbox->pool = NULL;
	pool_refill(pool);
	/* What they come to is what is told and noted. */
	status = sandbox->spec.memory_max || sandbox->spec.cpu_max
			 ? vm_limit(vm, &sandbox->spec.memory_max, &sandbox->spec.cpu_max)
			 : 0;
	if (!status) {
		begin_life(sandbox);
		return;
	}
	error_set(&sandbox->error, ERROR_INTERNAL, "the limits of sandbox %s could not be set: %s",
		sandbox->id, strerror(-status));
	give_up(sandbox, "its limits could not be set");
}

static void granted(struct pool_claim *claim, struct vm *vm)
{
	sandbox_own(sandbox_of_claim(claim), vm);
}

static void held(struct pool_claim *claim, struct vm *vm)
{
	sandbox_wake_held(sandbox_of_claim(claim), vm);
}

static void refused(struct pool_claim *claim, const struct error *error)
{
	struct sandbox *sandbox = sandbox_of_claim(claim);

	if (sandbox->state == SANDBOX_WAKING) {
		sandbox_wake_refused(sandbox, error);
		return;
	}
	sandbox->error = *error;
	sandbox->pool = NULL;
	sandbox->verified = true;
	/* Of a copy they are there before its VM. */
	if (sandbox->state == SANDBOX_CREATING)
		sandbox_remove_files(sandbox);
	sandbox_move(
		sandbox, sandbox->state == SANDBOX_STARTING ? SANDBOX_STOPPED : SANDBOX_GONE, error->message);
}

/* --- what is asked of it --- */

static void paused_or_resumed(struct vm_request *request, int status, int fd)
{
	struct sandbox *sandbox = sandbox_of_request(request);
	bool pausing = sandbox->state == SANDBOX_PAUSING;
	enum sandbox_state goal = pausing ? SANDBOX_PAUSED : SANDBOX_READY;

	(void)fd;
	if (sandbox->state != SANDBOX_PAUSING && sandbox->state != SANDBOX_RESUMING)
		return;
	if (status) {
		error_set(&sandbox->error, ERROR_INTERNAL, "the vmm could not %s sandbox %s: %s",
			pausing ? "pause" : "resume", sandbox->id, strerror(-status));
		goal = pausing ? SANDBOX_READY : SANDBOX_PAUSED;
	}
	if (goal == SANDBOX_READY && !pausing)
		sandbox_come_up(sandbox);
	else
		sandbox_move(sandbox, goal, NULL);
}

int sandbox_refuse_request(const struct sandbox *sandbox, int status, struct error *error)
{
	if (status == -EAGAIN)
		return error_set(error, ERROR_EXHAUSTED, "the vmm of sandbox %s has %d requests to answer",
			sandbox->id, VM_ASKED_MAX);
	return error_set(error, ERROR_GUEST_LOST, "the VM of sandbox %s is ending", sandbox->id);
}

static int ask_vm(struct sandbox *sandbox, enum sandbox_state next, struct error *error)
{
	int status = next == SANDBOX_PAUSING ? vm_ask_pause(sandbox->vm, &sandbox->request)
					     : vm_ask_resume(sandbox->vm, &sandbox->request);

	if (status)
		return sandbox_refuse_request(sandbox, status, error);
	sandbox_move(sandbox, next, NULL);
	return 0;
}

int sandbox_check(
	const struct sandbox *sandbox, enum sandbox_verb verb, enum sandbox_state *next, struct error *error)
{
	return sandbox_state_apply(sandbox->state, verb, sandbox->id, sandbox->reason, next, error);
}

int sandbox_ask(struct sandbox *sandbox, enum sandbox_verb verb, const char *reason, struct error *error)
{
	enum sandbox_state next;

	if (sandbox_check(sandbox, verb, &next, error))
		return -1;
	sandbox_look_idle(sandbox);
	if (next == sandbox->state)
		return 0;
	sandbox->error.kind = ERROR_NONE;
	if (next == SANDBOX_STARTING)
		return sandbox_start(sandbox, error);
	if (next == SANDBOX_SUSPENDING)
		return sandbox_suspend(sandbox, error);
	if (next == SANDBOX_WAKING)
		return sandbox_wake(sandbox, error);
	if (next == SANDBOX_STOPPING)
		sandbox_stop(sandbox, reason);
	else if (next == SANDBOX_DELETING)
		sandbox_delete(sandbox, reason);
	else
		return ask_vm(sandbox, next, error);
	return 0;
}

void sandbox_fail(struct sandbox *sandbox, const char *reason)
{
	if (!sandbox->vm || !can_fail(sandbox))
		return;
	fd_close(&sandbox->stream);
	sandbox->failed_by_host = true;
	vm_end(sandbox->vm, reason);
	sandbox_lose(sandbox, reason);
}

void sandbox_hold(struct sandbox *sandbox)
{
	sandbox->users++;
	sandbox_look_idle(sandbox);
}

void sandbox_release(struct sandbox *sandbox)
{
	sandbox->users--;
	sandbox_look_idle(sandbox);
}

/* --- birth and end --- */

static struct sandbox *make(struct sandboxes *all, uid_t uid)
{
	struct sandbox *sandbox = calloc(1, sizeof *sandbox);
	unsigned char random[8];

	if (!sandbox || getrandom(random, sizeof random, 0) != sizeof random) {
		free(sandbox);
		return NULL;
	}
	snprintf(sandbox->id, sizeof sandbox->id, "sb-%02x%02x%02x%02x%02x%02x%02x%02x", random[0], random[1],
		random[2], random[3], random[4], random[5], random[6], random[7]);
	sandbox->all = all;
	sandbox->uid = uid;
	sandbox->stream = -1;
	sandbox->last_session = SANDBOX_SESSION_FIRST;
	sandbox->created_ms = sandbox->ttl_from_ms = clock_wall_ms();
	sandbox->ttl_from_ns = clock_now();
	sandbox->claim.granted = granted;
	sandbox->claim.refused = refused;
	sandbox->claim.held = held;
	sandbox->request.replied = paused_or_resumed;
	sandbox->knock.replied = sandbox_knocked;
	return sandbox;
}

void sandbox_destroy(struct sandbox *sandbox)
{
	sandbox_record_forget(sandbox);
	sandbox_suspension_forget(sandbox);
	sandbox_removal_forget(sandbox);
	if (sandbox->pool)
		pool_cancel(sandbox->pool, &sandbox->claim);
	command_fetch_end(sandbox);
	commands_destroy(sandbox);
	fd_close(&sandbox->stream);
	sandbox_spec_finish(&sandbox->spec);
	json_decref(sandbox->made);
	free(sandbox);
}

struct sandbox *sandbox_create(
	struct sandboxes *all, struct sandbox_spec *spec, uid_t uid, struct error *error)
{
	struct sandbox *sandbox = make(all, uid);
	struct vm *vm;

	if (!sandbox) {
		error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
		return NULL;
	}
	if (sandbox_claim(sandbox, spec, &vm, error)) {
		sandbox_destroy(sandbox);
		return NULL;
	}
	sandbox->spec = *spec;
	*spec = (struct sandbox_spec){0};
	sandboxes_add(sandbox);
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, sandbox->spec.ttl_ms);
	if (vm)
		sandbox_own(sandbox, vm);
	return sandbox;
}

/* --- of a copy --- */

struct sandbox *sandbox_make_fork(struct sandboxes *all, struct sandbox_spec *spec, uid_t uid, json_t *made)
{
	struct sandbox *sandbox = make(all, uid);

	if (!sandbox)
		return NULL;
	sandbox->spec = *spec;
	*spec = (struct sandbox_spec){0};
	sandbox->made = json_incref(made);
	sandbox->forked = true;
	return sandbox;
}

int sandbox_begin_fork(struct sandbox *sandbox, struct pool_source *source, struct error *error)
{
	struct pool *pool = templates_own_pool(sandbox->all->config.templates);

	if (pool_claim_own(pool, &sandbox->claim, source, error))
		return -1;
	sandbox->pool = pool;
	sandbox->has_folder = true;
	sandbox->has_files = sandbox_saved_has_disk(sandbox->all->config.state_directory, sandbox->id);
	sandbox->has_new_files = sandbox->has_files;
	sandboxes_add(sandbox);
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, sandbox->spec.ttl_ms);
	return 0;
}

/* --- of an earlier daemon --- */

static int restore_spec(struct sandbox *sandbox, const struct journal_sandbox *row, struct error *error)
{
	json_t *body = json_loads(row->spec, JSON_REJECT_DUPLICATES, NULL);
	const json_t *created = json_object_get(body, SANDBOX_RECORD_CREATED);
	const json_t *renewed = json_object_get(body, SANDBOX_RECORD_RENEWED);
	int status = json_is_object(body) ? sandbox_spec_parse(&sandbox->spec, body, error)
					  : error_set(error, ERROR_INTERNAL, "its row has no specification");

	if (json_is_integer(created))
		sandbox->ttl_from_ns = (uint64_t)json_integer_value(created);
	sandbox->ttl_from_ms =
		json_is_integer(renewed) ? (uint64_t)json_integer_value(renewed) : row->created_ms;
	sandbox->made = json_incref(json_object_get(body, SANDBOX_RECORD_MADE));
	sandbox->cold = json_is_true(json_object_get(body, SANDBOX_RECORD_COLD));
	json_decref(body);
	return status;
}

/* One of which nothing is left but its row, and its files. */
static void restore_without_vm(struct sandbox *sandbox, const struct journal_sandbox *row)
{
	static const char ended[] = "the daemon and its VM ended";
	const bool lived = row->state == JOURNAL_SANDBOX_LIVES;

	sandbox->verified = true;
	if (sandbox_restore_suspended(sandbox, row->state))
		return;
	if (row->state == JOURNAL_SANDBOX_STOPPED || (lived && sandbox->has_files)) {
		sandbox->state = lived ? SANDBOX_READY : SANDBOX_STOPPING;
		sandbox->vm_id[0] = '\0';
		if (lived)
			sandbox_lose(sandbox, ended);
		sandbox_move(sandbox, SANDBOX_STOPPED, lived ? NULL : row->reason);
		return;
	}
	sandbox->state = SANDBOX_CREATING;
	sandbox_move(sandbox, row->state == JOURNAL_SANDBOX_DELETING ? SANDBOX_DELETING : SANDBOX_FAILED,
		lived ? ended : row->reason);
	if (sandbox->state == SANDBOX_DELETING)
		sandbox_move(sandbox, SANDBOX_GONE, NULL);
}

int sandbox_restore(
	struct sandboxes *all, const struct journal_sandbox *row, struct vm *vm, struct error *error)
{
	struct sandbox *sandbox = make(all, row->uid);
	const bool writes = vm && sandbox_saved_is_written(all->config.state_directory, row->id);

	if (!sandbox)
		return error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
	if (restore_spec(sandbox, row, error)) {
		sandbox_destroy(sandbox);
		return -1;
	}
	memcpy(sandbox->id, row->id, sizeof sandbox->id);
	memcpy(sandbox->vm_id, row->vm, sizeof sandbox->vm_id);
	sandbox->created_ms = row->created_ms;
	sandbox->recorded = true;
	sandbox->has_folder = sandbox_files_are_there(all->config.state_directory, sandbox->id);
	sandbox->has_files = sandbox_saved_has_disk(all->config.state_directory, sandbox->id);
	sandbox->interrupted = vm && sandbox_saved_is_copying(all->config.state_directory, sandbox->id);
	if (!vm)
		sandbox_saved_end_copying(all->config.state_directory, sandbox->id);
	/* Its guest may still hold sessions of the earlier daemon, all of lower ids. */
	sandbox->last_session = clock_now();
	sandboxes_add(sandbox);
	sandbox_restore_ttl(sandbox, row->this_boot);
	if (!vm) {
		restore_without_vm(sandbox, row);
		return 0;
	}
	sandbox_follow(sandbox, vm);
	sandbox_forget_saved(sandbox);
	vm_know_memory(vm, sandbox_saved_memory_bytes(sandbox->made), sandbox->spec.memory_max);
	sandbox->start_ticks = row->start_ticks;
	sandbox->state = SANDBOX_RESUMING;
	log_info("sandbox %s: taken back, in %s", sandbox->id, sandbox->vm_id);
	sandbox_settle_clocks(sandbox);
	/* The vmm may be writing still, and then answers to nobody. */
	if (sandbox->interrupted || writes)
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, sandbox_copy_ms(sandbox));
	return 0;
}
