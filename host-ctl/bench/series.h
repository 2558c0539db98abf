/* SPDX-License-Identifier: Apache-2.0 */
/* The times of one kind, or of two that were measured in turns, and the table of them. */
#ifndef HOST_CTL_SERIES_H
#define HOST_CTL_SERIES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SERIES_KINDS_MAX = 2, SERIES_NAME_MAX = 256, SERIES_ROUNDS_MAX = 10000 };

struct series {
	char names[SERIES_KINDS_MAX][SERIES_NAME_MAX]; /* what was timed */
	double *ns[SERIES_KINDS_MAX];
	size_t count[SERIES_KINDS_MAX]; /* two kinds are compared where both have as many */
	size_t kinds;
};

/* Room for `rounds` of each kind, at most SERIES_ROUNDS_MAX. 0, -EINVAL or -ENOMEM; finish in either case. */
int series_init(struct series *series, size_t kinds, size_t rounds);
void series_finish(struct series *series);
/* A time above 0. No more than the rounds. */
void series_add(struct series *series, size_t kind, uint64_t ns);

/* A row for each kind with median, spread and minimum in ms, then their ratio. 0 or -ENOMEM. */
int series_print(FILE *to, const struct series *series);
/* {"kinds": [...], "ratio": {...}}: a new reference; NULL without memory. */
json_t *series_to_json(const struct series *series);

#endif
