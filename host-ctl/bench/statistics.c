/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/bench/statistics.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

double statistics_quantile(const double *sorted, size_t count, double part)
{
	double place = part * (double)(count - 1);
	size_t below = (size_t)place;

	if (below + 1 >= count)
		return sorted[count - 1];
	return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

int statistics_of(const double *samples, size_t count, struct statistics *statistics)
{
	double *sorted;

	if (count == 0 || count > STATISTICS_SAMPLES_MAX)
		return -EINVAL;
	sorted = malloc(count * sizeof(sorted[0]));
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, samples, count * sizeof(sorted[0]));
	qsort(sorted, count, sizeof(sorted[0]), compare);
	*statistics = (struct statistics){
		.count = count,
		.minimum = sorted[0],
		.lower = statistics_quantile(sorted, count, 0.25),
		.median = statistics_quantile(sorted, count, 0.5),
		.upper = statistics_quantile(sorted, count, 0.75),
		.maximum = sorted[count - 1],
	};
	free(sorted);
	return 0;
}

/* ---- the interval ---- */

struct ranked {
	double value;
	size_t pair;
};

/* One kind: its values in order, which of them each pair has, and how often each was drawn this time. */
struct kind {
	struct ranked *sorted;
	size_t *rank;
	unsigned *drawn;
};

struct draw {
	size_t count;
	struct kind kinds[2];
	double *ratios; /* one of each resample */
};

static int compare_ranked(const void *left, const void *right)
{
	const struct ranked *a = left, *b = right;

	return (a->value > b->value) - (a->value < b->value);
}

static int prepare_kind(struct kind *kind, const double *samples, size_t count)
{
	kind->sorted = calloc(count, sizeof(kind->sorted[0]));
	kind->rank = calloc(count, sizeof(kind->rank[0]));
	kind->drawn = calloc(count, sizeof(kind->drawn[0]));
	if (!kind->sorted || !kind->rank || !kind->drawn)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		kind->sorted[i] = (struct ranked){samples[i], i};
	qsort(kind->sorted, count, sizeof(kind->sorted[0]), compare_ranked);
	for (size_t i = 0; i < count; i++)
		kind->rank[kind->sorted[i].pair] = i;
	return 0;
}

/* The value that has `before` drawn ones below it. */
static double drawn_value(const struct kind *kind, size_t count, size_t before)
{
	size_t i = 0;

	for (size_t seen = kind->drawn[0]; seen <= before && i + 1 < count; seen += kind->drawn[i])
		i++;
	return kind->sorted[i].value;
}

static double drawn_median(const struct kind *kind, size_t count)
{
	double upper = drawn_value(kind, count, count / 2);

	return count % 2 ? upper : (drawn_value(kind, count, count / 2 - 1) + upper) / 2;
}

/* SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static double resample(struct draw *draw, uint64_t *random)
{
	struct kind *a = &draw->kinds[0], *b = &draw->kinds[1];

	memset(a->drawn, 0, draw->count * sizeof(a->drawn[0]));
	memset(b->drawn, 0, draw->count * sizeof(b->drawn[0]));
	for (size_t i = 0; i < draw->count; i++) {
		size_t pair = (size_t)(next_random(random) % draw->count);

		a->drawn[a->rank[pair]]++;
		b->drawn[b->rank[pair]]++;
	}
	return drawn_median(a, draw->count) / drawn_median(b, draw->count);
}

static void find_interval(struct draw *draw, struct statistics_ratio *ratio)
{
	double outside = (1 - STATISTICS_CONFIDENCE / 100.0) / 2;
	uint64_t random = draw->count;

	for (size_t i = 0; i < STATISTICS_RESAMPLES; i++)
		draw->ratios[i] = resample(draw, &random);
	qsort(draw->ratios, STATISTICS_RESAMPLES, sizeof(draw->ratios[0]), compare);
	ratio->low = statistics_quantile(draw->ratios, STATISTICS_RESAMPLES, outside);
	ratio->high = statistics_quantile(draw->ratios, STATISTICS_RESAMPLES, 1 - outside);
	ratio->known = true;
}

static void finish_draw(struct draw *draw)
{
	for (size_t i = 0; i < 2; i++) {
		free(draw->kinds[i].sorted);
		free(draw->kinds[i].rank);
		free(draw->kinds[i].drawn);
	}
	free(draw->ratios);
}

int statistics_compare(const double *a, const double *b, size_t count, struct statistics_ratio *ratio)
{
	struct draw draw = {.count = count};
	struct statistics of_a, of_b;
	int r = statistics_of(a, count, &of_a);

	if (r == 0)
		r = statistics_of(b, count, &of_b);
	if (r == 0 && !(of_a.minimum > 0 && of_b.minimum > 0))
		r = -EINVAL;
	if (r < 0)
		return r;
	*ratio = (struct statistics_ratio){.ratio = of_a.median / of_b.median};
	ratio->low = ratio->high = ratio->ratio;
	if (count < STATISTICS_PAIRS_MIN)
		return 0;
	draw.ratios = calloc(STATISTICS_RESAMPLES, sizeof(draw.ratios[0]));
	r = draw.ratios ? prepare_kind(&draw.kinds[0], a, count) : -ENOMEM;
	if (r == 0)
		r = prepare_kind(&draw.kinds[1], b, count);
	if (r == 0)
		find_interval(&draw, ratio);
	finish_draw(&draw);
	return r;
}
