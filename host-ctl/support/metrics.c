/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/metrics.h"
#include "common/version.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Upper bounds in microseconds: from a claim that finds a warm VM to a slow boot. */
static const uint32_t bounds_us[METRICS_BUCKETS] = {10, 25, 50, 100, 200, 400, 800, 1600, 3200, 6400, 12800,
	51200, 204800, 819200, 3276800, 13107200, 60000000};

static const char *const result_names[METRICS_RESULT_COUNT] = {
	[METRICS_EXITED] = "exited",
	[METRICS_SIGNALLED] = "signalled",
	[METRICS_TIMED_OUT] = "timed_out",
	[METRICS_OUT_OF_MEMORY] = "out_of_memory",
	[METRICS_FAILED_TO_START] = "failed_to_start",
	[METRICS_KILLED] = "killed",
};

static const struct {
	const char *name, *help;
	size_t offset;
} counters[] = {
	{"tinderbox_http_requests_total", "Requests answered or upgraded.",
		offsetof(struct metrics, http_requests)},
	{"tinderbox_clients_left_total", "Clients that left before their run ended.",
		offsetof(struct metrics, clients_left)},
	{"tinderbox_leftovers_removed_total", "VMs of an earlier daemon that the start removed.",
		offsetof(struct metrics, leftovers_removed)},
	{"tinderbox_replays_total", "Requests answered with the answer of an earlier one of their key.",
		offsetof(struct metrics, replays)},
	{"tinderbox_snapshots_total", "Templates that were made of sandboxes.",
		offsetof(struct metrics, snapshots)},
	{"tinderbox_snapshots_failed_total", "Those that were begun, and could not be.",
		offsetof(struct metrics, snapshots_failed)},
	{"tinderbox_cold_starts_total",
		"VMs that were to be booted for a sandbox of another shape than its template's.",
		offsetof(struct metrics, cold_starts)},
};

static const struct {
	const char *name, *help;
	size_t offset;
} pool_counters[] = {
	{"tinderbox_pool_hits_total", "Runs that found a warm VM.", offsetof(struct metrics_pool, hits)},
	{"tinderbox_pool_misses_total", "Runs that found none: they waited, or were refused.",
		offsetof(struct metrics_pool, misses)},
	{"tinderbox_pool_waited_total", "Runs that found none and got one later.",
		offsetof(struct metrics_pool, waited)},
	{"tinderbox_vm_starts_total", "VMs launched.", offsetof(struct metrics_pool, starts)},
	{"tinderbox_vm_start_failures_total", "VMs that never became warm.",
		offsetof(struct metrics_pool, starts_failed)},
	{"tinderbox_vm_warm_lost_total", "VMs that died while warm.",
		offsetof(struct metrics_pool, warm_lost)},
};

/* Neighbours of one name have one head. */
static const struct {
	const char *name, *labels, *help;
	size_t offset;
} pool_histograms[] = {
	{"tinderbox_claim_seconds", "", "From a run's request to its VM.",
		offsetof(struct metrics_pool, claim)},
	{"tinderbox_run_first_byte_seconds", "", "From a run's request to the first byte of its output.",
		offsetof(struct metrics_pool, first_byte)},
	{"tinderbox_refill_seconds", ",kind=\"clone\"", "From the start of a VM until it was warm.",
		offsetof(struct metrics_pool, refill[METRICS_CLONE])},
	{"tinderbox_refill_seconds", ",kind=\"boot\"", NULL,
		offsetof(struct metrics_pool, refill[METRICS_BOOT])},
};

struct metrics_pool *metrics_add_pool(struct metrics *metrics, const char *label)
{
	for (int i = 0; i < METRICS_POOLS_MAX; i++) {
		struct metrics_pool *pool = &metrics->pools[i];

		if (pool->label[0])
			continue;
		*pool = (struct metrics_pool){.hits = 0};
		snprintf(pool->label, sizeof pool->label, "%s", label);
		return pool;
	}
	return NULL;
}

void metrics_remove_pool(struct metrics_pool *pool)
{
	if (pool)
		pool->label[0] = '\0';
}

void metrics_observe(struct metrics_histogram *histogram, uint64_t nanoseconds)
{
	int bucket = 0;

	while (bucket < METRICS_BUCKETS && nanoseconds > bounds_us[bucket] * UINT64_C(1000))
		bucket++;
	histogram->buckets[bucket]++;
	histogram->count++;
	histogram->sum_ns += nanoseconds;
	if (nanoseconds > histogram->max_ns)
		histogram->max_ns = nanoseconds;
}

/* Where a bucket begins, in nanoseconds. */
static uint64_t lower_bound(int bucket)
{
	return bucket ? bounds_us[bucket - 1] * UINT64_C(1000) : 0;
}

uint64_t metrics_quantile_ns(const struct metrics_histogram *histogram, unsigned int per_mille)
{
	double wanted = (double)histogram->count * per_mille / 1000;
	double below = 0;

	for (int i = 0; i <= METRICS_BUCKETS; i++) {
		double here = (double)histogram->buckets[i];
		uint64_t from = lower_bound(i), to = histogram->max_ns;

		if (i < METRICS_BUCKETS && lower_bound(i + 1) < to)
			to = lower_bound(i + 1);
		if (here > 0 && below + here >= wanted)
			return from + (uint64_t)((double)(to - from) * (wanted - below) / here);
		below += here;
	}
	return histogram->max_ns;
}

json_t *metrics_histogram_to_json(const struct metrics_histogram *histogram)
{
	return json_pack("{s:I,s:I,s:I,s:I}", "count", (json_int_t)histogram->count, "sum_us",
		(json_int_t)(histogram->sum_ns / 1000), "p50_us",
		(json_int_t)(metrics_quantile_ns(histogram, 500) / 1000), "p99_us",
		(json_int_t)(metrics_quantile_ns(histogram, 990) / 1000));
}

/* labels: those of every line, without braces; may be empty. */
static void write_histogram(
	const struct metrics_histogram *histogram, const char *name, const char *labels, FILE *out)
{
	const char *open = labels[0] ? "{" : "", *close = labels[0] ? "}" : "", *comma = labels[0] ? "," : "";
	uint64_t below = 0;

	for (int i = 0; i < METRICS_BUCKETS; i++) {
		below += histogram->buckets[i];
		fprintf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, labels, comma, bounds_us[i] / 1e6,
			(unsigned long long)below);
	}
	fprintf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, labels, comma,
		(unsigned long long)histogram->count);
	fprintf(out, "%s_sum%s%s%s %.9f\n%s_count%s%s%s %llu\n", name, open, labels, close,
		(double)histogram->sum_ns / 1e9, name, open, labels, close,
		(unsigned long long)histogram->count);
}

static void write_head(const char *name, const char *help, const char *type, FILE *out)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_gauges(const struct metrics_gauges *gauges, FILE *out)
{
	write_head("tinderbox_vms", "VMs by state.", "gauge", out);
	fprintf(out, "tinderbox_vms{state=\"warm\"} %u\n", gauges->warm);
	fprintf(out, "tinderbox_vms{state=\"starting\"} %u\n", gauges->starting);
	fprintf(out, "tinderbox_vms{state=\"busy\"} %u\n", gauges->busy);
	fprintf(out, "tinderbox_vms{state=\"ending\"} %u\n", gauges->ending);
	write_head("tinderbox_pool_target", "Warm VMs wanted.", "gauge", out);
	fprintf(out, "tinderbox_pool_target %u\n", gauges->target);
	write_head("tinderbox_queue_length", "Runs that wait for a VM.", "gauge", out);
	fprintf(out, "tinderbox_queue_length %u\n", gauges->queued);
	write_head("tinderbox_sandboxes", "Sandboxes that are known, by state.", "gauge", out);
	for (int i = 0; i < METRICS_STATES_MAX && gauges->sandboxes[i].state; i++)
		fprintf(out, "tinderbox_sandboxes{state=\"%s\"} %u\n", gauges->sandboxes[i].state,
			gauges->sandboxes[i].count);
	write_head("tinderbox_commands_running", "Commands that run in sandboxes.", "gauge", out);
	fprintf(out, "tinderbox_commands_running %u\n", gauges->commands);
	write_head("tinderbox_events_readers", "Clients that follow the events.", "gauge", out);
	fprintf(out, "tinderbox_events_readers %u\n", gauges->listeners);
	write_head("tinderbox_build_info", "The version, as a label.", "gauge", out);
	fprintf(out, "tinderbox_build_info{version=\"%s\"} 1\n", TINDERBOX_VERSION);
}

static void write_counters(const struct metrics *metrics, FILE *out)
{
	for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
		const uint64_t *value = (const void *)((const char *)metrics + counters[i].offset);

		write_head(counters[i].name, counters[i].help, "counter", out);
		fprintf(out, "%s %llu\n", counters[i].name, (unsigned long long)*value);
	}
	write_head("tinderbox_runs_total", "Runs with a result, by its kind.", "counter", out);
	for (int i = 0; i < METRICS_RESULT_COUNT; i++)
		fprintf(out, "tinderbox_runs_total{result=\"%s\"} %llu\n", result_names[i],
			(unsigned long long)metrics->results[i]);
	write_head("tinderbox_errors_total", "Requests and runs that ended with an error, by its code.",
		"counter", out);
	for (int i = ERROR_NONE + 1; i < ERROR_COUNT; i++)
		fprintf(out, "tinderbox_errors_total{code=\"%s\"} %llu\n", error_code(i),
			(unsigned long long)metrics->errors[i]);
}

static void write_pool_counter(const struct metrics *metrics, size_t which, FILE *out)
{
	write_head(pool_counters[which].name, pool_counters[which].help, "counter", out);
	for (int i = 0; i < METRICS_POOLS_MAX; i++) {
		const struct metrics_pool *pool = &metrics->pools[i];
		const uint64_t *value = (const void *)((const char *)pool + pool_counters[which].offset);

		if (pool->label[0])
			fprintf(out, "%s{template=\"%s\"} %llu\n", pool_counters[which].name, pool->label,
				(unsigned long long)*value);
	}
}

static void write_pool_histogram(const struct metrics *metrics, size_t which, FILE *out)
{
	char labels[METRICS_LABEL_MAX + 32];

	if (pool_histograms[which].help)
		write_head(pool_histograms[which].name, pool_histograms[which].help, "histogram", out);
	for (int i = 0; i < METRICS_POOLS_MAX; i++) {
		const struct metrics_pool *pool = &metrics->pools[i];

		if (!pool->label[0])
			continue;
		snprintf(labels, sizeof labels, "template=\"%s\"%s", pool->label,
			pool_histograms[which].labels);
		write_histogram((const void *)((const char *)pool + pool_histograms[which].offset),
			pool_histograms[which].name, labels, out);
	}
}

int metrics_write(const struct metrics *metrics, const struct metrics_gauges *gauges, FILE *out)
{
	write_gauges(gauges, out);
	write_counters(metrics, out);
	for (size_t i = 0; i < sizeof pool_counters / sizeof pool_counters[0]; i++)
		write_pool_counter(metrics, i, out);
	write_head("tinderbox_run_seconds", "From a run's request to its result.", "histogram", out);
	write_histogram(&metrics->run, "tinderbox_run_seconds", "", out);
	write_head("tinderbox_copy_pause_seconds",
		"How long a sandbox stood while it was copied, for a fork or a snapshot.", "histogram", out);
	write_histogram(&metrics->copy_pause, "tinderbox_copy_pause_seconds", "", out);
	for (size_t i = 0; i < sizeof pool_histograms / sizeof pool_histograms[0]; i++)
		write_pool_histogram(metrics, i, out);
	return ferror(out) ? -EIO : 0;
}
