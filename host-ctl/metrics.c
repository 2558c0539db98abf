/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/metrics.h"
#include "common/version.h"

#include <errno.h>
#include <stddef.h>

/* Upper bounds in microseconds: from a warm request's first byte to a slow boot. */
static const uint32_t bounds_us[METRICS_BUCKETS] = {
	100, 200, 400, 800, 1600, 3200, 6400, 12800, 51200, 204800, 819200, 3276800, 13107200, 60000000};

static const char *const result_names[METRICS_RESULT_COUNT] = {
	[METRICS_EXITED] = "exited",
	[METRICS_SIGNALLED] = "signalled",
	[METRICS_TIMED_OUT] = "timed_out",
	[METRICS_OUT_OF_MEMORY] = "out_of_memory",
	[METRICS_FAILED_TO_START] = "failed_to_start",
	[METRICS_KILLED] = "killed",
};

static const struct {
	const char *name, *labels, *help;
	size_t offset;
} counters[] = {
	{"tinderbox_http_requests_total", "", "Requests answered or upgraded.",
		offsetof(struct metrics, http_requests)},
	{"tinderbox_claims_total", "{warm=\"true\"}", "VMs handed to runs.",
		offsetof(struct metrics, claims_warm)},
	{"tinderbox_claims_total", "{warm=\"false\"}", NULL, offsetof(struct metrics, claims_waited)},
	{"tinderbox_clients_left_total", "", "Clients that left before their run ended.",
		offsetof(struct metrics, clients_left)},
	{"tinderbox_vm_starts_total", "", "VMs launched.", offsetof(struct metrics, vms_started)},
	{"tinderbox_vm_start_failures_total", "", "VMs that never became warm.",
		offsetof(struct metrics, starts_failed)},
	{"tinderbox_vm_warm_lost_total", "", "VMs that died while warm.",
		offsetof(struct metrics, warm_lost)},
	{"tinderbox_leftovers_removed_total", "", "VMs of an earlier daemon that the start removed.",
		offsetof(struct metrics, leftovers_removed)},
};

static const struct {
	const char *name, *help;
	size_t offset;
} histograms[] = {
	{"tinderbox_run_first_byte_seconds", "From a run's request to the first byte of its output.",
		offsetof(struct metrics, first_byte)},
	{"tinderbox_queue_wait_seconds", "From a run's request to its VM.",
		offsetof(struct metrics, queue_wait)},
	{"tinderbox_run_seconds", "From a run's request to its result.", offsetof(struct metrics, run)},
	{"tinderbox_vm_boot_seconds", "From the launch of a VM until it was warm.",
		offsetof(struct metrics, boot)},
};

void metrics_observe(struct metrics_histogram *histogram, uint64_t nanoseconds)
{
	int bucket = 0;

	while (bucket < METRICS_BUCKETS && nanoseconds > bounds_us[bucket] * UINT64_C(1000))
		bucket++;
	histogram->buckets[bucket]++;
	histogram->count++;
	histogram->sum_ns += nanoseconds;
}

static void write_histogram(const struct metrics_histogram *histogram, const char *name, FILE *out)
{
	uint64_t below = 0;

	for (int i = 0; i < METRICS_BUCKETS; i++) {
		below += histogram->buckets[i];
		fprintf(out, "%s_bucket{le=\"%g\"} %llu\n", name, bounds_us[i] / 1e6,
			(unsigned long long)below);
	}
	fprintf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9f\n%s_count %llu\n", name,
		(unsigned long long)histogram->count, name, (double)histogram->sum_ns / 1e9, name,
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
	write_head("tinderbox_build_info", "The version, as a label.", "gauge", out);
	fprintf(out, "tinderbox_build_info{version=\"%s\"} 1\n", TINDERBOX_VERSION);
}

int metrics_write(const struct metrics *metrics, const struct metrics_gauges *gauges, FILE *out)
{
	const char *base = (const char *)metrics;

	write_gauges(gauges, out);
	for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
		const uint64_t *value = (const void *)(base + counters[i].offset);

		if (counters[i].help)
			write_head(counters[i].name, counters[i].help, "counter", out);
		fprintf(out, "%s%s %llu\n", counters[i].name, counters[i].labels, (unsigned long long)*value);
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
	for (size_t i = 0; i < sizeof histograms / sizeof histograms[0]; i++) {
		write_head(histograms[i].name, histograms[i].help, "histogram", out);
		write_histogram((const void *)(base + histograms[i].offset), histograms[i].name, out);
	}
	return ferror(out) ? -EIO : 0;
}
