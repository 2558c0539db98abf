/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's row in the journal: on the disk before its client is told of it, and as its state is. Without a
 * journal there are no sandboxes.
 */
#ifndef HOST_CTL_SANDBOX_RECORD_H
#define HOST_CTL_SANDBOX_RECORD_H

#include "host-ctl/sandbox.h"

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
/* It is forgotten, and so is its row. */
void sandbox_record_remove(struct sandbox *sandbox);

#endif
