/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/operation.h"
#include "host-ctl/sandbox/sandboxes_private.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define IN(state) (1u << (state))

static const struct {
	const char *name;
	unsigned int passing; /* one of these states */
	enum sandbox_state goal;
} kinds[OPERATION_KIND_COUNT] = {
	[OPERATION_CREATE] = {"create", IN(SANDBOX_CREATING), SANDBOX_READY},
	[OPERATION_PAUSE] = {"pause", IN(SANDBOX_PAUSING), SANDBOX_PAUSED},
	[OPERATION_RESUME] = {"resume", IN(SANDBOX_RESUMING), SANDBOX_READY},
	[OPERATION_SUSPEND] = {"suspend", IN(SANDBOX_SUSPENDING), SANDBOX_SUSPENDED},
	[OPERATION_WAKE] = {"wake", IN(SANDBOX_RESUMING) | IN(SANDBOX_WAKING) | IN(SANDBOX_STARTING),
		SANDBOX_READY},
	[OPERATION_STOP] = {"stop", IN(SANDBOX_STOPPING), SANDBOX_STOPPED},
	[OPERATION_START] = {"start", IN(SANDBOX_STARTING), SANDBOX_READY},
	[OPERATION_DELETE] = {"delete", IN(SANDBOX_DELETING), SANDBOX_GONE},
};

static const char *const states[] = {
	[OPERATION_RUNNING] = "running", [OPERATION_DONE] = "done", [OPERATION_FAILED] = "failed"};

void operation_destroy(struct operation *operation)
{
	struct sandboxes *all = operation->all;

	sandbox_unwatch(&operation->watcher);
	*(operation->previous ? &operation->previous->next : &all->operations) = operation->next;
	if (operation->next)
		operation->next->previous = operation->previous;
	all->operation_count--;
	free(operation);
}

/* Why the sandbox is not where it was to go. */
static void set_error(struct operation *operation, const struct sandbox *sandbox)
{
	bool died = sandbox->state == SANDBOX_FAILED || sandbox->lost;
	enum error_kind kind = died ? ERROR_GUEST_LOST : ERROR_CONFLICT;

	if (sandbox->error.kind) {
		operation->error = sandbox->error;
		return;
	}
	error_set(&operation->error, kind, "sandbox %s is %s%s%.300s", sandbox->id,
		sandbox_state_name(sandbox->state), sandbox->reason[0] ? ": " : "", sandbox->reason);
}

void operation_wait(struct operation *operation, struct operation_waiter *waiter)
{
	list_add(&operation->waiters, &waiter->entry);
}

void operation_leave(struct operation_waiter *waiter)
{
	list_remove(&waiter->entry);
}

/* Each answer may bring the next request, and with that anything. */
static void tell(struct operation *operation)
{
	struct operation_waiter *waiter;

	operation->telling = true;
	while ((waiter = (struct operation_waiter *)list_take(&operation->waiters)))
		waiter->over(waiter, operation);
	operation->telling = false;
}

static void look(struct operation *operation)
{
	const struct sandbox *sandbox = operation->sandbox;

	if (IN(sandbox->state) & kinds[operation->kind].passing)
		return;
	operation->state = OPERATION_DONE;
	if (sandbox->state != kinds[operation->kind].goal) {
		operation->state = OPERATION_FAILED;
		set_error(operation, sandbox);
	}
	sandbox_unwatch(&operation->watcher);
	operation->sandbox = NULL;
	tell(operation);
}

static void changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	(void)sandbox;
	look((struct operation *)((char *)watcher - offsetof(struct operation, watcher)));
}

/* Of those that are over, the oldest. */
static struct operation *find_over(const struct sandboxes *sandboxes)
{
	struct operation *found = NULL;

	for (struct operation *one = sandboxes->operations; one; one = one->next)
		if (one->state != OPERATION_RUNNING && !one->telling)
			found = one;
	return found;
}

static int make_room(struct sandboxes *sandboxes, struct error *error)
{
	struct operation *over;

	if (sandboxes->operation_count < OPERATIONS_MAX)
		return 0;
	over = find_over(sandboxes);
	if (!over)
		return error_set(error, ERROR_EXHAUSTED, "%d operations run: wait for some", OPERATIONS_MAX);
	operation_destroy(over);
	return 0;
}

/* Whose sandbox is still on its way: asking for the same again changes nothing about it. */
static struct operation *find_running(
	const struct sandboxes *sandboxes, const struct sandbox *sandbox, enum operation_kind kind)
{
	for (struct operation *one = sandboxes->operations; one; one = one->next)
		if (one->sandbox == sandbox && one->kind == kind && IN(sandbox->state) & kinds[kind].passing)
			return one;
	return NULL;
}

struct operation *sandboxes_plan_operation(struct sandboxes *sandboxes, const struct sandbox *sandbox,
	enum operation_kind kind, struct error *error)
{
	struct operation *operation = sandbox ? find_running(sandboxes, sandbox, kind) : NULL;
	unsigned char random[8];

	if (operation)
		return operation;
	if (make_room(sandboxes, error))
		return NULL;
	operation = calloc(1, sizeof *operation);
	if (!operation || getrandom(random, sizeof random, 0) != sizeof random) {
		free(operation);
		error_set(error, ERROR_INTERNAL, "out of memory for the operation");
		return NULL;
	}
	operation->all = sandboxes;
	operation->kind = kind;
	operation->watcher.changed = changed;
	snprintf(operation->id, sizeof operation->id, "op-%02x%02x%02x%02x%02x%02x%02x%02x", random[0],
		random[1], random[2], random[3], random[4], random[5], random[6], random[7]);
	sandboxes->operation_count++;
	return operation;
}

void operation_follow(struct operation *operation, struct sandbox *sandbox)
{
	struct sandboxes *all = operation->all;

	if (operation->state != OPERATION_PLANNED)
		return;
	operation->state = OPERATION_RUNNING;
	operation->sandbox = sandbox;
	memcpy(operation->sandbox_id, sandbox->id, sizeof operation->sandbox_id);
	operation->next = all->operations;
	if (operation->next)
		operation->next->previous = operation;
	all->operations = operation;
	sandbox_watch(sandbox, &operation->watcher);
	look(operation);
}

void operation_cancel(struct operation *operation)
{
	if (operation->state != OPERATION_PLANNED)
		return;
	operation->all->operation_count--;
	free(operation);
}

struct operation *sandboxes_find_operation(struct sandboxes *sandboxes, const char *id, struct error *error)
{
	struct operation *operation = sandboxes->operations;

	while (operation && strcmp(operation->id, id) != 0)
		operation = operation->next;
	if (!operation)
		error_set(error, ERROR_NOT_FOUND, "there is no operation %.64s", id);
	return operation;
}

json_t *operation_to_json(const struct operation *operation)
{
	json_t *error = operation->state == OPERATION_FAILED ? error_to_json(&operation->error) : NULL;
	json_t *inner = error ? json_incref(json_object_get(error, "error")) : json_null();

	json_decref(error);
	return json_pack("{s:{s:s,s:s,s:s,s:s,s:o}}", "operation", "id", operation->id, "kind",
		kinds[operation->kind].name, "state", states[operation->state], "sandbox",
		operation->sandbox_id, "error", inner);
}
