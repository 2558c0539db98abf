/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which state folder the VMs of a runtime folder belong to: RUNTIME-DIR/state-dir holds its path, for as long
 * as there may be some. Only the journal there tells which of them are sandboxes', so that a daemon with
 * another one, mistyped, would remove them all.
 */
#ifndef HOST_CTL_STATE_CLAIM_H
#define HOST_CTL_STATE_CLAIM_H

#include "host-ctl/support/error.h"

/*
 * Whether `left` VMs, which are there, are of this state folder. 0, also when it is not known or the other
 * folder is gone; or -EBUSY with *error set, which names the other folder, and how to end the VMs in
 * cgroup_root.
 */
int state_claim_check(const char *runtime_directory, const char *state_directory, int left,
	const char *cgroup_root, struct error *error);
/* The state folder is there. Whole or not at all. 0, or -errno with *error set. */
int state_claim_write(const char *runtime_directory, const char *state_directory, struct error *error);
void state_claim_remove(const char *runtime_directory);

#endif
