/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: VMs that are warm before they are asked for, and the queue of those who ask when none is.
 *
 * It keeps `target` warm VMs and starts as many more as claims wait, within vms_max in all and starts_max at
 * a time, POOL_REFILL_DELAY_MS after the claim so that a refill does not compete with the run that made it
 * due. When starts fail it waits POOL_BACKOFF_MIN_MS, twice as long each time, at most POOL_BACKOFF_MAX_MS;
 * after POOL_FAILURES_MAX failures in a row, those who wait are refused with the cause rather than left to
 * hang.
 *
 * Its VMs are clones of its template, or are booted while it has none. When that changes, those that no run
 * has are ended at once: whoever claims from then on gets a VM of the new kind, and waits for it if need be.
 *
 * Several pools share one table of slots, and with it vms_max. Where all are taken, a claim that waits gets
 * the place of a warm VM of another pool.
 * They share the host's room (host-ctl/pool/room.h) too. Where there is none for a refill, the pool is held:
 * it looks again when a VM is gone, and every ROOM_RETRY_MS. Claims that wait still get VMs then, until there
 * is no room for these either.
 *
 * Beside its own VMs stand those that are made of what is their claimer's (pool_claim_own): from their start
 * on they are that one's, and count as busy. They come before refills, and are no concern of the pool's
 * template, target and failures.
 *
 *   claim: a warm VM at once, or queued (first come, first served), or
 *     exhausted   the queue holds queue_max claims; or, from the queue, last come first, the host has no room
 *                 for a VM
 *     not_ready   starts keep failing, or the daemon is stopping
 */
#ifndef HOST_CTL_POOL_H
#define HOST_CTL_POOL_H

#include "host-ctl/pool/room.h"
#include "host-ctl/pool/template.h"
#include "host-ctl/support/metrics.h"
#include "host-ctl/vm/vm.h"
#include <stdbool.h>

enum {
	POOL_TARGET_MAX = 256,
	POOL_STARTS_MAX = 64,
	POOL_VMS_MAX = 256,
	POOL_QUEUE_MAX = 4096, /* what --queue-max may be */
	POOL_QUEUE_DEFAULT = 64,
	POOL_REFILL_DELAY_MS = 2,
	POOL_BACKOFF_MIN_MS = 100,
	POOL_BACKOFF_MAX_MS = 30 * 1000,
	POOL_FAILURES_MAX = 3,
};

/* Which numbers living VMs have. */
struct pool_slots {
	bool used[POOL_VMS_MAX];
	unsigned int count, maximum;
	struct pool *pools;	/* that share them */
	struct pool *destroyed; /* their memory is freed in the loop's next turn */
};

struct pool_config {
	unsigned int target, starts_max, queue_max;
	struct pool_slots *slots; /* outlives the pool, as does */
	struct room *room;
	const struct vm_config *vm;
	const struct vm_source *cold; /* without a template; NULL: it is not started before it has one */
};

/* What a VM of a claimer's own is made of: it goes with the last reference, when that VM is gone too. */
struct pool_source {
	struct vm_source source;
	unsigned int references;
	void (*destroy)(struct pool_source *source);
};

/* One claim that waits; part of its owner's memory, which stays until granted, refused or cancelled. */
struct pool_claim {
	struct pool_claim *next, *previous;
	struct pool_queue *queue;   /* NULL: it is in none */
	struct pool_source *source; /* of pool_claim_own, a reference; else NULL */
	struct vm *vm;		    /* that starts for it alone; NULL: none */
	/* Exactly one is called for a queued claim, once. granted: the VM is WARM and the owner takes it. */
	void (*granted)(struct pool_claim *claim, struct vm *vm);
	void (*refused)(struct pool_claim *claim, const struct error *error);
	/* Before these, of a source that is held: vm_let_run is the owner's. Else NULL. */
	void (*held)(struct pool_claim *claim, struct vm *vm);
};

struct pool;

/*
 * full(context) is called once, when the pool first holds its target of warm VMs (for a target of 0: from the
 * loop's first turn). emptied is called when a stopping pool has no VM left. metrics: the pool's own, which
 * outlive it. NULL without memory.
 */
struct pool *pool_create(const struct pool_config *config, struct metrics_pool *metrics,
	void (*full)(void *context), void (*emptied)(void *context), void *context);
/* Takes NULL. Only a pool that is empty. Its memory goes in the loop's next turn, or with pool_slots_finish.
 */
void pool_destroy(struct pool *pool);
/* Frees the destroyed pools, after the loop. */
void pool_slots_finish(struct pool_slots *slots);

/* Starts filling; claims that came before have waited. 0 or -errno. */
int pool_start(struct pool *pool);
/* What every VM that is handed out from now on is cloned from. */
void pool_set_template(struct pool *pool, struct template *template);
bool pool_has_template(const struct pool *pool);
/* Of a pool that is not started, for want of its template: the claims that wait are refused with the error.
 */
void pool_fail(struct pool *pool, const struct error *error);
void pool_set_target(struct pool *pool, unsigned int target);
unsigned int pool_target(const struct pool *pool);
/* No VM is started any more, every waiting claim is refused, every VM is ended; then emptied is called. */
void pool_stop(struct pool *pool);
/* It has no VM. */
bool pool_is_empty(const struct pool *pool);
/* Claims wait. */
bool pool_is_queued(const struct pool *pool);

/* A warm VM, which the caller takes; or NULL: with error->kind ERROR_NONE the claim is queued, otherwise it
 * is refused and the error says why. */
struct vm *pool_claim_vm(struct pool *pool, struct pool_claim *claim, struct error *error);
/* To be called when a VM that pool_claim_vm returned is at work: its successor is started some time later. */
void pool_refill(struct pool *pool);

/*
 * Takes a VM of an earlier daemon into its slot, as one that is in use; seat: its number in standby, or -1.
 * 0 or -errno with *error set, -EEXIST: slot or seat is another's; else as of vm_take_back.
 */
int pool_take_back(struct pool *pool, struct vm_found *found, int seat, struct vm **vm, struct error *error);
/* Leaves the queue, and a VM that starts for it alone is ended; harmless when not queued. */
void pool_cancel(struct pool *pool, struct pool_claim *claim);

/*
 * Asks for a VM that is made of this source (a reference is taken), for this claim alone, started in the
 * loop's next turn when there is a place: if need be, that of a warm VM. 0: the claim waits, at last to be
 * granted, or refused: exhausted, the host has no room; guest_lost, with how its VM ended; or as of vm_start.
 * -1 with *error set: exhausted, there is no place, and queue_max such claims wait; not_ready, the daemon is
 * stopping.
 */
int pool_claim_own(
	struct pool *pool, struct pool_claim *claim, struct pool_source *source, struct error *error);
/* How many such claims would get a place at once, or that of a warm VM; and how many places there are. */
unsigned int pool_open_places(const struct pool *pool);
unsigned int pool_places_max(const struct pool *pool);
struct pool_source *pool_source_take(struct pool_source *source);
/* Takes NULL. */
void pool_source_drop(struct pool_source *source);

/* Its VMs have a disk of their own; false also while that is not known. */
bool pool_has_disks(const struct pool *pool);

/* How many of its VMs an earlier daemon started. */
unsigned int pool_count_found(const struct pool *pool);
/* How many are somebody's who keeps them: sandboxes'. */
unsigned int pool_count_owned(const struct pool *pool);
struct metrics_pool *pool_metrics(const struct pool *pool);
void pool_read_gauges(const struct pool *pool, struct metrics_gauges *gauges);
/* The body of GET /v1/pool, the caller's reference. NULL without memory. */
json_t *pool_to_json(const struct pool *pool);
/* NULL: healthy. Otherwise why not, valid until the pool's next turn. */
const char *pool_ill_reason(const struct pool *pool);

#endif
