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

unsigned int pool_places(const struct pool_slots *slots)
{
	return slots->count < slots->maximum ? slots->maximum - slots->count : 0;
}

/* Claims for which no VM starts yet. */
static unsigned int count_unserved(const struct pool *pool)
{
	struct metrics_gauges now;

	pool_read_gauges(pool, &now);
	return pool->own.count + (now.queued > now.starting ? now.queued - now.starting : 0);
}

unsigned int pool_free_slots(const struct pool *pool)
{
	const struct pool_slots *slots = pool->config.slots;
	unsigned int free = pool_places(slots);
	unsigned int kept = 0;

	if (pool->queue.count)
		return free;
	for (const struct pool *other = slots->pools; other; other = other->next)
		kept += count_unserved(other);
	return free > kept ? free - kept : 0;
}

unsigned int pool_places_max(const struct pool *pool)
{
	return pool->config.slots->maximum;
}

unsigned int pool_open_places(const struct pool *pool)
{
	const struct pool_slots *slots = pool->config.slots;
	unsigned int places = pool_places(slots), wanted = 0;

	for (const struct pool *other = slots->pools; other; other = other->next) {
		struct metrics_gauges now;

		pool_read_gauges(other, &now);
		/* What starts is warm soon, unless somebody waits for it. */
		places += now.warm + (now.starting > now.queued ? now.starting - now.queued : 0);
		wanted += count_unserved(other);
	}
	return places > wanted ? places - wanted : 0;
}

struct vm *pool_find_warm(const struct pool *pool)
{
	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		if (pool->slots[i] && pool->slots[i]->state == VM_WARM)
			return pool->slots[i];
	return NULL;
}

void pool_make_way(struct pool *pool)
{
	const struct pool *richest = NULL;
	unsigned int most = 0;

	for (const struct pool *other = pool->config.slots->pools; other; other = other->next) {
		struct metrics_gauges now;

		pool_read_gauges(other, &now);
		/* Its slot comes free. */
		if (now.ending)
			return;
		if (!now.queued && now.warm > most) {
			most = now.warm;
			richest = other;
		}
	}
	if (richest && count_unserved(pool))
		vm_retire(pool_find_warm(richest), "its place was wanted for another VM (--max-vms)");
}

void pool_pass_on(const struct pool *pool)
{
	for (struct pool *other = pool->config.slots->pools; other; other = other->next)
		if (other != pool)
			pool_schedule(other, 0);
}
