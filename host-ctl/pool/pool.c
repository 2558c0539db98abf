/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: slots[n] is the VM whose slot is n; a VM leaves its slot only when nothing of it is left, so
 * that uids and CIDs of living VMs are distinct. No claim is queued while a VM is warm. Every VM that is warm
 * or may become so is of the pool's present kind.
 */
#include "common/log.h"
#include "host-ctl/pool/pool_private.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/vm/standby.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void timer_fired(void *context);

struct pool *pool_create(const struct pool_config *config, struct metrics_pool *metrics,
	void (*full)(void *context), void (*emptied)(void *context), void *context)
{
	struct pool *pool = calloc(1, sizeof *pool);

	if (!pool)
		return NULL;
	pool->config = *config;
	pool->metrics = metrics;
	pool->full = full;
	pool->emptied = emptied;
	pool->context = context;
	pool->timer = loop_add_timer(config->vm->loop, timer_fired, pool);
	if (!pool->timer) {
		free(pool);
		return NULL;
	}
	pool_join_slots(pool);
	return pool;
}

void pool_destroy(struct pool *pool)
{
	if (!pool)
		return;
	pool_quit_slots(pool);
	template_drop(pool->template);
	pool->template = NULL;
	pool->stopping = pool->destroyed = true;
	/* Whoever is told of something may ask for this, and return to where the pool is still in use. */
	pool->next = pool->config.slots->destroyed;
	pool->config.slots->destroyed = pool;
	loop_set_timer(pool->timer, 1);
}

void pool_slots_finish(struct pool_slots *slots)
{
	struct pool *pool;

	while ((pool = slots->destroyed)) {
		slots->destroyed = pool->next;
		loop_remove(pool->timer);
		free(pool);
	}
}

bool pool_is_empty(const struct pool *pool)
{
	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		if (pool->slots[i])
			return false;
	return true;
}

bool pool_is_queued(const struct pool *pool)
{
	return pool->queue.count + pool->own.count > 0;
}

bool pool_has_disks(const struct pool *pool)
{
	return pool->template && pool->template->source.disk.path;
}

unsigned int pool_count_found(const struct pool *pool)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		count += pool->slots[i] && pool->slots[i]->found;
	return count;
}

unsigned int pool_count_owned(const struct pool *pool)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		count += pool->slots[i] && pool->slots[i]->state == VM_OWNED;
	return count;
}

struct metrics_pool *pool_metrics(const struct pool *pool)
{
	return pool->metrics;
}

void pool_read_gauges(const struct pool *pool, struct metrics_gauges *gauges)
{
	*gauges = (struct metrics_gauges){.target = pool->config.target, .queued = pool->queue.count};
	for (unsigned int i = 0; i < POOL_VMS_MAX; i++) {
		const struct vm *vm = pool->slots[i];

		if (!vm)
			continue;
		gauges->starting += !pool->claims[i] && vm_is_starting(vm);
		gauges->warm += vm->state == VM_WARM;
		gauges->busy += vm->state == VM_BUSY || vm->state == VM_OWNED || pool->claims[i];
		gauges->ending += vm->state == VM_ENDING;
	}
}

void pool_schedule(struct pool *pool, uint64_t milliseconds)
{
	if (!pool->stopping && (pool->started || pool->own.count))
		loop_set_timer(pool->timer, milliseconds ? milliseconds * CLOCK_NS_PER_MS : 1);
}

/* --- VMs come and go --- */

static void set_failing(const struct pool *pool, struct error *error)
{
	error_set(error, ERROR_NOT_READY,
		"no VM: the last %u starts failed; see `host-ctl doctor`, and the cause in detail",
		pool->failures);
	snprintf(error->cause, sizeof error->cause, "%s", pool->last_failure);
}

static void note_failure(struct pool *pool, const char *cause)
{
	struct metrics_gauges now;
	struct error error;
	uint64_t delay = POOL_BACKOFF_MIN_MS;

	for (unsigned int i = 0; i < pool->failures && delay < POOL_BACKOFF_MAX_MS; i++)
		delay *= 2;
	if (delay > POOL_BACKOFF_MAX_MS)
		delay = POOL_BACKOFF_MAX_MS;
	pool->failures++;
	pool->retry_ns = clock_now() + delay * CLOCK_NS_PER_MS;
	snprintf(pool->last_failure, sizeof pool->last_failure, "%s", cause);
	pool_read_gauges(pool, &now);
	if (pool->failures >= POOL_FAILURES_MAX && !now.starting) {
		set_failing(pool, &error);
		pool_refuse_all(pool, &error);
	}
	pool_schedule(pool, delay);
}

/* Warm VMs beyond the target. */
static void end_surplus(struct pool *pool)
{
	struct metrics_gauges now;

	pool_read_gauges(pool, &now);
	for (unsigned int i = 0; i < POOL_VMS_MAX && !pool->queue.first && now.warm > pool->config.target;
		i++) {
		struct vm *vm = pool->slots[i];

		if (!vm || vm->state != VM_WARM)
			continue;
		vm_retire(vm, "the pool's target was lowered");
		now.warm--;
	}
}

void pool_settle(struct pool *pool, unsigned int slot)
{
	room_settle(pool->config.room, pool->promised[slot]);
	pool->promised[slot] = 0;
}

static void vm_warm(void *context, struct vm *vm)
{
	struct pool *pool = context;
	struct pool_claim *claim = pool->queue.first;
	struct metrics_gauges now;

	if (pool->sources[vm->slot]) {
		pool_own_warm(pool, vm);
		return;
	}
	pool_settle(pool, vm->slot);
	pool->failures = 0;
	pool->retry_ns = 0;
	metrics_observe(&pool->metrics->refill[pool->templates[vm->slot] ? METRICS_CLONE : METRICS_BOOT],
		vm->warm_ns - vm->started_ns);
	log_info("%s: warm after %llu us", vm->id,
		(unsigned long long)((vm->warm_ns - vm->started_ns) / CLOCK_NS_PER_US));
	pool_schedule(pool, 0);
	if (claim) {
		pool_cancel(pool, claim);
		pool->metrics->waited++;
		claim->granted(claim, vm);
		return;
	}
	end_surplus(pool);
	/* While all places were taken by VMs that started, none could make way for another pool's claim. */
	if (!pool_places(pool->config.slots))
		pool_pass_on(pool);
	pool_read_gauges(pool, &now);
	if (!pool->was_full && now.warm >= pool->config.target) {
		pool->was_full = true;
		pool->full(pool->context);
	}
}

static void vm_ended(void *context, struct vm *vm)
{
	struct pool *pool = context;

	if (pool->sources[vm->slot])
		pool_own_ended(pool, vm);
	if (pool->sources[vm->slot] || vm->was_busy || pool->stopping || vm->retired)
		return;
	if (vm->booted) {
		pool->metrics->warm_lost++;
		log_warn("%s: lost while warm: %s", vm->id, vm_cause(vm));
	} else {
		pool->metrics->starts_failed++;
		log_warn("%s: start failed: %s", vm->id, vm_cause(vm));
	}
	note_failure(pool, vm_cause(vm));
}

static void leave_slot(struct pool *pool, unsigned int slot)
{
	struct template *template = pool->templates[slot];

	pool_settle(pool, slot);
	room_leave(pool->config.room);
	pool_source_drop(pool->sources[slot]);
	pool->slots[slot] = NULL;
	pool->templates[slot] = NULL;
	pool->sources[slot] = NULL;
	pool->claims[slot] = NULL;
	pool->config.slots->used[slot] = false;
	pool->config.slots->count--;
	if (template)
		template->vms--;
	template_drop(template);
}

static void vm_gone(void *context, struct vm *vm)
{
	struct pool *pool = context;

	leave_slot(pool, vm->slot);
	pool_pass_on(pool);
	if (pool->stopping && pool_is_empty(pool))
		pool->emptied(pool->context);
	else if (pool->own.count || clock_now() >= pool->retry_ns)
		pool_schedule(pool, 0);
}

static void vm_held(void *context, struct vm *vm)
{
	pool_own_held(context, vm);
}

static const struct vm_events vm_events = {
	.held = vm_held, .warm = vm_warm, .ended = vm_ended, .gone = vm_gone};

int pool_take_back(struct pool *pool, struct vm_found *found, int seat, struct vm **vm, struct error *error)
{
	struct pool_slots *slots = pool->config.slots;
	int status;

	if (seat >= 0)
		found->seat = standby_reserve(pool->config.vm->standby, seat);
	if (found->slot >= POOL_VMS_MAX || slots->used[found->slot] ||
		(seat >= 0 && pool->config.vm->standby && !found->seat)) {
		error_set(error, ERROR_INTERNAL, "cannot take back %s: its place is another's", found->id);
		return -EEXIST;
	}
	slots->used[found->slot] = true;
	slots->count++;
	room_enter(pool->config.room, 0);
	status = vm_take_back(pool->config.vm, found, &vm_events, pool, &pool->slots[found->slot], error);
	if (status) {
		leave_slot(pool, found->slot);
		if (found->seat)
			*found->seat = false;
	} else {
		*vm = pool->slots[found->slot];
	}
	return status;
}

/* How many more are to be started now, if there are slots. */
static unsigned int shortage(const struct pool *pool)
{
	struct metrics_gauges now;
	unsigned int wanted, have, more;

	pool_read_gauges(pool, &now);
	wanted = pool->config.target + now.queued;
	have = now.warm + now.starting;
	more = wanted > have ? wanted - have : 0;
	if (now.starting >= pool->config.starts_max)
		return 0;
	if (more > pool->config.starts_max - now.starting)
		more = pool->config.starts_max - now.starting;
	/* After a failure one VM at a time has to show that the fault is gone. */
	if (pool->failures && more)
		more = now.starting ? 0 : 1;
	return more;
}

/* Of the VMs that start now. */
static const struct vm_source *source_of(const struct pool *pool)
{
	return pool->template ? &pool->template->source : pool->config.cold;
}

static unsigned int enter_slot(struct pool *pool, const struct vm_source *source, struct pool_claim *own)
{
	struct pool_slots *slots = pool->config.slots;
	unsigned int slot = 0;

	while (slots->used[slot])
		slot++;
	slots->used[slot] = true;
	slots->count++;
	if (own) {
		pool->sources[slot] = pool_source_take(own->source);
	} else if (pool->template) {
		pool->templates[slot] = template_take(pool->template);
		pool->template->vms++;
	}
	pool->promised[slot] = room_expected_bytes(source);
	room_enter(pool->config.room, pool->promised[slot]);
	return slot;
}

int pool_start_vm(
	struct pool *pool, const struct vm_source *source, struct pool_claim *own, struct error *error)
{
	const struct vm_order order = {
		.source = source,
		.slot = enter_slot(pool, source, own),
		.awaited = own || pool->queue.count > 0,
	};
	struct vm **vm = &pool->slots[order.slot];
	int status = vm_start(pool->config.vm, &order, &vm_events, pool, vm, error);

	if (status) {
		leave_slot(pool, order.slot);
		return status;
	}
	if (own) {
		own->vm = *vm;
		pool->claims[order.slot] = own;
	}
	return 0;
}

static int start_one(struct pool *pool)
{
	struct error error;
	int status;

	pool->metrics->starts++;
	status = pool_start_vm(pool, source_of(pool), NULL, &error);
	if (!status)
		return 0;
	pool->metrics->starts_failed++;
	log_warn("start failed: %s", error.message);
	note_failure(pool, error.message);
	return status;
}

/* reason NULL: no longer. */
static void set_held(struct pool *pool, const char *reason)
{
	if (reason && !pool->held[0])
		log_warn("refills of %s wait: %s", pool->metrics->label, reason);
	else if (!reason && pool->held[0])
		log_info("refills of %s go on", pool->metrics->label);
	snprintf(pool->held, sizeof pool->held, "%s", reason ? reason : "");
}

/* May one more be started? If not, claims for which nothing starts are refused. */
static bool has_room(struct pool *pool)
{
	struct metrics_gauges now;
	struct error error;

	if (room_check(pool->config.room, source_of(pool), false, &error) == 0) {
		set_held(pool, NULL);
		return true;
	}
	set_held(pool, error.message);
	pool_schedule(pool, ROOM_RETRY_MS);
	pool_read_gauges(pool, &now);
	if (now.queued <= now.starting)
		return false;
	if (room_check(pool->config.room, source_of(pool), true, &error) == 0)
		return true;
	if (now.queued > now.starting)
		pool_refuse_last(pool, now.queued - now.starting, &error);
	return false;
}

static void refill(struct pool *pool)
{
	struct metrics_gauges now;

	if (pool->stopping)
		return;
	if (pool_start_own(pool)) {
		pool_schedule(pool, 0);
		return;
	}
	if (!pool->started)
		return;
	if (!pool->config.target && !pool->was_full) {
		pool->was_full = true;
		pool->full(pool->context);
	}
	if (clock_now() < pool->retry_ns) {
		loop_set_timer(pool->timer, pool->retry_ns - clock_now() + 1);
		return;
	}
	pool_read_gauges(pool, &now);
	if (now.warm >= pool->config.target)
		set_held(pool, NULL);
	if (!shortage(pool))
		return;
	if (!pool_places(pool->config.slots))
		pool_make_way(pool);
	/* One a turn: a start takes a while, and runs go on in between. */
	else if (pool_free_slots(pool) && has_room(pool) && !start_one(pool))
		pool_schedule(pool, 0);
}

static void timer_fired(void *context)
{
	struct pool *pool = context;

	if (pool->destroyed)
		pool_slots_finish(pool->config.slots);
	else
		refill(pool);
}

/* --- for the daemon --- */

int pool_start(struct pool *pool)
{
	pool->started = true;
	return loop_set_timer(pool->timer, 1);
}

/* Those that no run has. */
static void retire_all(struct pool *pool, const char *why)
{
	for (unsigned int i = 0; i < POOL_VMS_MAX; i++) {
		struct vm *vm = pool->slots[i];

		if (vm && !pool->claims[i] && (vm->state == VM_WARM || vm_is_starting(vm)))
			vm_retire(vm, why);
	}
}

void pool_set_template(struct pool *pool, struct template *template)
{
	struct template *before = pool->template;

	if (template == before)
		return;
	pool->template = template_take(template);
	template_drop(before);
	/* Another kind: what failed of the one before says nothing of it. */
	pool->failures = 0;
	pool->retry_ns = 0;
	retire_all(pool, "its template was replaced");
	pool_schedule(pool, 0);
}

bool pool_has_template(const struct pool *pool)
{
	return pool->template != NULL;
}

void pool_fail(struct pool *pool, const struct error *error)
{
	snprintf(pool->last_failure, sizeof pool->last_failure, "%s", error->message);
	pool->failures = 1;
	pool_refuse_all(pool, error);
}

void pool_set_target(struct pool *pool, unsigned int target)
{
	pool->config.target = target;
	end_surplus(pool);
	pool_schedule(pool, 0);
}

unsigned int pool_target(const struct pool *pool)
{
	return pool->config.target;
}

void pool_stop(struct pool *pool)
{
	struct error error;
	bool empty = true;

	pool->stopping = true;
	loop_set_timer(pool->timer, 0);
	error_set(&error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	pool_refuse_all(pool, &error);
	pool_refuse_own(pool, &error);
	for (unsigned int i = 0; i < POOL_VMS_MAX; i++) {
		if (!pool->slots[i])
			continue;
		empty = false;
		vm_end(pool->slots[i], "the daemon is stopping");
	}
	if (empty)
		pool->emptied(pool->context);
}

struct vm *pool_claim_vm(struct pool *pool, struct pool_claim *claim, struct error *error)
{
	struct vm *vm = pool_find_warm(pool);
	struct metrics_gauges now;

	error->kind = ERROR_NONE;
	claim->queue = NULL;
	if (pool->stopping) {
		error_set(error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
		return NULL;
	}
	if (vm) {
		pool->metrics->hits++;
		return vm;
	}
	pool->metrics->misses++;
	pool_read_gauges(pool, &now);
	if (pool->failures >= POOL_FAILURES_MAX && !now.starting) {
		set_failing(pool, error);
		return NULL;
	}
	if (pool->queue.count >= pool->config.queue_max) {
		error_set(error, ERROR_EXHAUSTED,
			"no warm VM, and %u runs wait already (--queue-max): try again later, or raise "
			"--pool",
			pool->queue.count);
		return NULL;
	}
	pool_enqueue(&pool->queue, claim);
	pool_schedule(pool, 0);
	return NULL;
}

void pool_refill(struct pool *pool)
{
	pool_schedule(pool, POOL_REFILL_DELAY_MS);
}

const char *pool_ill_reason(const struct pool *pool)
{
	struct metrics_gauges now;

	if (pool->stopping)
		return "the daemon is stopping";
	pool_read_gauges(pool, &now);
	if (now.warm)
		return NULL;
	return pool->failures ? pool->last_failure : pool->held[0] ? pool->held : NULL;
}
