/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMs that are made of what is their claimer's: a disk that is kept, a guest that was saved.
 *
 * Invariants: a claim that waits is in pool->own, or has a VM in a slot, which names it back, until that is
 * warm or has ended. Its source stays as long as either needs it.
 */
#include "host-ctl/pool/pool_private.h"

struct pool_source *pool_source_take(struct pool_source *source)
{
	source->references++;
	return source;
}

void pool_source_drop(struct pool_source *source)
{
	if (source && !--source->references)
		source->destroy(source);
}

/* The claim waits no more, and its VM, if there is one, is nobody's. */
static void end_claim(struct pool *pool, struct pool_claim *claim)
{
	if (claim->vm)
		pool->claims[claim->vm->slot] = NULL;
	claim->vm = NULL;
	pool_cancel(pool, claim);
}

static void refuse(struct pool *pool, struct pool_claim *claim, const struct error *error)
{
	end_claim(pool, claim);
	claim->refused(claim, error);
}

unsigned int pool_own_starting(const struct pool *pool)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		count += pool->claims[i] != NULL;
	return count;
}

bool pool_start_own(struct pool *pool)
{
	struct pool_claim *claim = pool->own.first;
	struct error error;

	if (!claim || pool_own_starting(pool) >= pool->config.starts_max)
		return false;
	if (!pool_places(pool->config.slots)) {
		pool_make_way(pool);
		return false;
	}
	pool_leave_queue(claim);
	if (room_check(pool->config.room, &claim->source->source, true, &error) ||
		pool_start_vm(pool, &claim->source->source, claim, &error))
		refuse(pool, claim, &error);
	return pool->own.first != NULL;
}

void pool_own_held(struct pool *pool, struct vm *vm)
{
	struct pool_claim *claim = pool->claims[vm->slot];

	if (claim)
		claim->held(claim, vm);
	else
		vm_retire(vm, "nobody waits for it");
}

void pool_own_warm(struct pool *pool, struct vm *vm)
{
	struct pool_claim *claim = pool->claims[vm->slot];

	pool_settle(pool, vm->slot);
	pool_schedule(pool, 0);
	if (!claim) {
		vm_retire(vm, "nobody waits for it");
		return;
	}
	end_claim(pool, claim);
	claim->granted(claim, vm);
}

void pool_own_ended(struct pool *pool, const struct vm *vm)
{
	struct pool_claim *claim = pool->claims[vm->slot];
	struct error error;

	pool_schedule(pool, 0);
	if (!claim)
		return;
	error_set(&error, ERROR_GUEST_LOST, "its VM ended: %s", vm_cause(vm));
	refuse(pool, claim, &error);
}

void pool_refuse_own(struct pool *pool, const struct error *error)
{
	while (pool->own.first)
		refuse(pool, pool->own.first, error);
	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		if (pool->claims[i])
			refuse(pool, pool->claims[i], error);
}

int pool_claim_own(
	struct pool *pool, struct pool_claim *claim, struct pool_source *source, struct error *error)
{
	error->kind = ERROR_NONE;
	if (pool->stopping)
		return error_set(error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	if (pool->own.count >= pool->config.queue_max + pool_places(pool->config.slots))
		return error_set(error, ERROR_EXHAUSTED,
			"no place for its VM, and %u wait for one already (--queue-max): try again later, or "
			"raise --max-vms",
			pool->own.count);
	claim->source = pool_source_take(source);
	claim->vm = NULL;
	pool_enqueue(&pool->own, claim);
	pool_schedule(pool, 0);
	return 0;
}
