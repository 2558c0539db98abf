/* SPDX-License-Identifier: Apache-2.0 */
/* VMs of other sources than a pool's: each somebody's from the first, and in nobody's way but for its slot.
 */
#include "host-ctl/pool/pool_private.h"

static void say_failed(struct pool_order *order, const struct error *error)
{
	order->pool = NULL;
	order->vm = NULL;
	order->failed(order, error);
}

/* 0, or -1 with *error set, and it has no slot. */
static int start(struct pool_order *order, struct error *error)
{
	struct pool *pool = order->pool;
	const struct vm_order wanted = {.source = order->source,
		.slot = pool_enter_slot(pool, order->source, NULL, order->bytes),
		.awaited = true};

	pool->metrics->starts++;
	pool->orders[wanted.slot] = order;
	pool->ordered[wanted.slot] = true;
	if (vm_start(pool->config.vm, &wanted, &pool_vm_events, pool, &pool->slots[wanted.slot], error) ==
		0) {
		order->vm = pool->slots[wanted.slot];
		return 0;
	}
	pool_leave_slot(pool, wanted.slot);
	pool->metrics->starts_failed++;
	return -1;
}

static void set_full(const struct pool_slots *slots, struct error *error)
{
	error_set(error, ERROR_EXHAUSTED,
		"all %u VMs that there may be at once are in use: let runs end, suspend or delete sandboxes, "
		"or start the daemon with a larger --max-vms",
		slots->maximum);
}

static void enqueue(struct pool_slots *slots, struct pool_order *order)
{
	struct pool_order **link = &slots->orders;

	while (*link)
		link = &(*link)->next;
	order->next = NULL;
	*link = order;
}

/* Takes one that is not in it. */
static void dequeue(struct pool_slots *slots, const struct pool_order *order)
{
	struct pool_order **link = &slots->orders;

	while (*link && *link != order)
		link = &(*link)->next;
	if (*link)
		*link = order->next;
}

int pool_order_vm(struct pool *pool, struct pool_order *order, struct error *error)
{
	struct pool_slots *slots = pool->config.slots;

	error->kind = ERROR_NONE;
	order->vm = NULL;
	if (pool->stopping)
		return error_set(error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	if (room_check_more(pool->config.room, order->source, order->bytes, error))
		return -1;
	order->pool = pool;
	if (slots->count < slots->maximum && !slots->orders) {
		if (start(order, error) == 0)
			return 0;
		order->pool = NULL;
		return -1;
	}
	if (!pool_make_way_for_order(slots)) {
		order->pool = NULL;
		set_full(slots, error);
		return -1;
	}
	enqueue(slots, order);
	return 0;
}

void pool_serve_orders(struct pool_slots *slots)
{
	struct pool_order *order;
	struct error error;

	while ((order = slots->orders)) {
		bool free = slots->count < slots->maximum;

		if (!free && pool_make_way_for_order(slots))
			return;
		slots->orders = order->next;
		if (free && start(order, &error) == 0)
			continue;
		if (!free)
			set_full(slots, &error);
		say_failed(order, &error);
	}
}

void pool_refuse_orders(struct pool *pool, const struct error *error)
{
	struct pool_order *order = pool->config.slots->orders, *next;

	for (; order; order = next) {
		next = order->next;
		if (order->pool != pool)
			continue;
		dequeue(pool->config.slots, order);
		say_failed(order, error);
	}
}

void pool_cancel_order(struct pool_order *order)
{
	struct pool *pool = order->pool;

	if (!pool)
		return;
	order->pool = NULL;
	if (!order->vm) {
		dequeue(pool->config.slots, order);
		return;
	}
	pool->orders[order->vm->slot] = NULL;
	vm_retire(order->vm, "it is not wanted any more");
	order->vm = NULL;
}

/* --- what happens to its VM --- */

void pool_order_is_held(void *context, struct vm *vm)
{
	struct pool *pool = context;
	struct pool_order *order = pool->orders[vm->slot];

	if (order)
		order->held(order);
	else
		vm_retire(vm, "it is not wanted any more");
}

bool pool_order_is_warm(struct pool *pool, struct vm *vm)
{
	struct pool_order *order = pool->orders[vm->slot];

	if (!order)
		return false;
	pool->orders[vm->slot] = NULL;
	order->pool = NULL;
	order->warm(order);
	return true;
}

bool pool_order_is_over(struct pool *pool, const struct vm *vm)
{
	struct pool_order *order = pool->orders[vm->slot];

	if (!order)
		return false;
	error_set(&order->error, ERROR_GUEST_LOST, "its VM ended: %s", vm_cause(vm));
	pool_leave_slot(pool, vm->slot);
	say_failed(order, &order->error);
	return true;
}
