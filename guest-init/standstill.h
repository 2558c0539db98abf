/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the clone of a guest that was saved at work, what ran there stands until the clone has its identity:
 * else it would draw the very random numbers that the guest draws which goes on.
 *
 *   OFF ──HELD was sent──→ READY ──our stream to the host ends──→ STANDS ──IDENTITY, STANDSTILL_MAX_MS──→ OFF
 *                            └──STANDSTILL_READY_MS are over: OFF
 *
 * That stream's end is the first that a clone sees of its beginning: what runs before this process is woken
 * for it does run, less than a millisecond as a rule. In the guest that goes on the stream goes on, too,
 * unless its host ends just then; then its commands stand STANDSTILL_MAX_MS at most. What a root command has
 * moved out of its cgroup does not stand, and without cgroups nothing does.
 */
#ifndef GUEST_INIT_STANDSTILL_H
#define GUEST_INIT_STANDSTILL_H

#include "common/loop.h"
#include "guest-init/cgroup.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	STANDSTILL_READY_MS = 10000, /* of the guest's time, from HELD to the save */
	STANDSTILL_MAX_MS = 10000,   /* a busy host may need seconds for the identities of many */
};

struct standstill {
	struct loop *loop;
	struct cgroup_set *groups;
	struct loop_source *timer; /* made when first needed */
	uint64_t ready_until_ns;   /* 0: OFF, or STANDS */
	bool stands;
	bool fails; /* to be let go, which was said */
};

/* OFF. loop and groups: the caller's, and outlive it. */
void standstill_init(struct standstill *still, struct loop *loop, struct cgroup_set *groups);
/* Lets all go. Takes one that is all zeros. */
void standstill_finish(struct standstill *still);

/* HELD is sent. Without a timer, which is logged, nothing will stand. */
void standstill_expect(struct standstill *still);
/* Our stream has ended. */
void standstill_begin(struct standstill *still);
/* The identity is there. 0 or -errno: it stands on, and is tried again; nothing may be started. */
int standstill_end(struct standstill *still);

#endif
