/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a sandbox that is deleted: first the journal knows, then its VM ends, then its files go. */
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_private.h"

#include <stdio.h>
#include <string.h>

void sandbox_leave_pool(struct sandbox *sandbox)
{
	struct vm *vm = sandbox->claim.vm;

	pool_cancel(sandbox->pool, &sandbox->claim);
	sandbox->pool = NULL;
	sandbox->verified = !vm;
	if (vm)
		sandbox_follow(sandbox, vm);
}

void sandbox_settle_deleted(struct sandbox *sandbox)
{
	char reason[VM_CAUSE_MAX];

	/* It is told when that is over. */
	if (sandbox_suspension_works(sandbox) || (sandbox->writing && !sandbox->unnoted))
		return;
	sandbox_remove_files(sandbox);
	if (!sandbox->unnoted) {
		sandbox_move(sandbox, SANDBOX_GONE, NULL);
		return;
	}
	memcpy(sandbox->former_reason, sandbox->reason, sizeof sandbox->former_reason);
	sandbox->reason[0] = '\0';
	snprintf(reason, sizeof reason, "%.500s; it has no VM any more, but its deletion is not noted yet",
		sandbox->former_reason);
	sandbox_move(sandbox, SANDBOX_FAILED, reason);
}

/* Of one that is being deleted. */
static void end_deleted(struct sandbox *sandbox)
{
	if (sandbox->vm)
		vm_end(sandbox->vm, "its sandbox was deleted");
	else
		sandbox_settle_deleted(sandbox);
}

void sandbox_delete(struct sandbox *sandbox, const char *reason)
{
	if (sandbox->pool)
		sandbox_leave_pool(sandbox);
	fd_close(&sandbox->stream);
	/* What it was deleted for first stays the reason. */
	if (sandbox->unnoted)
		memcpy(sandbox->reason, sandbox->former_reason, sizeof sandbox->reason);
	sandbox->unnoted = false;
	sandbox_move(sandbox, SANDBOX_DELETING, reason);
	/* One of which there is a row is not told to be gone before that says so. */
	if (!sandbox->writing)
		end_deleted(sandbox);
}

void sandbox_deletion_recorded(struct sandbox *sandbox, const struct error *error)
{
	sandbox->unnoted = error != NULL;
	if (error)
		error_set(&sandbox->error, error->kind,
			"sandbox %s has no VM any more, but that it is deleted could not be noted: %.380s, "
			"and delete it again",
			sandbox->id, error->message);
	end_deleted(sandbox);
}
