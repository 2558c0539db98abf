/* SPDX-License-Identifier: Apache-2.0 */
/* What GET /v1/pool says of a pool. */
#include "host-ctl/pool/pool_private.h"
#include "host-ctl/support/clock.h"

static json_t *vm_to_json(const struct vm *vm)
{
	uint64_t now = clock_now();
	json_t *boot = vm->booted
			       ? json_integer((json_int_t)((vm->warm_ns - vm->started_ns) / CLOCK_NS_PER_MS))
			       : json_null();

	return json_pack("{s:s,s:s,s:i,s:I,s:o}", "id", vm->id, "state", vm_state_name(vm), "pid",
		(int)vm->pid, "age_ms", (json_int_t)((now - vm->started_ns) / CLOCK_NS_PER_MS), "boot_ms",
		boot);
}

static json_t *times_to_json(const struct metrics_pool *metrics)
{
	return json_pack("{s:o,s:o,s:o,s:o}", "claim", metrics_histogram_to_json(&metrics->claim),
		"first_byte", metrics_histogram_to_json(&metrics->first_byte), "refill_clone",
		metrics_histogram_to_json(&metrics->refill[METRICS_CLONE]), "refill_boot",
		metrics_histogram_to_json(&metrics->refill[METRICS_BOOT]));
}

/* "template" and "generation": of what is handed out. */
static json_t *kind_to_json(const struct pool *pool)
{
	const json_t *generation =
		pool->template ? json_object_get(pool->template->about, "generation") : NULL;

	/* A pool that boots has no template; one that waits for its own has its name. */
	return json_pack("{s:s?,s:O?}", "template",
		pool->template || !pool->config.cold ? pool->metrics->label : NULL, "generation", generation);
}

json_t *pool_to_json(const struct pool *pool)
{
	const struct metrics_pool *metrics = pool->metrics;
	struct metrics_gauges now;
	json_t *vms = json_array(), *about = kind_to_json(pool), *rest;

	for (unsigned int i = 0; i < POOL_VMS_MAX; i++)
		if (pool->slots[i])
			json_array_append_new(vms, vm_to_json(pool->slots[i]));
	pool_read_gauges(pool, &now);
	rest = json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "target",
		(int)now.target, "warm", (int)now.warm, "starting", (int)now.starting, "busy", (int)now.busy,
		"queued", (int)now.queued, "queue_max", (int)pool->config.queue_max, "vms_max",
		(int)pool->config.slots->maximum, "claims_warm", (json_int_t)metrics->hits, "claims_missed",
		(json_int_t)metrics->misses, "claims_waited", (json_int_t)metrics->waited, "starts_failed",
		(json_int_t)metrics->starts_failed, "warm_lost", (json_int_t)metrics->warm_lost,
		"last_failure", pool->last_failure[0] ? json_string(pool->last_failure) : json_null(), "held",
		pool->held[0] ? json_string(pool->held) : json_null(), "times", times_to_json(metrics), "vms",
		vms);
	json_object_update(about, rest);
	json_decref(rest);
	return about;
}
