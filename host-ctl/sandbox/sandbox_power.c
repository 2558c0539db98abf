/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox is switched off and on again: stop and start. Without a disk it keeps what the daemon knows of
 * it, and all that its guest had, files included, is gone with its VM. On a disk its files are kept, whatever
 * its VM ends by, until they are discarded; its start boots from them.
 */
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_boot.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/sandbox/sandboxes_private.h"

#include <string.h>

/* --- its files --- */

int sandbox_keep_files(struct sandbox *sandbox)
{
	const struct sandboxes_config *config = &sandbox->all->config;

	if (sandbox->has_files || !vm_has_upper(sandbox->vm))
		return 0;
	if (sandbox_files_check_room(config->state_directory, config->disk_reserve_bytes, &sandbox->error) ||
		sandbox_files_keep(config->state_directory, sandbox->id, sandbox->vm, &sandbox->error))
		return -1;
	sandbox->has_files = sandbox->has_new_files = true;
	return 0;
}

void sandbox_remove_files(struct sandbox *sandbox)
{
	const char *folder = sandbox->all->config.state_directory;

	if (!sandbox->has_files && !sandbox->has_folder)
		return;
	sandbox->has_files = sandbox->has_new_files = sandbox->has_folder = false;
	if (sandbox_files_remove(folder, sandbox->id, &sandbox->removed) ||
		sandbox_files_are_there(folder, sandbox->id))
		sandbox->verified = false;
}

void sandbox_discard_files(struct sandbox *sandbox)
{
	sandbox_remove_files(sandbox);
	/* The receipt tells what a deletion has removed. */
	sandbox->removed = (struct sandbox_files){0};
}

/* --- stop --- */

/* A guest that stands cannot shut down. Without files it need not; else what it has not synced is to be on
 * its disk. */
static void switch_off(struct sandbox *sandbox)
{
	if (!sandbox->vm) {
		if (sandbox->slept)
			sandbox_drop_saved(sandbox);
		else
			sandbox_settle_stopped(sandbox);
		return;
	}
	/* Its VM has them open, and needs no names. */
	if (sandbox->discards)
		sandbox_discard_files(sandbox);
	if (sandbox->stood && !sandbox->has_files) {
		vm_end(sandbox->vm, "its sandbox was stopped");
		return;
	}
	if (sandbox->stood)
		vm_ask_resume(sandbox->vm, &sandbox->request);
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_PATIENCE_MS);
	vm_shut_down(sandbox->vm, SANDBOX_GRACE_MS);
}

void sandbox_stop(struct sandbox *sandbox, const char *reason)
{
	/* One that never was ready has nothing to be told. */
	sandbox->stood = sandbox->state != SANDBOX_READY;
	sandbox->slept = sandbox->state == SANDBOX_SUSPENDED;
	fd_close(&sandbox->stream);
	sandbox_move(sandbox, SANDBOX_STOPPING, reason);
	if (!sandbox->writing)
		switch_off(sandbox);
}

void sandbox_stop_recorded(struct sandbox *sandbox, const struct error *error)
{
	enum sandbox_state before = sandbox->stood ? SANDBOX_PAUSED : SANDBOX_READY;

	/* A VM that has ended meanwhile does not come back. */
	if (!error || (sandbox->vm ? sandbox->vm->state != VM_OWNED : !sandbox->slept)) {
		switch_off(sandbox);
		return;
	}
	sandbox->error = *error;
	if (sandbox->slept)
		before = SANDBOX_SUSPENDED;
	sandbox_move(sandbox, before, NULL);
}

void sandbox_settle_stopped(struct sandbox *sandbox)
{
	/* It is told when that is over. */
	if (sandbox_suspension_works(sandbox) || sandbox->writing)
		return;
	sandbox_forget_vm(sandbox);
	if (sandbox->discards)
		sandbox_discard_files(sandbox);
	sandbox_move(sandbox, SANDBOX_STOPPED, NULL);
}

void sandbox_lose(struct sandbox *sandbox, const char *reason)
{
	sandbox->discards = sandbox->slept = false;
	sandbox->lost = sandbox->has_files && sandbox_state_may_go(sandbox->state, SANDBOX_STOPPING);
	sandbox_move(sandbox, sandbox->lost ? SANDBOX_STOPPING : SANDBOX_FAILED, reason);
}

void sandbox_lose_ended(struct sandbox *sandbox, const char *reason)
{
	sandbox_lose(sandbox, reason);
	if (sandbox->vm || sandbox->state != SANDBOX_STOPPING)
		return;
	sandbox_settle_stopped(sandbox);
}

/* --- start --- */

/* As sandbox_claim, of a VM that boots from its files. */
static int claim_boot(struct sandbox *sandbox, struct error *error)
{
	const struct sandboxes_config *config = &sandbox->all->config;
	struct pool_source *source =
		sandbox_boot_source(config->state_directory, sandbox->id, config->templates, error);

	return source ? sandbox_claim_own(sandbox, source, error) : -1;
}

int sandbox_start(struct sandbox *sandbox, struct error *error)
{
	struct vm *vm = NULL;

	if (sandbox->has_files ? claim_boot(sandbox, error)
			       : sandbox_claim(sandbox, &sandbox->spec, &vm, error))
		return -1;
	memcpy(sandbox->former_reason, sandbox->reason, sizeof sandbox->former_reason);
	/* A VM that ended by itself may have been gone before that was noted. */
	sandbox_record_forget(sandbox);
	sandbox->discards = sandbox->lost = sandbox->failed_by_host = false;
	sandbox_move(sandbox, SANDBOX_STARTING, NULL);
	if (vm)
		sandbox_own(sandbox, vm);
	return 0;
}
