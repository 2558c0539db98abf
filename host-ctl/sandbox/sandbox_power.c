/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox is switched off and on again: stop and start. What it keeps is what the daemon knows of it; all
 * that its guest had, files included, is gone with its VM. A disk of that is kept in files while there is
 * one.
 */
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"

int sandbox_keep_files(struct sandbox *sandbox)
{
	if (!vm_has_upper(sandbox->vm))
		return 0;
	if (sandbox_files_keep(
		    sandbox->all->config.state_directory, sandbox->id, sandbox->vm, &sandbox->error))
		return -1;
	sandbox->has_files = true;
	return 0;
}

void sandbox_remove_files(struct sandbox *sandbox)
{
	const char *folder = sandbox->all->config.state_directory;

	if (!sandbox->has_files)
		return;
	sandbox->has_files = false;
	if (sandbox_files_remove(folder, sandbox->id, &sandbox->removed) ||
		sandbox_files_are_there(folder, sandbox->id))
		sandbox->verified = false;
}

#include <string.h>

/* A guest that stands cannot shut down. */
static void switch_off(struct sandbox *sandbox)
{
	if (sandbox->stood) {
		vm_end(sandbox->vm, "its sandbox was stopped");
		return;
	}
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_PATIENCE_MS);
	vm_shut_down(sandbox->vm, SANDBOX_GRACE_MS);
}

void sandbox_stop(struct sandbox *sandbox, const char *reason)
{
	/* One that never was ready has nothing to be told. */
	sandbox->stood = sandbox->state != SANDBOX_READY;
	fd_close(&sandbox->stream);
	sandbox_move(sandbox, SANDBOX_STOPPING, reason);
	if (!sandbox->writing)
		switch_off(sandbox);
}

void sandbox_stop_recorded(struct sandbox *sandbox, const struct error *error)
{
	/* A VM that has ended meanwhile does not come back. */
	if (!error || sandbox->vm->state != VM_OWNED) {
		switch_off(sandbox);
		return;
	}
	sandbox->error = *error;
	sandbox_move(sandbox, sandbox->stood ? SANDBOX_PAUSED : SANDBOX_READY, NULL);
}

int sandbox_start(struct sandbox *sandbox, struct error *error)
{
	struct vm *vm;

	if (sandbox_claim(sandbox, sandbox->spec.template, &vm, error))
		return -1;
	memcpy(sandbox->former_reason, sandbox->reason, sizeof sandbox->former_reason);
	sandbox_move(sandbox, SANDBOX_STARTING, NULL);
	if (vm)
		sandbox_own(sandbox, vm);
	return 0;
}
