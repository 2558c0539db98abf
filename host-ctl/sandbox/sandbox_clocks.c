/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clocks of all sandboxes on one timer, so that one that is kept costs no fd. The timer fires at the
 * earliest of them or before, for a clock that is put off leaves it as it is; then the next is looked for.
 */
#include "common/log.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_record.h"
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

static const enum sandbox_verb verbs[] = {[SANDBOX_IDLE_KILL] = SANDBOX_DELETE,
	[SANDBOX_IDLE_PAUSE] = SANDBOX_PAUSE,
	[SANDBOX_IDLE_SUSPEND] = SANDBOX_SUSPEND};

/* What fails writes a good part of the guest each time, and on a full disk it fails for long. */
static uint64_t again_ms(unsigned int failures)
{
	uint64_t least = failures ? SANDBOX_IDLE_AGAIN_MIN_MS : 0;

	for (unsigned int i = 1; i < failures && least < SANDBOX_IDLE_AGAIN_MAX_MS; i++)
		least *= 2;
	return least < SANDBOX_IDLE_AGAIN_MAX_MS ? least : SANDBOX_IDLE_AGAIN_MAX_MS;
}

static uint64_t idle_ms(const struct sandbox *sandbox)
{
	const uint64_t least = again_ms(sandbox->unsaved);

	if (!sandbox->spec.idle_after_ms || sandbox->spec.idle_action != SANDBOX_IDLE_SUSPEND)
		return sandbox->spec.idle_after_ms;
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
	sandbox_look_ttl(sandbox);
	sandbox_look_idle(sandbox);
}

static void be_idle(struct sandbox *sandbox)
{
	struct error error;

	if (sandbox_ask(sandbox, verbs[sandbox->spec.idle_action], "it was idle for idle.after_ms", &error))
		log_warn("sandbox %s is idle: %s", sandbox->id, error.message);
}

/* --- its ttl ---
 *
 * One that is not killed by it is DUE until it is at rest, then it is OVER until it is READY again:
 *
 *   counted ──▶ due ──paused, suspended, or was so or stopped──▶ over ──READY──▶ counted, anew
 *
 * What is on its way elsewhere when the ttl is over is asked when it has come there; what fails is asked
 * again.
 */

void sandbox_restore_ttl(struct sandbox *sandbox, bool this_boot)
{
	const uint64_t wall_ms = clock_wall_ms(), from_ms = sandbox->ttl_from_ms;
	const uint64_t ttl_ms = sandbox->spec.ttl_ms;
	uint64_t passed_ms, left_ms;

	/* CLOCK_MONOTONIC begins anew with each boot of the host: only the wall tells how long ago it was,
	 * and the difference to now may be below 0, modulo 2^64. */
	if (!this_boot)
		sandbox->ttl_from_ns =
			clock_now() - (wall_ms > from_ms ? wall_ms - from_ms : 0) * CLOCK_NS_PER_MS;
	passed_ms = (clock_now() - sandbox->ttl_from_ns) / CLOCK_NS_PER_MS;
	/* Where it is at rest it is over before anybody can ask for it; elsewhere it is asked when it is
	 * there. */
	sandbox->ttl_due = ttl_ms && passed_ms >= ttl_ms && sandbox->spec.ttl_action != SANDBOX_IDLE_KILL;
	if (sandbox->ttl_due)
		return;
	/* At least a moment. */
	left_ms = passed_ms < ttl_ms ? ttl_ms - passed_ms : 1;
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, ttl_ms ? left_ms : 0);
}

static bool is_at_rest(const struct sandbox *sandbox)
{
	return sandbox->state == SANDBOX_SUSPENDED || sandbox->state == SANDBOX_STOPPED ||
	       sandbox->state == SANDBOX_FAILED ||
	       (sandbox->state == SANDBOX_PAUSED && sandbox->spec.ttl_action == SANDBOX_IDLE_PAUSE);
}

static bool may_be_asked(const struct sandbox *sandbox)
{
	return sandbox->state == SANDBOX_READY || sandbox->state == SANDBOX_PAUSED;
}

static void renew_ttl(struct sandbox *sandbox)
{
	sandbox->ttl_over = false;
	sandbox->ttl_from_ns = clock_now();
	sandbox->ttl_from_ms = clock_wall_ms();
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, sandbox->spec.ttl_ms);
	sandbox_record_renewed(sandbox);
}

/* At least a moment, so that it is from the loop: who moves it is in the midst of something. */
static uint64_t wait_ms(const struct sandbox *sandbox)
{
	const uint64_t now = clock_now(), again = sandbox->ttl_again_ns;

	return again > now ? (again - now) / CLOCK_NS_PER_MS + 1 : 1;
}

void sandbox_look_ttl(struct sandbox *sandbox)
{
	if (sandbox->ttl_due && is_at_rest(sandbox)) {
		sandbox->ttl_due = false;
		sandbox->ttl_over = true;
		sandbox->ttl_tries = 0;
		sandbox->ttl_again_ns = 0;
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, 0);
	} else if (sandbox->ttl_due) {
		sandbox_set_clock(sandbox, SANDBOX_CLOCK_TTL, may_be_asked(sandbox) ? wait_ms(sandbox) : 0);
	} else if (sandbox->ttl_over && sandbox->state == SANDBOX_READY) {
		renew_ttl(sandbox);
	}
}

static void end_ttl(struct sandbox *sandbox)
{
	static const char over[] = "its ttl_ms is over";
	struct error error;

	if (sandbox->spec.ttl_action == SANDBOX_IDLE_KILL) {
		sandbox_ask(sandbox, SANDBOX_DELETE, over, &error);
		return;
	}
	sandbox->ttl_due = true;
	if (is_at_rest(sandbox) || !may_be_asked(sandbox)) {
		sandbox_look_ttl(sandbox);
		return;
	}
	sandbox->ttl_again_ns = clock_now() + again_ms(++sandbox->ttl_tries) * CLOCK_NS_PER_MS;
	if (sandbox_ask(sandbox, verbs[sandbox->spec.ttl_action], over, &error) == 0)
		return;
	log_warn("sandbox %s: %s: %s", sandbox->id, over, error.message);
	sandbox_look_ttl(sandbox);
}

void sandbox_time_is_up(struct sandbox *sandbox, enum sandbox_clock clock)
{
	switch (clock) {
	case SANDBOX_CLOCK_TTL:
		end_ttl(sandbox);
		return;
	case SANDBOX_CLOCK_IDLE:
		be_idle(sandbox);
		return;
	case SANDBOX_CLOCK_PATIENCE:
		if (sandbox->state == SANDBOX_STOPPING && sandbox->vm)
			vm_end(sandbox->vm, "its guest did not shut down in time");
		else if (sandbox->state != SANDBOX_STOPPING && !sandbox_suspension_go_on(sandbox))
			sandbox_fail(sandbox, "the vmm did not answer in time");
		return;
	case SANDBOX_CLOCK_COMMANDS:
		commands_forget_old(sandbox);
		return;
	default:
		if (sandbox->users)
			sandbox_set_clock(sandbox, SANDBOX_CLOCK_KEEP, sandbox->all->config.keep_ms);
		else
			sandboxes_forget(sandbox);
	}
}
