/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs between two reports: figures of the whole, then row by row of each list, by name and detail. A
 * row that one of them lacks counts as 0 there.
 *
 * Of counts every difference is real. A time differs from run to run, so a difference of at most `bound`
 * percent of the larger one, or of less than CHANGES_NS_MIN, is small. Small ones come after the others;
 * among equals the larger difference comes first.
 */
#ifndef HOST_CTL_CHANGES_H
#define HOST_CTL_CHANGES_H

#include "host-ctl/report/report.h"

enum {
	CHANGES_BOUND = 10, /* percent, unless told otherwise */
	CHANGES_NS_MIN = 20000,
};

enum change_unit { CHANGE_NS, CHANGE_COUNT };

struct change {
	unsigned place; /* 0: a figure of the whole; else 1 + the list */
	const char *name, *detail;
	enum change_unit unit;
	uint64_t before, after;
	bool small; /* within the bound */
};

struct changes {
	const struct report *before, *after;
	unsigned bound; /* percent */
	struct change *changes;
	size_t count, large; /* those that are not small come first */
};

/* Of two reports, which it refers to for as long as it lives. 0 or -ENOMEM; finish in either case. */
int changes_init(
	struct changes *changes, const struct report *before, const struct report *after, unsigned bound);
/* What the change's place is called: in JSON, and for people. */
const char *changes_place_key(const struct change *change);
const char *changes_place_title(const struct change *change);
void changes_finish(struct changes *changes);

#endif
