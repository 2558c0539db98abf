/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clocks of all sandboxes on one timer, so that one that is kept costs no fd. The timer fires at the
 * earliest of them or before, for a clock that is put off leaves it as it is; then the next is looked for.
 */
#include "common/log.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"

#include <errno.h>

static void arm(struct sandboxes *all, uint64_t due_ns)
{
	uint64_t now = clock_now();

	all->due_ns = due_ns;
	loop_set_timer(all->timer, due_ns > now ? due_ns - now : 1);
}

void sandbox_set_clock(struct sandbox *sandbox, enum sandbox_clock clock, uint64_t milliseconds)
{
	struct sandboxes *all = sandbox->all;
	uint64_t due = milliseconds ? clock_now() + milliseconds * CLOCK_NS_PER_MS : 0;

	sandbox->due_ns[clock] = due;
	if (due && (!all->due_ns || due < all->due_ns))
		arm(all, due);
}

/* The earliest of all; NULL: there is none. */
static struct sandbox *find_first(const struct sandboxes *all, enum sandbox_clock *clock)
{
	struct sandbox *first = NULL;
	uint64_t due = UINT64_MAX;

	for (struct sandbox *sandbox = all->first; sandbox; sandbox = sandbox->next) {
		for (int i = 0; i < SANDBOX_CLOCK_COUNT; i++) {
			if (!sandbox->due_ns[i] || sandbox->due_ns[i] >= due)
				continue;
			due = sandbox->due_ns[i];
			first = sandbox;
			*clock = (enum sandbox_clock)i;
		}
	}
	return first;
}

static void timer_fired(void *context)
{
	struct sandboxes *all = context;
	enum sandbox_clock clock = SANDBOX_CLOCK_COUNT;
	struct sandbox *first = find_first(all, &clock);

	all->due_ns = 0;
	if (first && first->due_ns[clock] <= clock_now()) {
		first->due_ns[clock] = 0;
		/* One a turn: it may be the last that is heard of it, and of others. */
		sandbox_time_is_up(first, clock);
		first = find_first(all, &clock);
	}
	if (first)
		arm(all, first->due_ns[clock]);
}

int sandbox_clocks_init(struct sandboxes *all)
{
	all->timer = loop_add_timer(all->config.loop, timer_fired, all);
	return all->timer ? 0 : -ENOMEM;
}

void sandbox_clocks_finish(struct sandboxes *all)
{
	loop_remove(all->timer);
}

/* --- what its clocks do --- */

static bool may_be_idle(const struct sandbox *sandbox)
{
	return sandbox->state == SANDBOX_READY ||
	       (sandbox->state == SANDBOX_PAUSED && sandbox->spec.idle_action != SANDBOX_IDLE_PAUSE);
}

/* What fails writes a good part of the guest each time, and on a full disk it fails for long. */
static uint64_t idle_ms(const struct sandbox *sandbox)
{
	uint64_t least = sandbox->unsaved ? SANDBOX_IDLE_AGAIN_MIN_MS : 0;

	if (!sandbox->spec.idle_after_ms || sandbox->spec.idle_action != SANDBOX_IDLE_SUSPEND)
		return sandbox->spec.idle_after_ms;
	for (unsigned int i = 1; i < sandbox->unsaved && least < SANDBOX_IDLE_AGAIN_MAX_MS; i++)
		least *= 2;
	if (least > SANDBOX_IDLE_AGAIN_MAX_MS)
		least = SANDBOX_IDLE_AGAIN_MAX_MS;
	return sandbox->spec.idle_after_ms > least ? sandbox->spec.idle_after_ms : least;
}

void sandbox_look_idle(struct sandbox *sandbox)
{
	bool idle = !sandbox->users && may_be_idle(sandbox);

	sandbox_set_clock(sandbox, SANDBOX_CLOCK_IDLE, idle ? idle_ms(sandbox) : 0);
}

void sandbox_settle_clocks(struct sandbox *sandbox)
{
	enum sandbox_state state = sandbox->state;
	bool asked = state == SANDBOX_PAUSING || state == SANDBOX_RESUMING || state == SANDBOX_COPYING ||
		     state == SANDBOX_SUSPENDING;

	sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, asked ? SANDBOX_PATIENCE_MS : 0);
	if (state == SANDBOX_DELETING || state == SANDBOX_GONE)
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, 0);
	if (state == SANDBOX_GONE)
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_KEEP, sandbox->all->config.keep_ms);
	sandbox_look_idle(sandbox);
}

void sandbox_resume_ttl(struct sandbox *sandbox)
{
	uint64_t passed = (clock_now() - sandbox->created_ns) / CLOCK_NS_PER_MS, left = 0;

	/* At least a moment: 0 is never. */
	if (sandbox->spec.ttl_ms)
		left = passed < sandbox->spec.ttl_ms ? sandbox->spec.ttl_ms - passed : 1;
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, left);
}

static void be_idle(struct sandbox *sandbox)
{
	static const enum sandbox_verb verbs[] = {[SANDBOX_IDLE_KILL] = SANDBOX_DELETE,
		[SANDBOX_IDLE_PAUSE] = SANDBOX_PAUSE,
		[SANDBOX_IDLE_SUSPEND] = SANDBOX_SUSPEND};
	struct error error;

	if (sandbox_ask(sandbox, verbs[sandbox->spec.idle_action], "it was idle for idle.after_ms", &error))
		log_warn("sandbox %s is idle: %s", sandbox->id, error.message);
}

void sandbox_time_is_up(struct sandbox *sandbox, enum sandbox_clock clock)
{
	struct error error;

	switch (clock) {
	case SANDBOX_CLOCK_TTL:
		sandbox_ask(sandbox, SANDBOX_DELETE, "its ttl_ms is over", &error);
		return;
	case SANDBOX_CLOCK_IDLE:
		be_idle(sandbox);
		return;
	case SANDBOX_CLOCK_PATIENCE:
		if (sandbox->state == SANDBOX_STOPPING)
			vm_end(sandbox->vm, "its guest did not shut down in time");
		else
			sandbox_fail(sandbox, "the vmm did not answer in time");
		return;
	default:
		if (sandbox->users)
			sandbox_set_clock(sandbox, SANDBOX_CLOCK_KEEP, sandbox->all->config.keep_ms);
		else
			sandboxes_forget(sandbox);
	}
}
