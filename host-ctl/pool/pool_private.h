/* SPDX-License-Identifier: Apache-2.0 */
/* A pool from within; for pool*.c alone. */
#ifndef HOST_CTL_POOL_PRIVATE_H
#define HOST_CTL_POOL_PRIVATE_H

#include "host-ctl/pool/pool.h"

/* First come, first served. */
struct pool_queue {
	struct pool_claim *first, *last;
	unsigned int count;
};

struct pool {
	struct pool *next; /* of those that share the slots, or were destroyed */
	struct pool_config config;
	struct metrics_pool *metrics;
	struct template *template; /* NULL: none */
	struct vm *slots[POOL_VMS_MAX];
	struct template *templates[POOL_VMS_MAX];  /* of the VM in the slot, a reference; NULL: booted */
	struct pool_source *sources[POOL_VMS_MAX]; /* of the VM in the slot, if that is a claimer's own, a
						      reference... */
	struct pool_claim *claims[POOL_VMS_MAX];   /* ...and, until it is warm, whose; else NULL */
	uint64_t promised[POOL_VMS_MAX];	   /* of the host's memory, by the VM in the slot */
	struct pool_queue queue;		   /* for VMs of the pool's */
	struct pool_queue own;			   /* for those of a claimer's own that have no place yet */
	struct loop_source *timer;		   /* a refill, now or after the back-off */
	unsigned int failures;			   /* in a row */
	uint64_t retry_ns;			   /* no start before */
	char last_failure[VM_CAUSE_MAX];
	char held[ERROR_MESSAGE_MAX]; /* why no refill is started; empty: it may be */
	bool started, stopping, destroyed, was_full;
	void (*full)(void *context);
	void (*emptied)(void *context);
	void *context;
};

/* A refill after so long, unless the pool stands still. */
void pool_schedule(struct pool *pool, uint64_t milliseconds);

/* Starts a VM of that source in a free slot, for `own` alone or, NULL, for the pool. 0 or -errno with *error
 * set: there is none. */
int pool_start_vm(
	struct pool *pool, const struct vm_source *source, struct pool_claim *own, struct error *error);
/* What it is to touch, the VM in the slot has touched; or it will not. */
void pool_settle(struct pool *pool, unsigned int slot);

/* --- pool_queue.c --- */

void pool_enqueue(struct pool_queue *queue, struct pool_claim *claim);
/* Takes one that is in none. */
void pool_leave_queue(struct pool_claim *claim);
/* Those that wait for VMs of the pool's: all, the first first; or so many, the last first. One that claims
 * again when it is told is not among them. */
void pool_refuse_all(struct pool *pool, const struct error *error);
void pool_refuse_last(struct pool *pool, unsigned int count, const struct error *error);

/* --- pool_own.c: VMs that are made of what is their claimer's --- */

/* Starts the next one, if its place is there; true: look again in the loop's next turn. */
bool pool_start_own(struct pool *pool);
/* How many of them start. */
unsigned int pool_own_starting(const struct pool *pool);
/* The VM in a slot is a claimer's own, and is held, warm, or has ended before that. */
void pool_own_held(struct pool *pool, struct vm *vm);
void pool_own_warm(struct pool *pool, struct vm *vm);
void pool_own_ended(struct pool *pool, const struct vm *vm);
/* All that wait, and all whose VM starts. */
void pool_refuse_own(struct pool *pool, const struct error *error);

/* --- pool_slots.c: the slots that pools share --- */

/* From when a pool is made until it is destroyed. */
void pool_join_slots(struct pool *pool);
void pool_quit_slots(struct pool *pool);
/* How many VMs more there may be. 0, too, while there are more than that: a daemon with a smaller --max-vms
 * takes back all that the one before it left. */
unsigned int pool_places(const struct pool_slots *slots);
/* A warm VM of the pool's, or NULL. */
struct vm *pool_find_warm(const struct pool *pool);
/* How many slots this pool may take now: those that are free, less what claims of other pools wait for when
 * none waits here. */
unsigned int pool_free_slots(const struct pool *pool);
/* Of a pool that wants a slot and has none: when a claim waits here, ends a warm VM of the pool that has the
 * most of them and no claim, one at a time, so that a slot comes free. */
void pool_make_way(struct pool *pool);
/* A slot came free: the other pools look whether they want it. */
void pool_pass_on(const struct pool *pool);

#endif
