/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an earlier daemon left, at the start of the next: sandboxes whose VMs are still there are taken back,
 * with all that runs in them, and its commands are known again (command.h); the others have failed or, those
 * that have their files on a disk, are stopped, and say so. Whatever else is there, VMs of a pool among it,
 * is removed by the sweeps, which recovery_keeps is given to.
 *
 *   recovery_read ──▶ sweeps ──▶ the daemon's parts ──▶ recovery_apply ──▶ the loop
 */
#ifndef HOST_CTL_RECOVERY_H
#define HOST_CTL_RECOVERY_H

#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/journal/journal_sandboxes.h"
#include "host-ctl/sandbox/sandboxes.h"

struct recovery {
	struct journal_sandbox rows[SANDBOXES_MAX];
	bool lives[SANDBOXES_MAX];
	unsigned int count;
	struct journal_command *commands;
	int command_count;
};

/* 0 or -errno with *error set. To be finished in every case. */
int recovery_read(struct recovery *recovery, struct journal *journal, struct error *error);
/*
 * Whether the processes of all that it read are in this cgroup root, or gone. 0; or -EBUSY with *error set,
 * which names the sandbox and where it is: one that is elsewhere could not be ended, and keeps its uid.
 */
int recovery_check(const struct recovery *recovery, const struct cgroup_tree *cgroups,
	const char *cgroup_root, struct error *error);
/* Takes one that was never read. */
void recovery_finish(struct recovery *recovery);
/* context: a struct recovery. name: of a VM. */
bool recovery_keeps(const void *context, const char *name);
/* Removes the files of sandboxes that no row tells of, or that are being deleted. Only with a journal. */
void recovery_sweep_files(const struct recovery *recovery, const char *state_directory);
/* The VM is, or was, a sandbox's. */
bool recovery_knows(const struct recovery *recovery, const char *name);
/* They stay in the slots of their templates' pools. */
void recovery_apply(struct recovery *recovery, struct sandboxes *sandboxes, struct templates *templates,
	struct cgroup_tree *cgroups);

#endif
