/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's row in the journal: on the disk before its client is told of it, and as its state is. Without a
 * journal there are no sandboxes.
 */
#ifndef HOST_CTL_SANDBOX_RECORD_H
#define HOST_CTL_SANDBOX_RECORD_H

#include "host-ctl/sandbox/sandbox.h"

/* Of the specification in a row, besides what was asked for: created_ns. One of an older daemon has none. */
#define SANDBOX_RECORD_CREATED "created_ns"

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
 * sandbox_recorded will be called if sandbox->writing is set then. */
void sandbox_record_state(struct sandbox *sandbox);
/* It is forgotten, and so is its row. One that the journal could not be rid of, as on a full disk, is taken
 * out when something is written again; a daemon that is killed before that leaves it to the next one. */
void sandbox_record_remove(struct sandbox *sandbox);
/* The end of the daemon: what could not be taken out stays. */
void sandbox_records_finish(struct sandboxes *all);

#endif
