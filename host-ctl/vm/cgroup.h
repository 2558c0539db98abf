/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroups of the VMs: one folder of cgroup v2 that is the daemon's own, one child in it a VM.
 * A VM's process is born in its child (clone3 with CLONE_INTO_CGROUP), so nothing of it is ever outside.
 */
#ifndef HOST_CTL_CGROUP_H
#define HOST_CTL_CGROUP_H

#include "host-ctl/support/error.h"
#include <stdbool.h>
#include <stdint.h>

#define CGROUP_ROOT_DEFAULT "/sys/fs/cgroup/tinderbox"

enum {
	CGROUP_SWEEP_MS = 10 * 1000, /* how long leftovers may take to die at the start */
	CGROUP_CPU_PERIOD_US = 100 * 1000,
};

struct cgroup_tree {
	int fd;	     /* the folder, locked while the daemon lives */
	bool limits; /* cpu, memory and pids are enforced */
};

struct cgroup_limits {
	uint64_t memory_bytes;
	uint64_t cpu_quota_us; /* of CGROUP_CPU_PERIOD_US */
	uint64_t pids;
};

/*
 * Whether cgroup_tree_open has a chance there, with nothing made or changed: it is on cgroup v2, which has
 * the three controllers or need not. 0, or -errno with *error set as there.
 */
int cgroup_tree_check(const char *path, bool limits_required, struct error *error);
/*
 * Opens (makes) the folder, takes its lock, and turns on the controllers for its children. With
 * limits_required false a kernel that does not offer all three is accepted and no limit is set: for test
 * hosts; the caller logs it. On failure -errno with *error a sentence that says how to mend it; -EBUSY: the
 * folder is another daemon's.
 */
int cgroup_tree_open(struct cgroup_tree *tree, const char *path, bool limits_required, struct error *error);
/* Gives up the lock. The folder stays. */
void cgroup_tree_close(struct cgroup_tree *tree);

/*
 * Ends and removes every child that `keep` does not want, those that a killed daemon left; keep NULL: every
 * one. Blocks, at most CGROUP_SWEEP_MS for each child; only for the start of the daemon. The number removed,
 * or -errno with *error set.
 */
typedef bool cgroup_keep_fn(const void *context, const char *name);
int cgroup_tree_sweep(
	struct cgroup_tree *tree, cgroup_keep_fn *keep, const void *context, struct error *error);
/* Children in which a process lives. The number, or -errno with *error set. */
int cgroup_tree_count(const struct cgroup_tree *tree, struct error *error);
/* The same as cgroup_tree_sweep of one, if it is there. 0 or -errno. */
int cgroup_end(struct cgroup_tree *tree, const char *name);
/* The folder of a child that is there: the caller's, CLOEXEC; or -errno. */
int cgroup_open(const struct cgroup_tree *tree, const char *name);

/* Makes a child with limits set. Its folder's fd (the caller's, CLOEXEC), or -errno; nothing stays then. */
int cgroup_create(struct cgroup_tree *tree, const char *name, const struct cgroup_limits *limits);
/* Other limits for a child. 0 or -errno. */
int cgroup_set_limits(const struct cgroup_tree *tree, int group, const struct cgroup_limits *limits);
/* What memory it is limited to; 0: to none. 0 or -errno. */
int cgroup_memory(const struct cgroup_tree *tree, int group, uint64_t *bytes);
/* What memory it has now that it cannot be without, page cache that is not on the disk yet included; 0 where
 * nothing is limited. 0 or -errno. */
int cgroup_memory_held(const struct cgroup_tree *tree, int group, uint64_t *bytes);
/* Another limit of memory alone. 0 or -errno. */
int cgroup_set_memory(const struct cgroup_tree *tree, int group, uint64_t bytes);
/* Its share of the CPUs against its siblings, when the host is busy: 1 to 10000. 0 or -errno. */
int cgroup_set_weight(const struct cgroup_tree *tree, int group, unsigned int weight);
/* SIGKILL to all in it. 0 or -errno. */
int cgroup_kill(int group);
/* Removes an empty child. 0, -EBUSY (something still dies in it), or -errno. */
int cgroup_remove(struct cgroup_tree *tree, const char *name);
/* An fd on its cgroup.events; EPOLLPRI tells a change. The caller's, or -errno. */
int cgroup_open_events(int group);
/* Did the kernel's OOM killer end something in it? False when that cannot be read. */
bool cgroup_had_oom_kill(int group);

#endif
