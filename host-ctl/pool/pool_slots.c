/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/pool_private.h"

void pool_join_slots(struct pool *pool)
{
	pool->next = pool->config.slots->pools;
	pool->config.slots->pools = pool;
}

void pool_quit_slots(struct pool *pool)
{
	struct pool **link = &pool->config.slots->pools;

	while (*link != pool)
		link = &(*link)->next;
	*link = pool->next;
}

/* Claims for which no VM starts yet. */
static unsigned int count_unserved(const struct pool *pool)
{
	struct metrics_gauges now;

	pool_read_gauges(pool, &now);
	return now.queued > now.starting ? now.queued - now.starting : 0;
}

unsigned int pool_free_slots(const struct pool *pool)
{
	const struct pool_slots *slots = pool->config.slots;
	unsigned int free = slots->maximum - slots->count, kept = 0;

	if (pool->queued)
		return free;
	for (const struct pool *other = slots->pools; other; other = other->next)
		kept += count_unserved(other);
	return free > kept ? free - kept : 0;
}

static struct vm *find_idle(const struct pool *pool)
{
	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		if (pool->slots[i] && pool->slots[i]->state == VM_WARM)
			return pool->slots[i];
	return NULL;
}

static const char wanted[] = "its place was wanted for another VM (--max-vms)";

/* The pool with the most warm VMs and no claim; NULL: none has one. *ending: some slot comes free. */
static const struct pool *find_richest(const struct pool_slots *slots, bool *ending)
{
	const struct pool *richest = NULL;
	unsigned int most = 0;

	*ending = false;
	for (const struct pool *other = slots->pools; other; other = other->next) {
		struct metrics_gauges now;

		pool_read_gauges(other, &now);
		*ending = *ending || now.ending;
		if (!now.queued && now.warm > most) {
			most = now.warm;
			richest = other;
		}
	}
	return richest;
}

void pool_make_way(struct pool *pool)
{
	bool ending;
	const struct pool *richest = find_richest(pool->config.slots, &ending);

	if (richest && !ending && count_unserved(pool))
		vm_retire(find_idle(richest), wanted);
}

bool pool_make_way_for_order(const struct pool_slots *slots)
{
	bool ending;
	const struct pool *richest = find_richest(slots, &ending);

	if (richest && !ending)
		vm_retire(find_idle(richest), wanted);
	return richest || ending;
}

void pool_pass_on(const struct pool *pool)
{
	pool_serve_orders(pool->config.slots);
	for (struct pool *other = pool->config.slots->pools; other; other = other->next)
		if (other != pool)
			pool_schedule(other, 0);
}
