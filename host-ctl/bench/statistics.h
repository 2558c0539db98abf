/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What samples of a time say: where they lie, and how much two kinds differ that were measured in turns.
 *
 * The interval of a ratio is a percentile bootstrap of pairs: two kinds measured one after the other share
 * the machine's mood of that moment, so a pair is drawn as a whole. STATISTICS_RESAMPLES times as many pairs
 * are drawn, with replacement, as there are; each time the ratio of the medians is noted; the interval holds
 * the middle STATISTICS_CONFIDENCE of these. It assumes no distribution. The draw is the same for the same
 * number of pairs, so the same samples have the same interval.
 */
#ifndef HOST_CTL_STATISTICS_H
#define HOST_CTL_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>

enum {
	STATISTICS_SAMPLES_MAX = 100000,
	STATISTICS_PAIRS_MIN = 6, /* fewer pairs tell nothing of how far a median moves */
	STATISTICS_RESAMPLES = 10000,
	STATISTICS_CONFIDENCE = 95, /* percent */
};

/* Of at least one sample. The quartiles are the spread: half of all samples lie between them. */
struct statistics {
	size_t count;
	double minimum, lower, median, upper, maximum;
};

struct statistics_ratio {
	double ratio;	  /* of the medians */
	double low, high; /* the interval; both are the ratio when it is not known */
	bool known;	  /* there were pairs enough */
};

/* Of samples in any order, 1 to STATISTICS_SAMPLES_MAX of them. 0 or -ENOMEM; -EINVAL: none, or too many. */
int statistics_of(const double *samples, size_t count, struct statistics *statistics);

/* The value that `part` (0 to 1) of the sorted samples do not exceed, interpolated between two of them. */
double statistics_quantile(const double *sorted, size_t count, double part);

/*
 * a / b of `count` pairs in the order of their measurement. 0 or -ENOMEM; -EINVAL: none, too many, or a
 * sample that is not above 0.
 */
int statistics_compare(const double *a, const double *b, size_t count, struct statistics_ratio *ratio);

#endif
