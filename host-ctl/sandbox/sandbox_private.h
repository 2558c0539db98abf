/* SPDX-License-Identifier: Apache-2.0 */
/* Between sandbox.c, sandbox_claim.c, sandbox_clocks.c, sandbox_delete.c, sandbox_power.c, sandbox_return.c,
 * sandbox_suspend.c and sandbox_wake.c. */
#ifndef HOST_CTL_SANDBOX_PRIVATE_H
#define HOST_CTL_SANDBOX_PRIVATE_H

#include "host-ctl/sandbox/sandbox.h"

/* The one place where its state changes. reason: of failed, stopping, stopped, deleting and gone; NULL: what
 * was said before holds. */
void sandbox_move(struct sandbox *sandbox, enum sandbox_state next, const char *reason);
/* What its row has of a VM. */
void sandbox_know_vm(struct sandbox *sandbox, const struct vm *vm);
/* Of a VM that is gone. What is left of one is still named in the receipt. */
void sandbox_forget_vm(struct sandbox *sandbox);
/* -1 with *error set, for a vm_ask_* that returned that status. */
int sandbox_refuse_request(const struct sandbox *sandbox, int status, struct error *error);
/* Of one that is CREATING, STARTING or WAKING: this is its VM. */
void sandbox_own(struct sandbox *sandbox, struct vm *vm);
/* What becomes of this VM, which is OWNED or ending, is told to it. */
void sandbox_follow(struct sandbox *sandbox, struct vm *vm);
/* Of one that waits in a pool: it does so no more. A VM that started for it alone ends; that is its own until
 * nothing is left of it. */
void sandbox_leave_pool(struct sandbox *sandbox);

/* --- sandbox_claim.c --- */

/* Claims a VM of that template and shape: 0 with *vm, which sandbox_own is for, or NULL: it comes later; or
 * -1 with *error set, as of templates_shape_source, templates_pool and pool_claim_vm. */
int sandbox_claim(
	struct sandbox *sandbox, const struct sandbox_spec *spec, struct vm **vm, struct error *error);
/* Claims one that is made of this source, whose reference is taken over: it comes later. 0, or -1 with *error
 * set, as of pool_claim_own. */
int sandbox_claim_own(struct sandbox *sandbox, struct pool_source *source, struct error *error);

/* --- sandbox_clocks.c --- */

/* From now on; 0 milliseconds: never. */
void sandbox_set_clock(struct sandbox *sandbox, enum sandbox_clock clock, uint64_t milliseconds);
/* Idleness is counted from now on, or not at all. */
void sandbox_look_idle(struct sandbox *sandbox);
/* Those that run in the state that it is in now, from now on. */
void sandbox_settle_clocks(struct sandbox *sandbox);
/* Of one of an earlier daemon: its ttl goes on; this_boot: of the host, in which it began. */
void sandbox_restore_ttl(struct sandbox *sandbox, bool this_boot);
/* What its ttl asks of the state that it is in now. */
void sandbox_look_ttl(struct sandbox *sandbox);
/* One of its clocks has come. It may be gone after the call. */
void sandbox_time_is_up(struct sandbox *sandbox, enum sandbox_clock clock);

/* --- sandbox_delete.c --- */

/* To DELETING; GONE when nothing is left of its VM. Before that is told, the journal knows. */
void sandbox_delete(struct sandbox *sandbox, const char *reason);
/* Of one that is DELETING: the journal knows, or, with an error (else NULL), does not: its VM is not kept for
 * that. */
void sandbox_deletion_recorded(struct sandbox *sandbox, const struct error *error);
/* No VM is left of one that was deleted: it is GONE, or FAILED, when the journal has said what it makes of
 * that and no worker has its files. */
void sandbox_settle_deleted(struct sandbox *sandbox);

/* --- sandbox_power.c --- */

/* Gives the disk of its VM, if that has a new one, names: what its guest writes is kept from now on. 0, or -1
 * with sandbox->error set: exhausted, the host's disk has no room, or as of sandbox_files_keep. */
int sandbox_keep_files(struct sandbox *sandbox);
/* Its VM is gone, and so are these; sandbox->removed tells which. */
void sandbox_remove_files(struct sandbox *sandbox);
/* Its VM has ended, by itself or by us: to FAILED or, with files, by STOPPING to STOPPED. */
void sandbox_lose(struct sandbox *sandbox, const char *reason);
/* The same, of one whose VM may be gone by now. */
void sandbox_lose_ended(struct sandbox *sandbox, const char *reason);

/* READY, PAUSED or STARTING, with its VM, to STOPPING; STOPPED when nothing is left of that. Before the VM is
 * told, the journal knows. Of one that is SUSPENDED: what was saved of its memory goes, when the journal
 * knows. */
void sandbox_stop(struct sandbox *sandbox, const char *reason);
/* Of one that is STOPPING: the journal knows, or, with an error (else NULL), does not: then it is as it was.
 */
void sandbox_stop_recorded(struct sandbox *sandbox, const struct error *error);
/* Of one that is STOPPING: nothing is left of its VM; STOPPED, when the journal has said so too and no worker
 * has its files. */
void sandbox_settle_stopped(struct sandbox *sandbox);
/* STOPPED to STARTING. 0, or -1 with *error set, as of sandbox_claim: it stays as it is. */
int sandbox_start(struct sandbox *sandbox, struct error *error);

/* --- sandbox_suspend.c --- */

/* READY or PAUSED to SUSPENDING. 0, or -1 with *error set: it stays as it is. */
int sandbox_suspend(struct sandbox *sandbox, struct error *error);
/* Of one that is SUSPENDING: the journal knows, or, with an error (else NULL), does not. */
void sandbox_suspend_recorded(struct sandbox *sandbox, const struct error *error);
/* It is SUSPENDING, and all of its guest is written: the end of its VM is no loss. */
bool sandbox_needs_no_vm(const struct sandbox *sandbox);
/* Of one that is SUSPENDING: nothing is left of its VM. */
void sandbox_suspend_gone(struct sandbox *sandbox);
/* It is SUSPENDING or COPYING no more, or is gone. A worker that has its files comes to its end, then
 * sandbox_settle_deleted or sandbox_settle_stopped is called if that waits for it. */
void sandbox_suspension_leave(struct sandbox *sandbox);
void sandbox_suspension_forget(struct sandbox *sandbox);

/* What its guest is saved for while it is to go on: in its owner's memory until `copied` is called, or
 * sandbox_copy_leave. */
struct sandbox_copy {
	const char *folder; /* among those of sandboxes, and no sandbox's: what is saved goes there */
	bool flat;	    /* as of sandbox_save.h */
	/* All of it is there; or, with an error (else NULL), not, and what is there is nothing. Called from
	 * within anything: it only takes note of it. */
	void (*copied)(struct sandbox_copy *copy, const struct error *error);
	uint64_t pause_us; /* that the guest did not run for it, from the request on to the reply */
	uint64_t state_bytes, memory_bytes; /* of one that is there: in the files, without holes */
};
/* Draws a name for such a folder. Not an id: no row will ever be of it. 0 or -EIO. */
int sandbox_copy_name(char name[SANDBOX_ID_MAX]);
/* READY to COPYING, and back; to PAUSED if its vmm does not let it run on. 0, or -1 with *error set: it stays
 * as it is. */
int sandbox_copy(struct sandbox *sandbox, struct sandbox_copy *copy, struct error *error);
/* `copied` will not be called. */
void sandbox_copy_leave(struct sandbox *sandbox);
/* A command has begun in the guest, or ended: what waits for that is looked at again. */
void sandbox_suspension_look(struct sandbox *sandbox);
/* Commands on their way to the guest are there, or their time is over. False: nobody waited for them. */
bool sandbox_suspension_go_on(struct sandbox *sandbox);
/* For how long its vmm may be writing a copy, of all of its disk too. */
uint64_t sandbox_copy_ms(const struct sandbox *sandbox);
/* A worker has its files. */
bool sandbox_suspension_works(const struct sandbox *sandbox);

/* --- sandbox_wake.c --- */

/* SUSPENDED to WAKING. 0, or -1 with *error set: it stays as it is. */
int sandbox_wake(struct sandbox *sandbox, struct error *error);
/* Of one that is WAKING: this will be its VM; its row says so, or, with an error (else NULL), does not; no VM
 * came of it. */
void sandbox_wake_held(struct sandbox *sandbox, struct vm *vm);
void sandbox_wake_recorded(struct sandbox *sandbox, const struct error *error);
void sandbox_wake_refused(struct sandbox *sandbox, const struct error *error);
/* Of one that is WAKING and not to be woken: nothing is left of its VM. */
void sandbox_wake_gone(struct sandbox *sandbox);
/* It has its VM: to READY, when it cannot be restored once more. 0, or -1 with sandbox->error set. */
int sandbox_woken(struct sandbox *sandbox);
/* It is WAKING no more: nothing comes of the removal's end. */
void sandbox_removal_leave(struct sandbox *sandbox);
/* The same of one that is gone. */
void sandbox_removal_forget(struct sandbox *sandbox);
/* Of one that is STOPPING and was suspended: what was saved of it goes, then it is STOPPED. */
void sandbox_drop_saved(struct sandbox *sandbox);
/* One of an earlier daemon that has no VM, by the state of its row (enum journal_sandbox_state): true: it is
 * SUSPENDED now. What is there of another is not good. */
bool sandbox_restore_suspended(struct sandbox *sandbox, int state);
/* It has a VM: what was saved of it before is not good. */
void sandbox_forget_saved(struct sandbox *sandbox);

/* --- sandbox_return.c --- */

/*
 * Its guest runs; READY when its agent takes commands. One that was taken back is sought by asking it for a
 * stream, which the first command will use. What does not come is found by SANDBOX_CLOCK_PATIENCE.
 */
void sandbox_come_up(struct sandbox *sandbox);
/* That stream is there, or is not. */
void sandbox_knocked(struct vm_request *request, int status, int fd);
/* Of struct vm_owner_events. */
void sandbox_stands(void *context, bool paused);
void sandbox_identified(void *context);

#endif
