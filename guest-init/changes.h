/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has become of the files since the baseline (baseline.h): the upper layer of the root's overlay, held
 * against what it was then; where the two do not differ, nothing is looked at below. It is told bit by bit,
 * and other work goes on between.
 *
 * A file of the lower layer that was opened for writing is in the upper from then on, and so has changed,
 * whatever was written. A folder has when its mode, owner or group has. What goes on meanwhile is told as it
 * was before or after. /etc/machine-id, which the agent writes, is not told.
 */
#ifndef GUEST_INIT_CHANGES_H
#define GUEST_INIT_CHANGES_H

#include "common/proto_guest.h"
#include "guest-init/layers.h"

enum {
	CHANGES_ENTRY_MAX = sizeof(struct agent_change) + AGENT_PATH_MAX,
	CHANGES_STEPS = 256, /* names that are looked at in one call */
};

struct changes;

/* What comes after a path of that length (0: all), at most `limit` entries. 0, -EOPNOTSUPP: the root is no
 * overlay, or -errno. The layers outlive it. */
int changes_begin(const struct layers *layers, const char *after, size_t after_length, uint32_t limit,
	struct changes **changes);
/* Takes NULL. */
void changes_end(struct changes *changes);
/* Entries, each with its path, into a buffer of at least CHANGES_ENTRY_MAX bytes; *length is set. 1: call
 * again, also when there were none; 0: that was the last, and *end is set; or -errno. */
int changes_fill(
	struct changes *changes, uint8_t *to, size_t room, size_t *length, struct agent_changes_end *end);

#endif
