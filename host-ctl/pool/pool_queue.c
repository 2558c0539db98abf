/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/pool_private.h"

void pool_enqueue(struct pool_queue *queue, struct pool_claim *claim)
{
	claim->queue = queue;
	claim->next = NULL;
	claim->previous = queue->last;
	*(queue->last ? &queue->last->next : &queue->first) = claim;
	queue->last = claim;
	queue->count++;
}

void pool_leave_queue(struct pool_claim *claim)
{
	struct pool_queue *queue = claim->queue;

	if (!queue)
		return;
	*(claim->previous ? &claim->previous->next : &queue->first) = claim->next;
	*(claim->next ? &claim->next->previous : &queue->last) = claim->previous;
	claim->queue = NULL;
	queue->count--;
}

void pool_cancel(struct pool *pool, struct pool_claim *claim)
{
	struct vm *vm = claim->vm;

	pool_leave_queue(claim);
	pool_source_drop(claim->source);
	claim->source = NULL;
	claim->vm = NULL;
	if (!vm)
		return;
	pool->claims[vm->slot] = NULL;
	vm_retire(vm, "whoever it was started for wants it no more");
}

/* To a queue of those that are to be refused: all leave the pool's before the first is told, for whoever is
 * told may claim again, and waits then. */
static void move_claim(struct pool_queue *refused, struct pool_claim *claim)
{
	pool_leave_queue(claim);
	pool_enqueue(refused, claim);
}

static void refuse(struct pool *pool, struct pool_queue *refused, const struct error *error)
{
	struct pool_claim *claim;

	while ((claim = refused->first)) {
		pool_cancel(pool, claim);
		claim->refused(claim, error);
	}
}

void pool_refuse_all(struct pool *pool, const struct error *error)
{
	struct pool_queue refused = {.count = 0};

	while (pool->queue.first)
		move_claim(&refused, pool->queue.first);
	refuse(pool, &refused, error);
}

void pool_refuse_last(struct pool *pool, unsigned int count, const struct error *error)
{
	struct pool_queue refused = {.count = 0};

	while (count-- && pool->queue.last)
		move_claim(&refused, pool->queue.last);
	refuse(pool, &refused, error);
}
