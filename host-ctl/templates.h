/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's templates and the pools on them: which there are, what is built, which pool clones what.
 *
 * One job at a time, a build or a load. At the start: `base`, from the disk when its inputs are the present
 * ones, built otherwise; then the others of the disk. The pool of `base` starts with it; when it cannot be
 * made, that pool boots its VMs (templates_ill_reason says why). A template that is not loaded (its image
 * changed, this CPU is another) stays on the disk and can be built again or removed.
 *
 * One that is built anew takes effect in its pool for VMs that start from then on. One is in use, and cannot
 * be removed, while a VM is of it or its pool has a target.
 */
#ifndef HOST_CTL_TEMPLATES_H
#define HOST_CTL_TEMPLATES_H

#include "host-ctl/pool.h"
#include "host-ctl/standby.h"
#include "host-ctl/template_build.h"

enum {
	TEMPLATES_POOLS_MAX = 16,
	TEMPLATES_SLOT = POOL_VMS_MAX, /* of VMs that build and check: beyond every pool's */
};

struct templates_config {
	const char *state_directory;
	bool cold; /* no templates at all: the first pool boots its VMs */
	struct vm_config vm;
	struct vm_source source; /* of base */
	const char *kernel_smp;	 /* in place of its kernel for several processors */
	unsigned int target, starts_max, queue_max, vms_max, standby;
	uint64_t reserve_bytes; /* as of room_init */
};

struct templates;

/*
 * full, emptied: as of pool_create; full for the pool of base, emptied when nothing is left of any pool or
 * job. NULL, with *error set.
 */
struct templates *templates_create(const struct templates_config *config, struct metrics *metrics,
	void (*full)(void *context), void (*emptied)(void *context), void *context, struct error *error);
/* Takes NULL. Only when it is empty. */
void templates_destroy(struct templates *templates);

/* Begins with base. 0 or -errno. */
int templates_start(struct templates *templates);
/* Ends the job, and every pool as pool_stop does. */
void templates_stop(struct templates *templates);
bool templates_are_empty(const struct templates *templates);

/* The pool of a template; NULL name: of base. NULL, with *error set: no such template is loaded, or there are
 * TEMPLATES_POOLS_MAX. One that had none gets one with the target 0. */
struct pool *templates_pool(struct templates *templates, const char *name, struct error *error);
/* The pool of base. */
struct pool *templates_base_pool(struct templates *templates);

/*
 * Builds one, or builds it anew. name, image, commands: in `request`, which is kept until done was called;
 * image NULL, memory_bytes 0, cpus 0: as base. 0, or -1 with *error set: invalid, exhausted (as of
 * room_check), or conflict while a build or a load is under way.
 */
struct templates_request {
	const char *name, *image;
	uint64_t memory_bytes;
	unsigned int cpus, count;
	const char *const *commands;
	const struct template_events *events;
	void *context;
};
int templates_build(
	struct templates *templates, const struct templates_request *request, struct error *error);
/* Ends the build that this context asked for: done is still called. */
void templates_cancel(struct templates *templates, const void *context, const char *cause);
/* There is room again for the output of that build. */
void templates_continue(struct templates *templates, const void *context);
/* 0, or -1 with *error set: not_found, or conflict: it is in use. */
int templates_remove(struct templates *templates, const char *name, struct error *error);
/* Each the caller's; NULL with *error set. */
json_t *templates_to_json(const struct templates *templates, struct error *error);
json_t *template_to_json(const struct templates *templates, const char *name, struct error *error);
/* Of every pool, base's first. NULL without memory. */
json_t *templates_pools_to_json(const struct templates *templates);

/* Sums over all pools. */
void templates_read_gauges(const struct templates *templates, struct metrics_gauges *gauges);
/* NULL: all is well. */
const char *templates_ill_reason(const struct templates *templates);

#endif
