/* SPDX-License-Identifier: Apache-2.0 */
/* A pool from within; for pool*.c alone. */
#ifndef HOST_CTL_POOL_PRIVATE_H
#define HOST_CTL_POOL_PRIVATE_H

#include "host-ctl/pool/pool.h"

struct pool {
	struct pool *next; /* of those that share the slots, or were destroyed */
	struct pool_config config;
	struct metrics_pool *metrics;
	struct template *template; /* NULL: none */
	struct vm *slots[POOL_VMS_MAX];
	struct template *templates[POOL_VMS_MAX]; /* of the VM in the slot, a reference; NULL: booted */
	uint64_t promised[POOL_VMS_MAX];	  /* of the host's memory, by the VM in the slot */
	struct pool_claim *first, *last;
	unsigned int queued;
	struct loop_source *timer; /* a refill, now or after the back-off */
	unsigned int failures;	   /* in a row */
	uint64_t retry_ns;	   /* no start before */
	char last_failure[VM_CAUSE_MAX];
	char held[ERROR_MESSAGE_MAX]; /* why no refill is started; empty: it may be */
	bool started, stopping, destroyed, was_full;
	void (*full)(void *context);
	void (*emptied)(void *context);
	void *context;
};

/* A refill after so long, unless the pool stands still. */
void pool_schedule(struct pool *pool, uint64_t milliseconds);

/* --- pool_slots.c: the slots that pools share --- */

/* From when a pool is made until it is destroyed. */
void pool_join_slots(struct pool *pool);
void pool_quit_slots(struct pool *pool);
/* How many slots this pool may take now: those that are free, less what claims of other pools wait for when
 * none waits here. */
unsigned int pool_free_slots(const struct pool *pool);
/* Of a pool that wants a slot and has none: when a claim waits here, ends a warm VM of the pool that has the
 * most of them and no claim, one at a time, so that a slot comes free. */
void pool_make_way(struct pool *pool);
/* A slot came free: the other pools look whether they want it. */
void pool_pass_on(const struct pool *pool);

#endif
