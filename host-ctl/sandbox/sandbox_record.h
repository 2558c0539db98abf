/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's row in the journal: on the disk before its client is told of it, and as its state is; its files
 * are there before the row that it lives. Without a journal there are no sandboxes.
 *
 * What the journal could not take of a deletion, or of a wake that failed, as on a full disk, is written at
 * last (journal_again.h). A daemon that is killed before that leaves it to the next one.
 */
#ifndef HOST_CTL_SANDBOX_RECORD_H
#define HOST_CTL_SANDBOX_RECORD_H

#include "host-ctl/sandbox/sandbox.h"

/* Of the specification in a row, besides what was asked for. One of an older daemon has none. */
#define SANDBOX_RECORD_CREATED "created_ns" /* when its ttl began, CLOCK_MONOTONIC */
#define SANDBOX_RECORD_RENEWED "renewed_ms" /* the same, CLOCK_REALTIME; none: at its creation */
#define SANDBOX_RECORD_COLD "cold"	    /* true, or none */
#define SANDBOX_RECORD_MADE "made"	    /* as of sandbox_saved_describe */

/*
 * Writes that it lives. 0: sandbox_recorded will be called, unless sandbox_record_forget is before; or -1
 * with *error set: there is no journal, or no memory.
 */
int sandbox_record(struct sandbox *sandbox, struct error *error);
/* The row is on the disk; or, with an error (else NULL), it is not. For sandbox.c. */
void sandbox_recorded(struct sandbox *sandbox, const struct error *error);
/* sandbox_recorded will not be called. */
void sandbox_record_forget(struct sandbox *sandbox);

/* Writes the state that it has come to, if a later daemon has to know of it; of DELETING and STOPPING,
 * sandbox_recorded will be called if sandbox->writing is set then: of DELETING with an error each time that
 * it could not be written, and at last without one. */
void sandbox_record_state(struct sandbox *sandbox);
/* That it is suspended. 0: sandbox_recorded will be called if it is SUSPENDING or WAKING, as of a deletion if
 * the latter; or -1 with *error set: there is no journal, or no memory. */
int sandbox_record_suspended(struct sandbox *sandbox, struct error *error);
/* That its ttl began anew, of one that is READY. What cannot be written is not: for the next daemon it is
 * over.
 */
void sandbox_record_renewed(struct sandbox *sandbox);
/* It is forgotten, and so is its row. */
void sandbox_record_remove(struct sandbox *sandbox);

#endif
