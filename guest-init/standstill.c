/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/standstill.h"
#include "common/log.h"
#include "guest-init/session.h"
#include <errno.h>
#include <string.h>

enum { NS_PER_MS = 1000000, RETRY_MS = 100 };

static void time_is_up(void *context)
{
	struct standstill *still = context;

	if (!still->fails)
		log_warn("no identity came: what ran in the guest that this is a clone of goes on");
	standstill_end(still);
}

void standstill_init(struct standstill *still, struct loop *loop, struct cgroup_set *groups)
{
	*still = (struct standstill){.loop = loop, .groups = groups};
}

void standstill_finish(struct standstill *still)
{
	standstill_end(still);
	loop_remove(still->timer);
	*still = (struct standstill){0};
}

void standstill_expect(struct standstill *still)
{
	if (!still->timer)
		still->timer = loop_add_timer(still->loop, time_is_up, still);
	if (!still->timer) {
		log_error("in a clone nothing will stand: no timer: %s", strerror(errno));
		return;
	}
	still->ready_until_ns = session_now_ns() + (uint64_t)STANDSTILL_READY_MS * NS_PER_MS;
}

void standstill_begin(struct standstill *still)
{
	int r;

	if (session_now_ns() >= still->ready_until_ns)
		return;
	still->ready_until_ns = 0;
	r = cgroup_set_freeze(still->groups, true);
	if (r < 0) {
		log_error("what runs cannot be made to stand: %s", strerror(-r));
		return;
	}
	still->stands = true;
	loop_set_timer(still->timer, (uint64_t)STANDSTILL_MAX_MS * NS_PER_MS);
}

int standstill_end(struct standstill *still)
{
	int r;

	if (!still->stands)
		return 0;
	r = cgroup_set_freeze(still->groups, false);
	still->stands = r < 0;
	loop_set_timer(still->timer, r < 0 ? (uint64_t)RETRY_MS * NS_PER_MS : 0);
	if (r < 0 && !still->fails)
		log_error("what stands cannot be let go: %s", strerror(-r));
	still->fails = r < 0;
	return r;
}
