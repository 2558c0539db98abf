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
