/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of benchmarks, on samples whose answers are known. */
#include "tests/support/unit.h"

#include "host-ctl/bench/series.h"
#include "host-ctl/bench/statistics.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void figures_of_known_samples(void **state)
{
	static const double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
	struct statistics of;

	(void)state;
	assert_int_equal(statistics_of(odd, 5, &of), 0);
	assert_int_equal(of.count, 5);
	assert_true(of.minimum == 1 && of.lower == 2 && of.median == 3 && of.upper == 4 && of.maximum == 5);
	assert_int_equal(statistics_of(even, 4, &of), 0);
	assert_true(of.lower == 1.75 && of.median == 2.5 && of.upper == 3.25);
	assert_int_equal(statistics_of(one, 1, &of), 0);
	assert_true(of.minimum == 7 && of.median == 7 && of.maximum == 7);
	assert_int_equal(statistics_of(one, 0, &of), -EINVAL);
	assert_int_equal(statistics_of(one, STATISTICS_SAMPLES_MAX + 1, &of), -EINVAL);
}

/* What is always twice the other is so in each resample. */
static void a_constant_ratio_is_certain(void **state)
{
	double a[40], b[40];
	struct statistics_ratio ratio;

	(void)state;
	for (int i = 0; i < 40; i++) {
		b[i] = 10 + i * i % 17;
		a[i] = 2 * b[i];
	}
	assert_int_equal(statistics_compare(a, b, 40, &ratio), 0);
	assert_true(ratio.known && ratio.ratio == 2 && ratio.low == 2 && ratio.high == 2);
}

static void few_pairs_have_no_interval(void **state)
{
	static const double a[] = {1, 2, 3, 4, 5, 6}, b[] = {2, 2, 2, 2, 2, 2}, zero[] = {1, 0};
	struct statistics_ratio ratio;

	(void)state;
	assert_int_equal(statistics_compare(a, b, STATISTICS_PAIRS_MIN - 1, &ratio), 0);
	assert_false(ratio.known);
	assert_true(ratio.ratio == 1.5 && ratio.low == 1.5 && ratio.high == 1.5);
	assert_int_equal(statistics_compare(a, b, STATISTICS_PAIRS_MIN, &ratio), 0);
	assert_true(ratio.known && ratio.low < 1.75 && ratio.high > 1.75);
	assert_int_equal(statistics_compare(zero, b, 2, &ratio), -EINVAL);
	assert_int_equal(statistics_compare(a, b, 0, &ratio), -EINVAL);
}

static void the_same_samples_have_the_same_interval(void **state)
{
	double a[30], b[30];
	struct statistics_ratio first, second;

	(void)state;
	for (int i = 0; i < 30; i++) {
		a[i] = 100 + i * 7 % 13;
		b[i] = 100 + i * 5 % 11;
	}
	assert_int_equal(statistics_compare(a, b, 30, &first), 0);
	assert_int_equal(statistics_compare(a, b, 30, &second), 0);
	assert_true(first.low == second.low && first.high == second.high && first.low < first.high);
}

/* A bell curve of about that width around 100, of twelve sums. */
static double noise(unsigned *seed, double width)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += (double)rand_r(seed) / RAND_MAX;
	return 100 + sum * width;
}

/* An interval of 95 % holds the true ratio about that often, also where both share the machine's mood. */
static void intervals_hold_the_truth(void **state)
{
	enum { TRIALS = 100, PAIRS = 30 };
	double a[PAIRS], b[PAIRS];
	struct statistics_ratio ratio;
	unsigned seed = 1;
	int held = 0;

	(void)state;
	for (int trial = 0; trial < TRIALS; trial++) {
		for (int i = 0; i < PAIRS; i++) {
			double mood = noise(&seed, 10) / 100;

			a[i] = 0.9 * noise(&seed, 5) * mood;
			b[i] = noise(&seed, 5) * mood;
		}
		assert_int_equal(statistics_compare(a, b, PAIRS, &ratio), 0);
		held += ratio.low <= 0.9 && ratio.high >= 0.9;
	}
	assert_in_range(held, 88, TRIALS);
}

static void a_series_is_told(void **state)
{
	char *text = NULL;
	size_t length;
	FILE *to = open_memstream(&text, &length);
	struct series series;
	json_t *object;

	(void)state;
	assert_int_equal(series_init(&series, 3, 1), -EINVAL);
	assert_int_equal(series_init(&series, 2, SERIES_ROUNDS_MAX + 1), -EINVAL);
	assert_int_equal(series_init(&series, 2, 8), 0);
	strcpy(series.names[0], "one");
	strcpy(series.names[1], "other");
	for (int i = 0; i < 8; i++) {
		series_add(&series, 0, 1000000);
		series_add(&series, 1, 2000000);
	}
	assert_int_equal(series_print(to, &series), 0);
	assert_int_equal(fclose(to), 0);
	assert_non_null(strstr(text, "\none  "));
	assert_non_null(strstr(text,
		"ratio of the medians, first / second: 0.500, 95 % of resampled turns within 0.500 to "
		"0.500: the first is faster\n"));
	object = series_to_json(&series);
	assert_true(json_real_value(json_object_get(json_object_get(object, "ratio"), "of_medians")) == 0.5);
	assert_int_equal(json_array_size(json_object_get(
				 json_array_get(json_object_get(object, "kinds"), 1), "samples_ns")),
		8);
	json_decref(object);
	series_finish(&series);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_of_known_samples),
		cmocka_unit_test(a_constant_ratio_is_certain),
		cmocka_unit_test(few_pairs_have_no_interval),
		cmocka_unit_test(the_same_samples_have_the_same_interval),
		cmocka_unit_test(intervals_hold_the_truth),
		cmocka_unit_test(a_series_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
