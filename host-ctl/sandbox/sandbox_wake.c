/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A suspended sandbox gets a VM again, of what was saved of it (sandbox_saved.h):
 *
 *   claimed ──restored, `held`──▶ its row says that it lives ──let run──▶ warm ──the save is removed──▶ READY
 *
 * Until it is let run it is suspended still, whatever happens, also for the next daemon. After that, one with
 * its files on a disk is not what was saved any more; of another the save is good until it is removed, and
 * what fails before leaves it suspended.
 */
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/worker.h"

#include <stdlib.h>
#include <string.h>

/* A worker's. */
struct removal {
	struct sandbox *sandbox; /* NULL: it is gone, or has no VM any more */
	int folder, status;
};

/* Its VM is no more, or never came; sandbox->error says why. */
static void fail(struct sandbox *sandbox)
{
	bool ran = sandbox->runs && sandbox_saved_has_disk(sandbox->all->config.state_directory, sandbox->id);

	sandbox->pool = NULL;
	sandbox->verified = true;
	sandbox->pid = 0;
	if (ran) {
		sandbox_lose(sandbox, sandbox->error.message);
		return;
	}
	sandbox->vm_id[0] = '\0';
	sandbox_move(sandbox, SANDBOX_SUSPENDED, NULL);
}

int sandbox_wake(struct sandbox *sandbox, struct error *error)
{
	const struct sandboxes_config *config = &sandbox->all->config;
	struct pool_source *source = sandbox_saved_source(config->state_directory, sandbox->id,
		config->templates, sandbox->spec.template, error);
	int status;

	if (!source)
		return -1;
	sandbox->pool = templates_own_pool(config->templates);
	sandbox->warm = sandbox->runs = false;
	status = pool_claim_own(sandbox->pool, &sandbox->claim, source, error);
	pool_source_drop(source);
	if (status)
		sandbox->pool = NULL;
	else
		sandbox_move(sandbox, SANDBOX_WAKING, NULL);
	return status;
}

/* Nothing of its guest has run. */
void sandbox_wake_held(struct sandbox *sandbox, struct vm *vm)
{
	sandbox_know_vm(sandbox, vm);
	if (sandbox_record(sandbox, &sandbox->error) == 0)
		return;
	pool_cancel(sandbox->pool, &sandbox->claim);
	fail(sandbox);
}

void sandbox_wake_recorded(struct sandbox *sandbox, const struct error *error)
{
	/* Its VM has ended meanwhile; then it is suspended again, or waits for its end to be told. */
	if (!sandbox->claim.vm)
		return;
	if (!error) {
		sandbox->runs = true;
		vm_let_run(sandbox->claim.vm);
		return;
	}
	sandbox->error = *error;
	pool_cancel(sandbox->pool, &sandbox->claim);
	fail(sandbox);
}

void sandbox_wake_refused(struct sandbox *sandbox, const struct error *error)
{
	sandbox->error = *error;
	fail(sandbox);
}

/* --- its VM is warm --- */

static void work(void *context)
{
	struct removal *removal = context;

	removal->status = sandbox_saved_remove(removal->folder);
}

static void worked(void *context)
{
	struct removal *removal = context;
	struct sandbox *sandbox = removal->sandbox;
	int status = removal->status;

	if (sandbox)
		sandbox->removal = NULL;
	fd_close(&removal->folder);
	free(removal);
	if (!sandbox || sandbox->state != SANDBOX_WAKING)
		return;
	if (!status) {
		sandbox_move(sandbox, SANDBOX_READY, NULL);
		return;
	}
	log_error("sandbox %s: what was saved of it cannot be removed: %s", sandbox->id, strerror(-status));
	sandbox_fail(sandbox, "what was saved of it cannot be removed");
}

void sandbox_removal_forget(struct sandbox *sandbox)
{
	if (sandbox->removal)
		sandbox->removal->sandbox = NULL;
	sandbox->removal = NULL;
}

int sandbox_woken(struct sandbox *sandbox)
{
	struct removal *removal = calloc(1, sizeof *removal);
	int status = -1;

	if (removal) {
		*removal = (struct removal){.sandbox = sandbox,
			.folder = sandbox_saved_open(sandbox->all->config.state_directory, sandbox->id)};
		status = removal->folder < 0 ? removal->folder : worker_start(
			sandbox->all->config.loop, work, worked, removal);
	}
	if (!status) {
		sandbox->removal = removal;
		return 0;
	}
	if (removal)
		fd_close(&removal->folder);
	free(removal);
	return error_set(&sandbox->error, ERROR_INTERNAL, "what was saved of sandbox %s cannot be removed",
		sandbox->id);
}
