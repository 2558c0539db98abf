/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon counts: labels, histograms, quantiles, and the text and JSON of them. */
#include "tests/support/unit.h"

#include "host-ctl/support/metrics.h"
#include <stdlib.h>
#include <string.h>

static char *write_all(const struct metrics *metrics)
{
	const struct metrics_gauges gauges = {
		.warm = 3, .sandboxes = {{"ready", 0}, {"stopped", 4}}, .commands = 5, .listeners = 6};
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);

	assert_int_equal(metrics_write(metrics, &gauges, out), 0);
	fclose(out);
	return text;
}

static void expect_line(const char *text, const char *line)
{
	char whole[256];

	snprintf(whole, sizeof whole, "\n%s\n", line);
	if (!strstr(text, whole))
		fail_msg("no line '%s'", line);
}

static int count_lines(const char *text, const char *start)
{
	int count = 0;

	for (const char *at = text; (at = strstr(at, start)); at++)
		count += at == text || at[-1] == '\n';
	return count;
}

static void test_histograms_are_cumulative(void **state)
{
	struct metrics metrics = {.http_requests = 7};
	char *text;

	(void)state;
	metrics_observe(&metrics.run, 100 * 1000);
	metrics_observe(&metrics.run, 100 * 1000 + 1);
	metrics_observe(&metrics.run, UINT64_C(61000000000));
	text = write_all(&metrics);
	expect_line(text, "tinderbox_vms{state=\"warm\"} 3");
	expect_line(text, "tinderbox_sandboxes{state=\"ready\"} 0");
	expect_line(text, "tinderbox_sandboxes{state=\"stopped\"} 4");
	expect_line(text, "tinderbox_commands_running 5");
	expect_line(text, "tinderbox_events_readers 6");
	expect_line(text, "tinderbox_http_requests_total 7");
	expect_line(text, "tinderbox_run_seconds_bucket{le=\"5e-05\"} 0");
	expect_line(text, "tinderbox_run_seconds_bucket{le=\"0.0001\"} 1");
	expect_line(text, "tinderbox_run_seconds_bucket{le=\"0.0002\"} 2");
	expect_line(text, "tinderbox_run_seconds_bucket{le=\"60\"} 2");
	expect_line(text, "tinderbox_run_seconds_bucket{le=\"+Inf\"} 3");
	expect_line(text, "tinderbox_run_seconds_sum 61.000200001");
	expect_line(text, "tinderbox_run_seconds_count 3");
	free(text);
}

static void test_pools_have_labels(void **state)
{
	struct metrics metrics = {.http_requests = 0};
	struct metrics_pool *base = metrics_add_pool(&metrics, "base");
	struct metrics_pool *tools = metrics_add_pool(&metrics, "tools");
	char *text;

	(void)state;
	base->hits = 5;
	tools->hits = 1;
	tools->misses = 2;
	metrics_observe(&base->claim, 1000);
	metrics_observe(&base->refill[METRICS_BOOT], 1000 * 1000);
	metrics_observe(&tools->refill[METRICS_CLONE], 1000 * 1000);
	metrics_observe(&tools->refill[METRICS_CLONE], 1000 * 1000);
	text = write_all(&metrics);
	expect_line(text, "tinderbox_pool_hits_total{template=\"base\"} 5");
	expect_line(text, "tinderbox_pool_hits_total{template=\"tools\"} 1");
	expect_line(text, "tinderbox_pool_misses_total{template=\"tools\"} 2");
	expect_line(text, "tinderbox_claim_seconds_bucket{template=\"base\",le=\"1e-05\"} 1");
	expect_line(text, "tinderbox_claim_seconds_count{template=\"tools\"} 0");
	expect_line(text, "tinderbox_refill_seconds_count{template=\"base\",kind=\"boot\"} 1");
	expect_line(text, "tinderbox_refill_seconds_count{template=\"base\",kind=\"clone\"} 0");
	expect_line(text, "tinderbox_refill_seconds_count{template=\"tools\",kind=\"clone\"} 2");
	/* One head for both kinds. */
	assert_int_equal(count_lines(text, "# TYPE tinderbox_refill_seconds histogram"), 1);
	free(text);
}

static void test_labels_are_bounded_and_leave_no_count(void **state)
{
	struct metrics metrics = {.http_requests = 0};
	struct metrics_pool *pools[METRICS_POOLS_MAX];
	char name[16], *text;

	(void)state;
	for (int i = 0; i < METRICS_POOLS_MAX; i++) {
		snprintf(name, sizeof name, "t%d", i);
		pools[i] = metrics_add_pool(&metrics, name);
		assert_non_null(pools[i]);
	}
	assert_null(metrics_add_pool(&metrics, "one more"));
	pools[3]->hits = 9;
	metrics_remove_pool(pools[3]);
	text = write_all(&metrics);
	assert_int_equal(count_lines(text, "tinderbox_pool_hits_total{"), METRICS_POOLS_MAX - 1);
	free(text);
	assert_ptr_equal(metrics_add_pool(&metrics, "t3"), pools[3]);
	assert_int_equal(pools[3]->hits, 0);
	metrics_remove_pool(NULL);
}

static void test_quantiles(void **state)
{
	struct metrics_histogram histogram = {.count = 0};
	json_t *json;

	(void)state;
	assert_int_equal(metrics_quantile_ns(&histogram, 500), 0);
	/* 90 within 10 us, 10 within 200 to 400 us. */
	for (int i = 0; i < 90; i++)
		metrics_observe(&histogram, 5000);
	for (int i = 0; i < 10; i++)
		metrics_observe(&histogram, 300 * 1000);
	assert_in_range(metrics_quantile_ns(&histogram, 500), 5000, 6000);
	assert_in_range(metrics_quantile_ns(&histogram, 900), 9999, 10000);
	assert_in_range(metrics_quantile_ns(&histogram, 990), 289 * 1000, 291 * 1000);
	json = metrics_histogram_to_json(&histogram);
	assert_int_equal(json_integer_value(json_object_get(json, "count")), 100);
	assert_int_equal(json_integer_value(json_object_get(json, "sum_us")), 90 * 5 + 10 * 300);
	assert_int_equal(json_integer_value(json_object_get(json, "p50_us")), 5);
	assert_int_equal(json_integer_value(json_object_get(json, "p99_us")), 290);
	json_decref(json);
	/* Beyond the last bound as well. */
	for (int i = 0; i < 1000; i++)
		metrics_observe(&histogram, UINT64_C(600000000000));
	assert_in_range(metrics_quantile_ns(&histogram, 990), UINT64_C(590000000000), UINT64_C(600000000000));
}

/* With few observations the bucket of the greatest reaches far beyond it. */
static void test_quantiles_end_at_the_maximum(void **state)
{
	static const uint64_t greatest[] = {
		0, 1, 13000 * 1000, UINT64_C(60000000000), UINT64_C(60000000001), UINT64_C(1) << 62};

	(void)state;
	for (size_t i = 0; i < sizeof greatest / sizeof greatest[0]; i++) {
		struct metrics_histogram histogram = {.count = 0};

		metrics_observe(&histogram, greatest[i]);
		for (unsigned int per_mille = 0; per_mille <= 1000; per_mille += 10)
			assert_true(metrics_quantile_ns(&histogram, per_mille) <= greatest[i]);
		assert_int_equal(metrics_quantile_ns(&histogram, 1000), greatest[i]);
		metrics_observe(&histogram, greatest[i] / 2);
		assert_true(metrics_quantile_ns(&histogram, 990) <= greatest[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_histograms_are_cumulative),
		cmocka_unit_test(test_pools_have_labels),
		cmocka_unit_test(test_labels_are_bounded_and_leave_no_count),
		cmocka_unit_test(test_quantiles),
		cmocka_unit_test(test_quantiles_end_at_the_maximum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
