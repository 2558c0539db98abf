/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups of sessions (version 2): <root>/tinderbox/<n>, made before they are needed and used again.
 *
 *   ready ──take──→ taken ──release, empty──────────────────→ ready
 *                     └────release, processes or groups left──→ spent ──sweep, once empty──→ removed
 *
 * A session's leader is born in its group (CLONE_INTO_CGROUP), which costs a sixth of moving it there. A
 * group that was killed, or in which something is left, is never used again: some kernels (6.1.129 to
 * about 6.1.140, 6.18) kill whatever is cloned into a group that was ever killed. Nobody waits for its end:
 * cgroup_set_sweep, called when children have been reaped, removes it.
 *
 * Where there is no writable cgroup2, the set stays closed (cgroup_set_available is false): sessions then end
 * by a kill of their process group, and a limit cannot be had. A root command can change its own group by
 * hand, or leave it: for such a one the guarantee is the host's end of the VM.
 */
#ifndef GUEST_INIT_CGROUP_H
#define GUEST_INIT_CGROUP_H

#include "common/proto_guest.h"
#include "guest-init/warnings.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	CGROUP_GROUPS_MAX = 2 * AGENT_SESSIONS_MAX, /* ended sessions may leave processes behind */
	CGROUP_GROUPS_READY = 1,		    /* made before a session needs one */
	CGROUP_DEPTH_MAX = 16,			    /* of groups that a command left below its own */
	CGROUP_SWEEP_MAX = 64,			    /* of these, that one sweep looks at */
};

struct cgroup {
	int fd; /* the folder; -1: not made yet */
	bool taken, spent;
	bool memory_limited, pids_limited;
	uint64_t oom_kills; /* of memory.events when it became ready */
};

struct cgroup_set {
	int fd; /* <root>/tinderbox; -1: closed */
	bool has_memory, has_pids;
	struct cgroup groups[CGROUP_GROUPS_MAX];
};

/*
 * Opens a set below root, a folder of a mounted cgroup2 or NULL for none, and enables its controllers.
 * Whatever is missing goes to warnings. Always leaves a set that the other functions take. The set stays at
 * its address.
 */
void cgroup_set_init(struct cgroup_set *set, const char *root, struct warnings *warnings);
/* Closes the folders and removes those that are empty. */
void cgroup_set_finish(struct cgroup_set *set);

bool cgroup_set_available(const struct cgroup_set *set);

/*
 * A group without processes, with these limits (0: none). *group is NULL when the set is closed. 0, -EBUSY
 * (all are in use or not yet empty), -EOPNOTSUPP (a limit without its controller), or -errno of the kernel.
 */
int cgroup_take(struct cgroup_set *set, uint64_t memory_max, uint32_t pids_max, struct cgroup **group);
/* Lets go of it, and kills what is left in it unless it is to be kept. Takes NULL. */
void cgroup_release(struct cgroup_set *set, struct cgroup *group, bool keep);
/*
 * Removes spent groups that are empty by now, and makes ready ones. Not on the way to a command. A command
 * can leave groups below its own without number: CGROUP_SWEEP_MAX of them are looked at. True when these were
 * not all and some of them are gone, so that another sweep gets further. When none could be removed,
 * processes are in them, and the end of one is the time to try again.
 */
bool cgroup_set_sweep(struct cgroup_set *set);

/* SIGKILL to all in it and below, however many they are or become. Takes NULL. 0 or -errno. */
int cgroup_kill(struct cgroup *group);

/* All processes of all groups stand, the taken and the spent, and those that are made; or go on. Nothing may
 * be started meanwhile: it would stand before its exec, and whoever waits for that, too. A kill comes
 * through. 0, also when the set is closed, or -errno. */
int cgroup_set_freeze(const struct cgroup_set *set, bool freeze);

/* True when the kernel's OOM killer has ended a process of it since it was taken. Takes NULL. */
bool cgroup_had_oom(const struct cgroup *group);

#endif
