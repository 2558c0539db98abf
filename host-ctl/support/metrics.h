/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon counts, and its Prometheus text (exposition format 0.0.4). Memory is fixed. */
#ifndef HOST_CTL_METRICS_H
#define HOST_CTL_METRICS_H

#include "host-ctl/support/error.h"
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

/* How a VM came to be. */
enum metrics_start { METRICS_CLONE, METRICS_BOOT, METRICS_START_COUNT };

enum {
	METRICS_BUCKETS = 17,
	METRICS_POOLS_MAX = 16, /* and so of different values of the label `template` */
	METRICS_STATES_MAX = 16,
	METRICS_LABEL_MAX = 64, /* NUL included */
};

struct metrics_histogram {
	uint64_t buckets[METRICS_BUCKETS + 1]; /* each its own count; the last is above every bound */
	uint64_t count, sum_ns, max_ns;
};

/* Of one pool, labelled with its template's name. */
struct metrics_pool {
	char label[METRICS_LABEL_MAX]; /* empty: not in use. Needs no escape */
	uint64_t hits, misses;	       /* claims that found a warm VM, and that did not */
	uint64_t waited;	       /* misses that got a VM */
	uint64_t starts, starts_failed, warm_lost;
	/* From a run's request to its VM, and to the first byte of its output; from the start of a VM until
	 * it was warm. */
	struct metrics_histogram claim, first_byte, refill[METRICS_START_COUNT];
};

struct metrics {
	uint64_t http_requests;
	uint64_t results[METRICS_RESULT_COUNT];
	uint64_t errors[ERROR_COUNT]; /* answered or ended with */
	uint64_t clients_left, leftovers_removed, replays, cold_starts;
	uint64_t snapshots, snapshots_failed; /* of sandboxes, as templates */
	struct metrics_histogram run, copy_pause;
	struct metrics_pool pools[METRICS_POOLS_MAX];
};

/* Present state, read at the time of the request. */
struct metrics_gauges {
	unsigned int target, warm, starting, busy, ending, queued;
	/* How many sandboxes are in which state; those without a name are none. */
	struct {
		const char *state;
		unsigned int count;
	} sandboxes[METRICS_STATES_MAX];
	unsigned int commands;	/* that run */
	unsigned int listeners; /* of the events */
};

/* A place for what one more pool counts, all 0, until metrics_remove_pool. NULL: there are METRICS_POOLS_MAX.
 */
struct metrics_pool *metrics_add_pool(struct metrics *metrics, const char *label);
/* Takes NULL. */
void metrics_remove_pool(struct metrics_pool *pool);

void metrics_observe(struct metrics_histogram *histogram, uint64_t nanoseconds);
/* What so many of a thousand observations were within, estimated within its bucket, as far as the greatest of
 * them. 0: there are none. */
uint64_t metrics_quantile_ns(const struct metrics_histogram *histogram, unsigned int per_mille);
/* {"count","sum_us","p50_us","p99_us"}; the caller's reference. NULL without memory. */
json_t *metrics_histogram_to_json(const struct metrics_histogram *histogram);
/* 0, or -EIO of the stream. */
int metrics_write(const struct metrics *metrics, const struct metrics_gauges *gauges, FILE *out);

#endif
