/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's guest is saved (sandbox_save.h): the sandbox is suspended, or copied.
 *
 * Suspended, it goes from memory to the disk:
 *
 *   PAUSES ──the guest stands──▶ SAVES ──the vmm has written──▶ WRITES ──a worker has synced──▶ NOTES
 *     ▲                            ▲ it lies upon nothing known: all │                            │ the row
 *   AWAITS                         └─────────────────────────────────┘                            ▼
 *                                                                                               ENDS
 *
 * AWAITS: a command is on its way to the guest. Saved without it, nobody could tell later whether it has run;
 * so the guest gets the time to say that it has begun, at most SANDBOX_ARRIVAL_MS of it.
 *
 * From ENDS on what is saved is the truth, and the VM ends; before, the VM is, and what fails undoes what is
 * there of the save (UNDOES, where that is to be brought to the disk: a worker's) and lets the guest run on,
 * if it ran. A VM that ends by itself fails its sandbox until all of it is written; after that it is not
 * needed.
 *
 * Copied, it runs on, and what is written is that of whoever asked:
 *
 *   HOLDS ──what it wrote is on its disk──▶ PAUSES ─▶ SAVES ─▶ WRITES ──so is its disk──▶ RESUMES
 *
 * What fails, at each point, lets it run on. A copy that is flat has all of its memory and disk from the vmm,
 * and no worker has more to do than to give the files their names.
 */
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_record.h"
#include "host-ctl/sandbox/sandbox_save.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/sandbox/sandbox_sync.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum phase { AWAITS, HOLDS, PAUSES, SAVES, WRITES, NOTES, ENDS, UNDOES, RESUMES };

struct sandbox_suspension {
	struct sandboxes *all;
	struct sandbox *sandbox; /* NULL: it is not waited for; the worker still has `files` */
	enum phase phase;
	bool stood; /* before */
	bool works; /* a worker has `files` */
	int undone; /* of UNDOES: 0 or -errno */
	/* Of one that is copied; else NULL. */
	struct sandbox_copy *copy;
	bool copied;		   /* all of it is there */
	struct error error;	   /* why not */
	struct sandbox_sync *sync; /* of HOLDS */
	uint64_t stands_ns;	   /* since when it is not to run */
	struct vm_save save;
	struct vm_request stand; /* pause, and resume */
	struct sandbox_save files;
};

/* Its sandbox may have gone elsewhere. */
static void note_error(struct sandbox_suspension *suspension)
{
	const struct sandbox *sandbox = suspension->sandbox;
	const bool lost = sandbox->state == SANDBOX_FAILED || sandbox->lost;

	if (sandbox->error.kind)
		suspension->error = sandbox->error;
	else
		error_set(&suspension->error, lost ? ERROR_GUEST_LOST : ERROR_CONFLICT,
			"sandbox %s could not be copied: it is %s%s%.300s", sandbox->id,
			sandbox_state_name(sandbox->state), sandbox->reason[0] ? ": " : "", sandbox->reason);
}

static void finish(struct sandbox_suspension *suspension)
{
	struct sandbox_copy *copy = suspension->copy;

	if (suspension->sandbox) {
		if (copy && !suspension->copied)
			note_error(suspension);
		suspension->sandbox->suspension = NULL;
	}
	suspension->sandbox = NULL;
	/* The worker's end is the other's. */
	if (suspension->works)
		return;
	sandbox_save_finish(&suspension->files);
	if (copy)
		copy->copied(copy, suspension->copied ? NULL : &suspension->error);
	free(suspension);
}

void sandbox_suspension_leave(struct sandbox *sandbox)
{
	if (!sandbox_suspension_works(sandbox))
		sandbox_suspension_forget(sandbox);
}

void sandbox_suspension_forget(struct sandbox *sandbox)
{
	struct sandbox_suspension *suspension = sandbox->suspension;

	if (!suspension)
		return;
	sandbox_sync_leave(suspension->sync);
	suspension->sync = NULL;
	if (sandbox->vm) {
		vm_forget(sandbox->vm, &suspension->save.request);
		vm_forget(sandbox->vm, &suspension->stand);
	}
	finish(suspension);
}

void sandbox_copy_leave(struct sandbox *sandbox)
{
	if (sandbox->suspension)
		sandbox->suspension->copy = NULL;
}

bool sandbox_suspension_works(const struct sandbox *sandbox)
{
	return sandbox->suspension && sandbox->suspension->works;
}

/* --- its guest runs on --- */

static void end_here(struct sandbox *sandbox, enum sandbox_state next)
{
	finish(sandbox->suspension);
	sandbox_move(sandbox, next, NULL);
}

static void note_pause(struct sandbox_suspension *suspension)
{
	const uint64_t ns = clock_now() - suspension->stands_ns;

	if (suspension->copy)
		suspension->copy->pause_us = ns / CLOCK_NS_PER_US;
	metrics_observe(&suspension->all->config.metrics->copy_pause, ns);
}

static void resumed(struct vm_request *request, int status, int fd)
{
	struct sandbox_suspension *suspension =
		(struct sandbox_suspension *)((char *)request - offsetof(struct sandbox_suspension, stand));
	struct sandbox *sandbox = suspension->sandbox;

	(void)fd;
	if (status)
		log_warn("sandbox %s: the vmm could not let its guest run on: %s", sandbox->id,
			strerror(-status));
	if (suspension->copied)
		note_pause(suspension);
	end_here(sandbox, status ? SANDBOX_PAUSED : SANDBOX_READY);
}

static void let_run(struct sandbox_suspension *suspension)
{
	struct sandbox *sandbox = suspension->sandbox;

	suspension->phase = RESUMES;
	suspension->stand.replied = resumed;
	if (suspension->stood)
		end_here(sandbox, SANDBOX_PAUSED);
	else if (vm_ask_resume(sandbox->vm, &suspension->stand))
		sandbox_fail(sandbox, "its guest could not be let run on");
	else
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_PATIENCE_MS);
}

/* --- what does not come about --- */

static bool is_copy(const struct sandbox_suspension *suspension)
{
	return suspension->files.own >= 0;
}

static void worked(void *context);

static void undo_work(void *context)
{
	struct sandbox_suspension *suspension = context;

	suspension->undone = sandbox_save_undo(&suspension->files);
}

/* What is there of it is not to be; but what is there of a copy is whose it was to be. True: a worker sees to
 * that, and worked() comes. False: suspension->undone tells. */
static bool begin_undo(struct sandbox_suspension *suspension)
{
	suspension->undone = 0;
	if (is_copy(suspension))
		return false;
	if (suspension->files.is_there) {
		suspension->phase = UNDOES;
		suspension->works = true;
		if (sandboxes_begin_work(suspension->all, undo_work, worked, suspension) == 0)
			return true;
		suspension->works = false;
	}
	undo_work(suspension);
	return false;
}

/* Nothing is there of it, if suspension->undone is 0; sandbox->error says why. */
static void gave_up(struct sandbox_suspension *suspension)
{
	struct sandbox *sandbox = suspension->sandbox;
	const int status = suspension->undone;

	/* A guest that runs on must not be found as it was. */
	if (status || !sandbox->vm || sandbox->vm->state != VM_OWNED) {
		if (status)
			log_error("sandbox %s: what was saved of it cannot be removed: %s", sandbox->id,
				strerror(-status));
		if (sandbox->vm)
			vm_end(sandbox->vm, "its sandbox could not be suspended");
		sandbox_lose_ended(sandbox, sandbox->error.message);
		return;
	}
	let_run(suspension);
}

/* sandbox->error says why. */
static void give_up(struct sandbox_suspension *suspension)
{
	log_warn("%s", suspension->sandbox->error.message);
	/* The disk takes what it takes. */
	sandbox_set_clock(suspension->sandbox, SANDBOX_CLOCK_PATIENCE, 0);
	if (!begin_undo(suspension))
		gave_up(suspension);
}

static void refuse(struct sandbox_suspension *suspension, const char *what, int status, const char *words)
{
	const bool full = error_is_of_full_disk(status) || status == -EFBIG;

	error_set(&suspension->sandbox->error, full ? ERROR_EXHAUSTED : ERROR_INTERNAL,
		"sandbox %s could not be %s: %s", suspension->sandbox->id, what,
		words[0] ? words : strerror(-status));
	give_up(suspension);
}

/* --- what comes one after the other --- */

uint64_t sandbox_copy_ms(const struct sandbox *sandbox)
{
	return SANDBOX_SAVE_MS + sandbox_saved_disk_bytes(sandbox->made) / VM_READ_BYTES_PER_MS;
}

static int ask_save(struct sandbox_suspension *suspension, bool whole)
{
	const struct sandbox_save *files = &suspension->files;
	const struct vm_save_files all = {.state = files->state,
		.memory = files->memory,
		.disk = files->disk,
		.disk_bytes = files->disk_bytes};
	struct vm *vm = suspension->sandbox->vm;

	return files->flat ? vm_ask_save_whole(vm, &all, &suspension->save)
			   : vm_ask_save(vm, files->state, files->memory, !whole, &suspension->save);
}

static void begin_save(struct sandbox_suspension *suspension, bool whole)
{
	struct sandbox *sandbox = suspension->sandbox;
	int status;

	suspension->phase = SAVES;
	if (sandbox_save_open(&suspension->files, whole)) {
		sandbox->error = suspension->files.error;
		give_up(suspension);
		return;
	}
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE,
		suspension->files.flat ? sandbox_copy_ms(sandbox) : SANDBOX_SAVE_MS);
	status = ask_save(suspension, whole);
	if (status)
		refuse(suspension, "saved", status,
			status == -EPERM ? "the daemon may not let its vmm write so much (CAP_SYS_RESOURCE)"
					 : "");
}

static void paused(struct vm_request *request, int status, int fd)
{
	struct sandbox_suspension *suspension =
		(struct sandbox_suspension *)((char *)request - offsetof(struct sandbox_suspension, stand));
	struct sandbox *sandbox = suspension->sandbox;

	(void)fd;
	if (!status) {
		begin_save(suspension, suspension->files.flat);
		return;
	}
	error_set(&sandbox->error, ERROR_INTERNAL, "the vmm could not pause sandbox %s: %s", sandbox->id,
		strerror(-status));
	end_here(sandbox, SANDBOX_READY);
}

/* What it is to be after it cannot be noted, or is. */
static void note(struct sandbox_suspension *suspension)
{
	struct sandbox *sandbox = suspension->sandbox;

	suspension->phase = NOTES;
	if (sandbox_record_suspended(sandbox, &sandbox->error))
		give_up(suspension);
}

static void work(void *context)
{
	struct sandbox_suspension *suspension = context;

	sandbox_save_work(&suspension->files);
}

static void go_on(struct sandbox_suspension *suspension)
{
	struct sandbox *sandbox = suspension->sandbox;

	if (!sandbox || (sandbox->state != SANDBOX_SUSPENDING && sandbox->state != SANDBOX_COPYING)) {
		/* Nobody wants it, or its sandbox is gone, or elsewhere. */
		if (begin_undo(suspension))
			return;
		finish(suspension);
		if (!sandbox)
			return;
		if (sandbox->state == SANDBOX_DELETING && !sandbox->vm)
			sandbox_settle_deleted(sandbox);
		else if (sandbox->state == SANDBOX_STOPPING && !sandbox->vm)
			sandbox_settle_stopped(sandbox);
	} else if (suspension->phase == UNDOES) {
		gave_up(suspension);
	} else if (suspension->files.error.kind) {
		sandbox->error = suspension->files.error;
		give_up(suspension);
	} else if (!suspension->files.wants_whole && is_copy(suspension)) {
		suspension->copied = true;
		let_run(suspension);
	} else if (!suspension->files.wants_whole) {
		note(suspension);
	} else if (sandbox->vm && sandbox->vm->state == VM_OWNED) {
		begin_save(suspension, true);
	} else {
		error_set(&sandbox->error, ERROR_GUEST_LOST, "the VM of sandbox %s has ended", sandbox->id);
		give_up(suspension);
	}
}

static void worked(void *context)
{
	struct sandbox_suspension *suspension = context;
	struct sandboxes *all = suspension->all;

	suspension->works = false;
	go_on(suspension);
	sandboxes_end_work(all);
}

static void saved(struct vm_request *request, int status, int fd)
{
	struct sandbox_suspension *suspension =
		(struct sandbox_suspension *)((char *)request -
					      offsetof(struct sandbox_suspension, save.request));
	struct sandbox *sandbox = suspension->sandbox;

	(void)fd;
	if (status == -ENODATA && !suspension->files.whole) {
		/* It was booted. */
		begin_save(suspension, true);
		return;
	}
	if (status) {
		refuse(suspension, "saved", status, suspension->save.words);
		return;
	}
	if (suspension->copy) {
		suspension->copy->state_bytes = suspension->save.state_bytes;
		suspension->copy->memory_bytes = suspension->save.memory_bytes;
	}
	suspension->phase = WRITES;
	/* The disk takes what it takes. */
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, 0);
	suspension->works = true;
	status = sandboxes_begin_work(sandbox->all, work, worked, suspension);
	if (!status)
		return;
	suspension->works = false;
	refuse(suspension, "saved", status, "");
}

static void settle(struct sandbox *sandbox)
{
	sandbox_forget_vm(sandbox);
	finish(sandbox->suspension);
	sandbox_move(sandbox, SANDBOX_SUSPENDED, NULL);
}

void sandbox_suspend_recorded(struct sandbox *sandbox, const struct error *error)
{
	struct sandbox_suspension *suspension = sandbox->suspension;

	if (error) {
		sandbox->error = *error;
		give_up(suspension);
		return;
	}
	suspension->phase = ENDS;
	suspension->files.is_there = false;
	commands_sleep(sandbox);
	/* Whoever was told of the end of one may have had it deleted. */
	if (sandbox->state != SANDBOX_SUSPENDING)
		return;
	if (sandbox->vm)
		vm_end(sandbox->vm, "its sandbox was suspended");
	else
		settle(sandbox);
}

bool sandbox_needs_no_vm(const struct sandbox *sandbox)
{
	const struct sandbox_suspension *suspension = sandbox->suspension;

	return suspension && !is_copy(suspension) && suspension->phase >= WRITES && suspension->phase <= ENDS;
}

void sandbox_suspend_gone(struct sandbox *sandbox)
{
	if (sandbox->suspension->phase == ENDS)
		settle(sandbox);
}

/* --- the beginning --- */

/* What is on its way to a command is nowhere to be kept. */
static int check_input(const struct sandbox *sandbox, struct error *error)
{
	const struct command *command = sandbox->commands;

	while (command &&
		(command->state != COMMAND_RUNNING || !command->reader || command->session.input_ended))
		command = command->next;
	if (!command)
		return 0;
	return error_set(error, ERROR_CONFLICT,
		"sandbox %s cannot be suspended while a client is attached to command %s, which reads what "
		"that sends: let it end its input, or detach",
		sandbox->id, command->id);
}

/* NULL with *error set. */
static struct sandbox_suspension *make(struct sandbox *sandbox, struct error *error)
{
	const struct sandboxes_config *config = &sandbox->all->config;
	struct sandbox_suspension *suspension = NULL;

	if (!config->journal) {
		*error = *config->journal_error;
	} else if (!sandbox->made) {
		error_set(error, ERROR_CONFLICT,
			"sandbox %s was made by an older daemon, and cannot be saved", sandbox->id);
	} else if (sandbox->suspension) {
		error_set(error, ERROR_NOT_READY, "sandbox %s is still being saved", sandbox->id);
	} else {
		suspension = calloc(1, sizeof *suspension);
		if (!suspension)
			error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
	}
	if (!suspension)
		return NULL;
	suspension->all = sandbox->all;
	suspension->sandbox = sandbox;
	suspension->phase = PAUSES;
	suspension->stood = sandbox->state == SANDBOX_PAUSED;
	suspension->stand.replied = paused;
	suspension->save.request.replied = saved;
	sandbox_save_init(&suspension->files, config->state_directory, sandbox->id, sandbox->spec.template,
		sandbox->made);
	if (!sandbox->vm->found)
		sandbox_save_know_base(&suspension->files, sandbox->vm->source);
	return suspension;
}

/* It has not begun, and is nobody's. */
static int drop(struct sandbox_suspension *suspension)
{
	suspension->sandbox = NULL;
	suspension->copy = NULL;
	finish(suspension);
	return -1;
}

static int ask_pause(struct sandbox_suspension *suspension)
{
	suspension->phase = PAUSES;
	suspension->stands_ns = clock_now();
	return vm_ask_pause(suspension->sandbox->vm, &suspension->stand);
}

int sandbox_suspend(struct sandbox *sandbox, struct error *error)
{
	struct sandbox_suspension *suspension;
	int status;

	if (check_input(sandbox, error))
		return -1;
	if (sandbox->removal)
		return error_set(error, ERROR_NOT_READY,
			"what was saved of sandbox %s before is being removed: try again", sandbox->id);
	suspension = make(sandbox, error);
	if (!suspension)
		return -1;
	if (!suspension->stood && commands_are_under_way(sandbox))
		suspension->phase = AWAITS;
	status = suspension->stood || suspension->phase == AWAITS ? 0 : ask_pause(suspension);
	if (status) {
		drop(suspension);
		return sandbox_refuse_request(sandbox, status, error);
	}
	sandbox->suspension = suspension;
	sandbox->has_folder = true;
	fd_close(&sandbox->stream);
	sandbox_move(sandbox, SANDBOX_SUSPENDING, NULL);
	if (suspension->phase == AWAITS)
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_ARRIVAL_MS);
	if (suspension->stood)
		begin_save(suspension, false);
	return 0;
}

/* In a turn of its own, for who tells it is in the midst of a command. */
void sandbox_suspension_look(struct sandbox *sandbox)
{
	const struct sandbox_suspension *suspension = sandbox->suspension;

	if (suspension && suspension->phase == AWAITS && !commands_are_under_way(sandbox))
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, 1);
}

bool sandbox_suspension_go_on(struct sandbox *sandbox)
{
	struct sandbox_suspension *suspension = sandbox->suspension;
	int status;

	if (sandbox->state != SANDBOX_SUSPENDING || !suspension || suspension->phase != AWAITS)
		return false;
	status = ask_pause(suspension);
	if (status) {
		sandbox_refuse_request(sandbox, status, &sandbox->error);
		end_here(sandbox, SANDBOX_READY);
	} else {
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_PATIENCE_MS);
	}
	return true;
}

/* --- the beginning of a copy --- */

static void held(void *context, const struct error *error)
{
	struct sandbox_suspension *suspension = context;
	struct sandbox *sandbox = suspension->sandbox;
	int status;

	suspension->sync = NULL;
	if (error) {
		sandbox->error = *error;
		end_here(sandbox, SANDBOX_READY);
		return;
	}
	status = ask_pause(suspension);
	if (!status) {
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_PATIENCE_MS);
		return;
	}
	sandbox_refuse_request(sandbox, status, &sandbox->error);
	end_here(sandbox, SANDBOX_READY);
}

/* 0, or -1 with *error set. */
static int begin_copy(struct sandbox_suspension *suspension, struct error *error)
{
	if (sandbox_save_make_copy(&suspension->files, suspension->copy->folder, suspension->copy->flat)) {
		*error = suspension->files.error;
		return -1;
	}
	/* Also without a disk: what runs in the copy stands then until that is told who it is. */
	suspension->phase = HOLDS;
	suspension->sync = sandbox_sync_begin(suspension->sandbox, held, suspension, error);
	return suspension->sync ? 0 : -1;
}

int sandbox_copy_name(char name[SANDBOX_ID_MAX])
{
	unsigned char random[8];

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -EIO;
	snprintf(name, SANDBOX_ID_MAX, "fk-%02x%02x%02x%02x%02x%02x%02x%02x", random[0], random[1], random[2],
		random[3], random[4], random[5], random[6], random[7]);
	return 0;
}

int sandbox_copy(struct sandbox *sandbox, struct sandbox_copy *copy, struct error *error)
{
	struct sandbox_suspension *suspension;
	enum sandbox_state next;

	if (sandbox_check(sandbox, SANDBOX_COPY, &next, error) || !(suspension = make(sandbox, error)))
		return -1;
	sandbox->error.kind = ERROR_NONE;
	sandbox->has_folder = true;
	suspension->copy = copy;
	copy->pause_us = 0;
	if (begin_copy(suspension, error))
		return drop(suspension);
	sandbox->suspension = suspension;
	sandbox_move(sandbox, SANDBOX_COPYING, NULL);
	/* The guest has its own time for that. */
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, 0);
	return 0;
}
