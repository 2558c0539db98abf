/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which state folder the VMs of a runtime folder belong to: RUNTIME-DIR/state-dir holds its path, for as long
 * as there may be some, or "none" when none of them is a sandbox's. Only the journal there tells which of
 * them are, so that a daemon with another one, mistyped, would remove them all; so would one with another
 * runtime folder.
 */
#ifndef HOST_CTL_STATE_CLAIM_H
#define HOST_CTL_STATE_CLAIM_H

#include "host-ctl/support/error.h"

/*
 * Whether `left` VMs, which are there, are of this state folder. 1: they are; 0: there are none, none is a
 * sandbox's, or the other folder is gone; or -EBUSY with *error set, which names the other folder, or says
 * that the runtime folder does not know, and how to end the VMs in cgroup_root.
 */
int state_claim_check(const char *runtime_directory, const char *state_directory, int left,
	const char *cgroup_root, struct error *error);
/* Adds to the message how the VMs in cgroup_root are ended; without the command if that finds no room whole.
 */
void state_claim_add_end(struct error *error, const char *cgroup_root);
/* The state folder is there; NULL: no VM will be a sandbox's. Whole or not at all. 0, or -errno with *error
 * set. */
int state_claim_write(const char *runtime_directory, const char *state_directory, struct error *error);
void state_claim_remove(const char *runtime_directory);

#endif
