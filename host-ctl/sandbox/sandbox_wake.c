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
#include "host-ctl/journal/journal_sandboxes.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/sandbox/sandboxes_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A worker's. While it has one, its sandbox is not suspended. */
struct sandbox_removal {
	struct sandboxes *all;
	struct sandbox *sandbox; /* NULL: it is gone */
	int folder, status;
	void (*then)(struct sandbox *sandbox, int status); /* NULL: nothing comes of it */
};

/* --- what is saved goes --- */

static void work(void *context)
{
	struct sandbox_removal *removal = context;

	sandbox_saved_tidy(removal->folder);
	removal->status = sandbox_saved_remove(removal->folder);
}

static void worked(void *context)
{
	struct sandbox_removal removal = *(struct sandbox_removal *)context;

	if (removal.sandbox)
		removal.sandbox->removal = NULL;
	fd_close(&removal.folder);
	free(context);
	if (removal.status)
		log_error("sandbox %s: what was saved of it cannot be removed: %s",
			removal.sandbox ? removal.sandbox->id : "that is gone", strerror(-removal.status));
	if (removal.sandbox && removal.then)
		removal.then(removal.sandbox, removal.status);
	sandboxes_end_work(removal.all);
}

/* 0: `then` will be called, unless sandbox_removal_leave is before; or -errno. */
static int begin_removal(struct sandbox *sandbox, void (*then)(struct sandbox *sandbox, int status))
{
	struct sandbox_removal *removal = calloc(1, sizeof *removal);
	int status;

	if (!removal)
		return -ENOMEM;
	*removal = (struct sandbox_removal){.all = sandbox->all,
		.sandbox = sandbox,
		.folder = sandbox_saved_open(sandbox->all->config.state_directory, sandbox->id),
		.then = then};
	status = removal->folder < 0 ? removal->folder
				     : sandboxes_begin_work(sandbox->all, work, worked, removal);
	if (!status) {
		sandbox->removal = removal;
		return 0;
	}
	fd_close(&removal->folder);
	free(removal);
	return status;
}

void sandbox_removal_leave(struct sandbox *sandbox)
{
	if (sandbox->removal)
		sandbox->removal->then = NULL;
}

void sandbox_removal_forget(struct sandbox *sandbox)
{
	if (sandbox->removal)
		sandbox->removal->sandbox = NULL;
	sandbox->removal = NULL;
}

static void dropped(struct sandbox *sandbox, int status)
{
	(void)status;
	if (sandbox->state == SANDBOX_STOPPING)
		sandbox_settle_stopped(sandbox);
}

void sandbox_drop_saved(struct sandbox *sandbox)
{
	const int status = begin_removal(sandbox, dropped);

	/* By its row it is stopped: what is left is not restored, and gives way to the next save. */
	if (!status)
		return;
	log_error("sandbox %s: what was saved of it cannot be removed: %s", sandbox->id, strerror(-status));
	sandbox_settle_stopped(sandbox);
}

/* --- a wake that fails --- */

static void be_suspended(struct sandbox *sandbox)
{
	sandbox->falls_back = false;
	sandbox_forget_vm(sandbox);
	sandbox_move(sandbox, SANDBOX_SUSPENDED, NULL);
}

/* Its row may say that it lives: the next daemon would take one with a disk for one whose guest had run. So
 * nobody is told before it says otherwise. */
static void fall_back(struct sandbox *sandbox)
{
	struct error error;

	sandbox->falls_back = true;
	if (sandbox_record_suspended(sandbox, &error) == 0)
		return;
	log_warn("sandbox %s: %s", sandbox->id, error.message);
	be_suspended(sandbox);
}

/* Its guest ran, and its disk with it: what was saved is not what it was. */
static void lose(struct sandbox *sandbox, int status)
{
	(void)status;
	sandbox_lose_ended(sandbox, sandbox->error.message);
}

/* Its VM is no more, or never came; sandbox->error says why. */
static void fail(struct sandbox *sandbox)
{
	const bool ran =
		sandbox->runs && sandbox_saved_has_disk(sandbox->all->config.state_directory, sandbox->id);

	log_warn("sandbox %s is not woken: %s", sandbox->id, sandbox->error.message);
	if (!ran)
		fall_back(sandbox);
	else if (begin_removal(sandbox, lose))
		lose(sandbox, 0);
}

/* --- a wake --- */

int sandbox_wake(struct sandbox *sandbox, struct error *error)
{
	const struct sandboxes_config *config = &sandbox->all->config;
	struct pool_source *source = sandbox_saved_source(
		config->state_directory, sandbox->id, config->templates, sandbox->spec.template, error);
	int status;

	if (!source)
		return -1;
	sandbox->pool = templates_own_pool(config->templates);
	sandbox->warm = sandbox->runs = sandbox->falls_back = false;
	status = pool_claim_own(sandbox->pool, &sandbox->claim, source, error);
	pool_source_drop(source);
	if (status)
		sandbox->pool = NULL;
	if (status)
		return status;
	/* That it was suspended still, after the last one. */
	sandbox_record_forget(sandbox);
	sandbox_move(sandbox, SANDBOX_WAKING, NULL);
	return 0;
}

/* Nothing of its guest has run. */
void sandbox_wake_held(struct sandbox *sandbox, struct vm *vm)
{
	sandbox_know_vm(sandbox, vm);
	if (sandbox_record(sandbox, &sandbox->error))
		sandbox_leave_pool(sandbox);
}

void sandbox_wake_recorded(struct sandbox *sandbox, const struct error *error)
{
	if (sandbox->falls_back) {
		if (error)
			log_warn("sandbox %s: that it is suspended still is not noted yet: %s", sandbox->id,
				error->message);
		be_suspended(sandbox);
		return;
	}
	/* Its VM has ended meanwhile; then it waits for its end to be told. */
	if (!sandbox->claim.vm)
		return;
	if (!error) {
		sandbox->runs = true;
		vm_let_run(sandbox->claim.vm);
		return;
	}
	sandbox->error = *error;
	sandbox_leave_pool(sandbox);
}

void sandbox_wake_gone(struct sandbox *sandbox)
{
	fail(sandbox);
}

void sandbox_wake_refused(struct sandbox *sandbox, const struct error *error)
{
	sandbox->error = *error;
	sandbox->pool = NULL;
	sandbox->verified = true;
	fail(sandbox);
}

/* --- its VM is warm --- */

static void removed(struct sandbox *sandbox, int status)
{
	if (!status)
		sandbox_move(sandbox, SANDBOX_READY, NULL);
	else
		sandbox_fail(sandbox, "what was saved of it cannot be removed");
}

int sandbox_woken(struct sandbox *sandbox)
{
	const int status = begin_removal(sandbox, removed);

	if (!status)
		return 0;
	return error_set(&sandbox->error, ERROR_INTERNAL,
		"what was saved of sandbox %s cannot be removed: %s", sandbox->id, strerror(-status));
}

/* --- of an earlier daemon --- */

void sandbox_forget_saved(struct sandbox *sandbox)
{
	int folder = sandbox->has_folder
			     ? sandbox_saved_open(sandbox->all->config.state_directory, sandbox->id)
			     : -1;
	int status;

	if (folder < 0)
		return;
	sandbox_saved_tidy(folder);
	status = sandbox_saved_remove(folder);
	if (status)
		log_error("sandbox %s: what was saved of it cannot be removed: %s", sandbox->id,
			strerror(-status));
	fd_close(&folder);
}

/* What lives by its row, and has no VM, was cut off on its way to the disk or back; it is what was saved,
 * unless its disk has gone on. */
bool sandbox_restore_suspended(struct sandbox *sandbox, int state)
{
	const char *state_directory = sandbox->all->config.state_directory;
	struct error error;

	if (state != JOURNAL_SANDBOX_SUSPENDED &&
		(state != JOURNAL_SANDBOX_LIVES || sandbox->has_files ||
			!sandbox_saved_is_there(state_directory, sandbox->id))) {
		sandbox_forget_saved(sandbox);
		return false;
	}
	sandbox->state = SANDBOX_WAKING;
	be_suspended(sandbox);
	/* Until that is written, the next daemon finds the same. */
	if (state == JOURNAL_SANDBOX_LIVES && sandbox_record_suspended(sandbox, &error))
		log_warn("sandbox %s: %s", sandbox->id, error.message);
	return true;
}
