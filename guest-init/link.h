/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control stream that guest-init itself opens to the host, so that the host need not poll for the guest.
 *
 *   NEVER ──connected──→ STANDS ──ended──→ WAITS ──the delay is over──→ connecting ──→ STANDS, or WAITS
 *     └──refused: stays; the host may come to our port when it likes
 *
 * One that stood and ended is opened again: at once the first time, since that is what happens in a clone of
 * this guest (its vsock is reset before anything else), then, until an IDENTITY has come on it, after
 * LINK_RETRY_MIN_MS, twice as long each time, at most LINK_RETRY_MAX_MS; or as soon as the host comes to our
 * port, for then it is back. Sessions do not notice.
 */
#ifndef GUEST_INIT_LINK_H
#define GUEST_INIT_LINK_H

#include "common/loop.h"
#include <stdbool.h>
#include <stdint.h>

enum { LINK_RETRY_MIN_MS = 10, LINK_RETRY_MAX_MS = 5000 };

struct agent;

struct link {
	struct agent *agent;
	/* A socket whose connection is under way or stands, or -errno; turn: how many there were before.
	 * NULL: no link. */
	int (*connect)(unsigned turn);
	unsigned turn;
	struct loop_source *timer;
	bool stood, waits;
	uint64_t delay_ms; /* before the next try; 0: at once */
};

/* connect may be NULL. 0, or -errno for lack of a timer. */
int link_init(struct link *link, struct loop *loop, struct agent *agent, int (*connect)(unsigned turn));
/* Ends no stream, but opens none any more. Takes one that is all zeros. */
void link_finish(struct link *link);

/* The first try. 0: it is under way; -errno: there is no way to the host. */
int link_open(struct link *link);
/* The connection stands. */
void link_connected(struct link *link);
/* The host spoke on it: it is worth having again at once. */
void link_proved(struct link *link);
/* The host came by itself: one that waits is tried now. */
void link_hurry(struct link *link);
/* It ended, or was refused. */
void link_ended(struct link *link);

#endif
