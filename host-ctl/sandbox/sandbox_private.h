/* SPDX-License-Identifier: Apache-2.0 */
/* Between sandbox.c, sandbox_clocks.c, sandbox_delete.c, sandbox_power.c and sandbox_return.c. */
#ifndef HOST_CTL_SANDBOX_PRIVATE_H
#define HOST_CTL_SANDBOX_PRIVATE_H

#include "host-ctl/sandbox/sandbox.h"

/* The one place where its state changes. reason: of failed, stopping, stopped, deleting and gone; NULL: what
 * was said before holds. */
void sandbox_move(struct sandbox *sandbox, enum sandbox_state next, const char *reason);
/* Claims a VM of that template: 0 with *vm, which sandbox_own is for, or NULL: it comes later; or -1 with
 * *error set, as of templates_pool and pool_claim_vm. */
int sandbox_claim(struct sandbox *sandbox, const char *template, struct vm **vm, struct error *error);
/* Of one that is CREATING or STARTING: this is its VM. */
void sandbox_own(struct sandbox *sandbox, struct vm *vm);

/* One of its clocks has come. It may be gone after the call. */
void sandbox_time_is_up(struct sandbox *sandbox, enum sandbox_clock clock);

/* --- sandbox_clocks.c --- */

/* From now on; 0 milliseconds: never. */
void sandbox_set_clock(struct sandbox *sandbox, enum sandbox_clock clock, uint64_t milliseconds);

/* --- sandbox_delete.c --- */

/* To DELETING; GONE when nothing is left of its VM. Before that is told, the journal knows. */
void sandbox_delete(struct sandbox *sandbox, const char *reason);
/* Of one that is DELETING: the journal knows, or, with an error (else NULL), does not: its VM is not kept for
 * that. */
void sandbox_deletion_recorded(struct sandbox *sandbox, const struct error *error);
/* No VM is left of one that was deleted. */
void sandbox_settle_deleted(struct sandbox *sandbox);

/* --- sandbox_power.c --- */

/* Gives the disk of its VM, if that has a new one, names: what its guest writes is kept from now on. 0, or -1
 * with sandbox->error set: exhausted, the host's disk has no room, or as of sandbox_files_keep. */
int sandbox_keep_files(struct sandbox *sandbox);
/* Its VM is gone, and so are these; sandbox->removed tells which. */
void sandbox_remove_files(struct sandbox *sandbox);
/* Its VM has ended, by itself or by us: to FAILED or, with files, by STOPPING to STOPPED. */
void sandbox_lose(struct sandbox *sandbox, const char *reason);

/* READY, PAUSED or STARTING, with its VM, to STOPPING; STOPPED when nothing is left of that. Before the VM is
 * told, the journal knows. */
void sandbox_stop(struct sandbox *sandbox, const char *reason);
/* Of one that is STOPPING: the journal knows, or, with an error (else NULL), does not: then it is as it was.
 */
void sandbox_stop_recorded(struct sandbox *sandbox, const struct error *error);
/* STOPPED to STARTING. 0, or -1 with *error set, as of sandbox_claim: it stays as it is. */
int sandbox_start(struct sandbox *sandbox, struct error *error);

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
