/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon counts, and its Prometheus text (exposition format 0.0.4). Memory is fixed. */
#ifndef HOST_CTL_METRICS_H
#define HOST_CTL_METRICS_H

#include "host-ctl/error.h"
#include <stdint.h>
#include <stdio.h>

/* How a run ended, as the API names it. */
enum metrics_result {
	METRICS_EXITED,
	METRICS_SIGNALLED,
	METRICS_TIMED_OUT,
	METRICS_OUT_OF_MEMORY,
	METRICS_FAILED_TO_START,
	METRICS_KILLED,
	METRICS_RESULT_COUNT
};

enum { METRICS_BUCKETS = 14 };

struct metrics_histogram {
	uint64_t buckets[METRICS_BUCKETS + 1]; /* each its own count; the last is above every bound */
	uint64_t count, sum_ns;
};

struct metrics {
	uint64_t http_requests;
	uint64_t results[METRICS_RESULT_COUNT];
	uint64_t errors[ERROR_COUNT]; /* answered or ended with */
	uint64_t claims_warm, claims_waited;
	uint64_t clients_left;
	uint64_t vms_started, starts_failed, warm_lost, leftovers_removed;
	struct metrics_histogram first_byte, queue_wait, boot, run;
};

/* Present state, read at the time of the request. */
struct metrics_gauges {
	unsigned int target, warm, starting, busy, ending, queued;
};

void metrics_observe(struct metrics_histogram *histogram, uint64_t nanoseconds);
/* 0, or -EIO of the stream. */
int metrics_write(const struct metrics *metrics, const struct metrics_gauges *gauges, FILE *out);

#endif
