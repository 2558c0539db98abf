/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the host has room for one more VM: memory and fds.
 *
 * Memory that can be had is the least of MemAvailable and, for each cgroup around the VMs and around the
 * daemon that has a limit, that limit less its use (page cache counts as free). From it is taken what VMs
 * under way are still expected to touch: each promises, from its start until it is warm or has ended, the
 * working figure of its kind, for what they have touched by then is no longer available anyway.
 *
 *   a clone: 1/ROOM_CLONE_SHARE of its guest's memory, at least ROOM_CLONE_MIN
 *   a boot:  1/ROOM_BOOT_SHARE of it, at least ROOM_BOOT_MIN
 *
 * and of one that is restored with pages of its own all of these, for they are read.
 *
 * That is what a parked VM keeps for itself and what a usual command adds, not all of the guest's memory:
 * most of a clone's stays shared.
 *
 * A refill is started when `reserve` is left after it, a VM that a client waits for when half of that is. So
 * refills stop first, and a miss is served as long as there is room. What warm and busy VMs may come to touch
 * beyond that is not kept for them: the limit of each VM's own cgroup bounds it, and the reserve is there for
 * it.
 *
 * A loaded template's memory, and what processes in standby have touched (host-ctl/vm/standby.h: some hundred
 * KiB each, at most STANDBY_MAX), is in use already and so not available; nothing is promised for the latter:
 * the clone that takes one promises its figure then.
 *
 * An fd is free when RLIMIT_NOFILE allows one more. The fds that are open are counted only where that limit
 * is low enough for the daemon's bounds to reach it.
 */
#ifndef HOST_CTL_ROOM_H
#define HOST_CTL_ROOM_H

#include "host-ctl/support/error.h"
#include "host-ctl/vm/vm.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	ROOM_CLONE_SHARE = 16,
	ROOM_CLONE_MIN = 16 * 1024 * 1024,
	ROOM_BOOT_SHARE = 4,
	ROOM_BOOT_MIN = 32 * 1024 * 1024,
	ROOM_RESERVE_DEFAULT = 128 * 1024 * 1024,
	ROOM_VM_FDS = 16,      /* of the daemon for one VM, those of its start included */
	ROOM_REFILL_FDS = 128, /* left free by a refill */
	ROOM_MISS_FDS = 32,    /* and by a VM that a client waits for */
	ROOM_OTHER_FDS = 1024, /* that the daemon may have open besides those of its VMs */
	ROOM_CGROUP_LEVELS_MAX = 16,
	ROOM_RETRY_MS = 500, /* a pool that is short of VMs looks again */
};
#define ROOM_MEMINFO "/proc/meminfo"

/* Outlives the pools that ask it. */
struct room {
	const char *meminfo;	/* ROOM_MEMINFO */
	int groups[2];		/* folders of cgroup v2 that the VMs, and the daemon, are in; -1: none */
	uint64_t reserve_bytes; /* 0: nothing is looked at, there is always room */
	uint64_t promised_bytes;
	unsigned int vms; /* that live */
};

/* vm_groups: the folder of the VMs' cgroups, the caller's; -1: none. */
void room_init(struct room *room, int vm_groups, uint64_t reserve_bytes);
/* Closes what init opened. Takes one that is all zero. */
void room_finish(struct room *room);

/* What a VM of this source is expected to touch before it is warm and in a usual run. */
uint64_t room_expected_bytes(const struct vm_source *source);

/*
 * 0: there is room for one more, awaited by a client or not. -1: not, and *error is ERROR_EXHAUSTED with the
 * figures and the mend. What cannot be read is no limit.
 */
int room_check(const struct room *room, const struct vm_source *source, bool awaited, struct error *error);

/* The same for a template that is to be loaded, which a client waits for: these bytes of it stay in memory.
 */
int room_check_bytes(const struct room *room, const char *name, uint64_t bytes, struct error *error);
/* All the memory that the host has; UINT64_MAX: it cannot be told. */
uint64_t room_host_bytes(void);

/* A VM was started: its figure counts until it is settled; its fds until it has left. */
void room_enter(struct room *room, uint64_t bytes);
void room_settle(struct room *room, uint64_t bytes);
void room_leave(struct room *room);

/* Memory that can be had now, promises not taken off. UINT64_MAX: it cannot be told. */
uint64_t room_available_bytes(const struct room *room);

#endif
