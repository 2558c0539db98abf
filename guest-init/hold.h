/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HOLD: what was written to the guest's files goes to its disk, before the host makes the guest stand and
 * saves it. So the disk alone has the files as they are, and little is left to be written while it stands.
 * Nothing else is held up: a process of our own waits for the disk, the agent serves on.
 *
 *   idle ──hold_begin──→ under way ──hold_ended──→ idle
 *
 * It lasts as long as the host's disk takes; a root command can make it last for ever, or kill it. The host
 * bounds its wait.
 */
#ifndef GUEST_INIT_HOLD_H
#define GUEST_INIT_HOLD_H

#include "guest-init/layers.h"
#include <stdbool.h>
#include <sys/types.h>

/* All zeros: idle. */
struct hold {
	pid_t pid; /* of the process that waits; 0: none */
};

/*
 * 1: it is under way, and hold_ended will tell of its end; 0: there is nothing to wait for, for the files are
 * in memory alone (layers: NULL, or of no overlay); -EAGAIN: one is under way; or -errno.
 */
int hold_begin(struct hold *hold, const struct layers *layers);
/* A child was reaped, with its wait status. True: it was that of the hold; then *error is 0 or a positive
 * errno (EINTR: it was killed). */
bool hold_ended(struct hold *hold, pid_t pid, int status, int *error);

#endif
