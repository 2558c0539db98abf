/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/bench/series.h"
#include "host-ctl/bench/statistics.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define NS_PER_MS 1e6

enum { NAME_WIDTH = 52 };

int series_init(struct series *series, size_t kinds, size_t rounds)
{
	*series = (struct series){.kinds = kinds};
	if (kinds == 0 || kinds > SERIES_KINDS_MAX || rounds == 0 || rounds > SERIES_ROUNDS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < kinds; i++) {
		series->ns[i] = calloc(rounds, sizeof(series->ns[i][0]));
		if (!series->ns[i])
			return -ENOMEM;
	}
	return 0;
}

void series_finish(struct series *series)
{
	for (size_t i = 0; i < SERIES_KINDS_MAX; i++)
		free(series->ns[i]);
	*series = (struct series){0};
}

void series_add(struct series *series, size_t kind, uint64_t ns)
{
	series->ns[kind][series->count[kind]++] = (double)ns;
}

static bool is_pair(const struct series *series)
{
	return series->kinds == 2 && series->count[0] > 0 && series->count[0] == series->count[1];
}

static int print_ratio(FILE *to, const struct series *series)
{
	struct statistics_ratio ratio;
	int r = statistics_compare(series->ns[0], series->ns[1], series->count[0], &ratio);

	if (r < 0)
		return r;
	fprintf(to, "\nratio of the medians, first / second: %.3f", ratio.ratio);
	if (!ratio.known)
		fprintf(to, " (no interval: %d turns are needed)\n", STATISTICS_PAIRS_MIN);
	else
		fprintf(to, ", %d %% of resampled turns within %.3f to %.3f: %s\n", STATISTICS_CONFIDENCE,
			ratio.low, ratio.high,
			ratio.high < 1	? "the first is faster"
			: ratio.low > 1 ? "the second is faster"
					: "no difference is shown");
	return 0;
}

int series_print(FILE *to, const struct series *series)
{
	fprintf(to, "%-*s %10s %23s %10s %6s\n", NAME_WIDTH, "ms", "median", "half of them within", "minimum",
		"n");
	for (size_t i = 0; i < series->kinds; i++) {
		struct statistics of;
		char spread[48];
		int r = statistics_of(series->ns[i], series->count[i], &of);

		if (r < 0)
			return r;
		snprintf(spread, sizeof(spread), "%.3f to %.3f", of.lower / NS_PER_MS, of.upper / NS_PER_MS);
		fprintf(to, "%-*.*s %10.3f %23s %10.3f %6zu\n", NAME_WIDTH, NAME_WIDTH, series->names[i],
			of.median / NS_PER_MS, spread, of.minimum / NS_PER_MS, of.count);
	}
	return is_pair(series) ? print_ratio(to, series) : 0;
}

static json_t *kind_to_json(const struct series *series, size_t kind)
{
	json_t *samples = json_array();
	struct statistics of;

	if (statistics_of(series->ns[kind], series->count[kind], &of) < 0) {
		json_decref(samples);
		return NULL;
	}
	for (size_t i = 0; i < series->count[kind]; i++)
		json_array_append_new(samples, json_integer((json_int_t)series->ns[kind][i]));
	return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:o}", "name", series->names[kind], "median_ns",
		of.median, "lower_quartile_ns", of.lower, "upper_quartile_ns", of.upper, "minimum_ns",
		of.minimum, "maximum_ns", of.maximum, "samples_ns", samples);
}

json_t *series_to_json(const struct series *series)
{
	json_t *object = json_object(), *kinds = json_array();
	struct statistics_ratio ratio;

	json_object_set_new(object, "kinds", kinds);
	for (size_t i = 0; i < series->kinds; i++)
		json_array_append_new(kinds, kind_to_json(series, i));
	if (!is_pair(series))
		return object;
	if (statistics_compare(series->ns[0], series->ns[1], series->count[0], &ratio) < 0) {
		json_decref(object);
		return NULL;
	}
	json_object_set_new(object, "ratio",
		ratio.known ? json_pack("{s:f, s:f, s:f, s:i}", "of_medians", ratio.ratio, "low", ratio.low,
				      "high", ratio.high, "confidence_percent", STATISTICS_CONFIDENCE)
			    : json_pack("{s:f}", "of_medians", ratio.ratio));
	return object;
}
