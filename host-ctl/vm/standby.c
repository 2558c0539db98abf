/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/standby.h"
#include "common/log.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/vm/vm_private.h"

#include <stdlib.h>

struct standby {
	const struct vm_config *config;
	unsigned int target;
	struct vm *vms[STANDBY_MAX]; /* not taken; NULL: free */
	bool seats[STANDBY_SEATS];   /* taken or not: until the VM is gone */
	struct loop_source *timer;
	bool started, stopping;
	void (*emptied)(void *context);
	void *context;
};

static void schedule(struct standby *standby, uint64_t milliseconds)
{
	if (standby->started && !standby->stopping)
		loop_set_timer(standby->timer, milliseconds ? milliseconds * CLOCK_NS_PER_MS : 1);
}

bool standby_is_empty(const struct standby *standby)
{
	for (unsigned int i = 0; standby && i < STANDBY_MAX; i++)
		if (standby->vms[i])
			return false;
	return true;
}

static void vm_warm(void *context, struct vm *vm)
{
	(void)context;
	(void)vm;
}

static void vm_ended(void *context, struct vm *vm)
{
	struct standby *standby = context;

	if (standby->stopping)
		return;
	log_warn("%s: ended in standby: %s", vm->id, vm_cause(vm));
	schedule(standby, STANDBY_RETRY_MS);
}

static void vm_gone(void *context, struct vm *vm)
{
	struct standby *standby = context;

	for (unsigned int i = 0; i < STANDBY_MAX; i++)
		if (standby->vms[i] == vm)
			standby->vms[i] = NULL;
	if (standby->stopping && standby_is_empty(standby))
		standby->emptied(standby->context);
}

static const struct vm_events vm_events = {.warm = vm_warm, .ended = vm_ended, .gone = vm_gone};

static unsigned int find_seat(const struct standby *standby)
{
	unsigned int seat = 0;

	while (seat < STANDBY_SEATS && standby->seats[seat])
		seat++;
	return seat;
}

static int start_one(struct standby *standby, struct vm **place)
{
	unsigned int seat = find_seat(standby);
	struct error error;
	int status;

	if (seat == STANDBY_SEATS)
		return -1;
	standby->seats[seat] = true;
	status = vm_stand_by(
		standby->config, VM_SLOTS + seat, &standby->seats[seat], &vm_events, standby, place, &error);
	if (!status)
		return 0;
	standby->seats[seat] = false;
	log_warn("no vmm in standby: %s", error.message);
	return status;
}

/* One a turn. */
static void fill(void *context)
{
	struct standby *standby = context;

	for (unsigned int i = 0; i < standby->target && !standby->stopping; i++) {
		if (standby->vms[i])
			continue;
		schedule(standby, start_one(standby, &standby->vms[i]) ? STANDBY_RETRY_MS : 0);
		return;
	}
}

struct standby *standby_create(
	const struct vm_config *config, unsigned int target, void (*emptied)(void *context), void *context)
{
	struct standby *standby = calloc(1, sizeof *standby);

	if (!standby)
		return NULL;
	standby->config = config;
	standby->target = target;
	standby->emptied = emptied;
	standby->context = context;
	standby->timer = loop_add_timer(config->loop, fill, standby);
	if (standby->timer)
		return standby;
	free(standby);
	return NULL;
}

void standby_destroy(struct standby *standby)
{
	if (!standby)
		return;
	loop_remove(standby->timer);
	free(standby);
}

int standby_start(struct standby *standby)
{
	standby->started = true;
	return loop_set_timer(standby->timer, 1);
}

void standby_stop(struct standby *standby)
{
	standby->stopping = true;
	loop_set_timer(standby->timer, 0);
	for (unsigned int i = 0; i < STANDBY_MAX; i++)
		if (standby->vms[i])
			vm_end(standby->vms[i], "the daemon is stopping");
	if (standby_is_empty(standby))
		standby->emptied(standby->context);
}

void standby_refill(struct standby *standby)
{
	if (standby)
		schedule(standby, 0);
}

struct vm *standby_take(struct standby *standby)
{
	for (unsigned int i = 0; standby && i < STANDBY_MAX; i++) {
		struct vm *vm = standby->vms[i];

		if (!vm || !vm->ready || vm->state != VM_STANDBY)
			continue;
		standby->vms[i] = NULL;
		return vm;
	}
	return NULL;
}

int standby_number(const struct standby *standby, const bool *seat)
{
	return seat ? (int)(seat - standby->seats) : -1;
}

bool *standby_reserve(struct standby *standby, int number)
{
	if (!standby || number < 0 || number >= STANDBY_SEATS || standby->seats[number])
		return NULL;
	standby->seats[number] = true;
	return &standby->seats[number];
}
