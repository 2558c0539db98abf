/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's templates and the pools on them: which there are, what is built, which pool clones what.
 *
 *             ┌──a run on it, a target──▶ loading ──a clone got warm──┐
 *   stored ───┤ ◀──no room in memory───────┘ │                        ▼
 *             └──────build──────────▶        damaged ───build───▶   ready   (until it is removed, or the
 * daemon ends: then stored)
 *
 * Builds, and what is made of sandboxes, are made one at a time, in order; at most TEMPLATES_BUILDS_MAX wait.
 * Beside them, one at a time, are loads: of what is on the disk when a run or a pool's target asks for it,
 * which waits for that. A build and a load of one name do not meet. `base` is loaded at the start when its
 * inputs are the present ones, built otherwise; its pool starts with it. When it cannot be made, that pool
 * boots its VMs (templates_ill_reason says why), and it is tried again, as are loads for a target, after
 * TEMPLATES_RETRY_MIN_MS, twice as long each time, at most TEMPLATES_RETRY_MAX_MS.
 *
 * What is damaged, or is of an image that has changed, is not loaded again within TEMPLATES_FAULT_MS: whoever
 * asks is told the reason.
 *
 * One that is built anew takes effect at once: whoever asks its pool when the build is answered gets a clone
 * of the new one. One is in use, and cannot be removed, while a VM is of it or its pool has a target.
 */
#ifndef HOST_CTL_TEMPLATES_H
#define HOST_CTL_TEMPLATES_H

#include "host-ctl/pool/pool.h"
#include "host-ctl/pool/template_build.h"
#include "host-ctl/vm/standby.h"

enum {
	TEMPLATES_POOLS_MAX = 16,
	TEMPLATES_BUILDS_MAX = 8,
	TEMPLATES_SLOT = POOL_VMS_MAX, /* of VMs that builds, and the next of those that loads start */
	TEMPLATES_RETRY_MIN_MS = 2 * 1000,
	TEMPLATES_RETRY_MAX_MS = 5 * 60 * 1000,
	TEMPLATES_FAULT_MS = 10 * 1000,
};

struct templates_config {
	const char *state_directory;
	bool cold; /* no templates at all: the first pool boots its VMs */
	struct vm_config vm;
	struct vm_source source; /* of base */
	const char *kernel_smp;	 /* in place of its kernel for several processors */
	const char *mkfs;	 /* mkfs.ext4, for templates with a disk */
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
/* Ends the jobs, those that wait with not_ready, and every pool as pool_stop does. */
void templates_stop(struct templates *templates);
bool templates_are_empty(const struct templates *templates);

/*
 * The pool of a template; NULL name: of base. One that had none gets one with the target 0, and is loaded if
 * it is not yet: claims wait for that. NULL, with *error set: not_found; build_failed: it is damaged;
 * exhausted: there are TEMPLATES_POOLS_MAX.
 */
struct pool *templates_pool(struct templates *templates, const char *name, struct error *error);
/* The pool for a VM of an earlier daemon, which is of that template: it is in use, and is not loaded for
 * that. Without a place for one more pool, or with no such name, that of base. */
struct pool *templates_pool_of_found(struct templates *templates, const char *name);
/* The pool whose places VMs get that are made of their claimers' own (pool_claim_own). */
struct pool *templates_own_pool(const struct templates *templates);
/* What a VM with source->cpus processors is booted with, the daemon's own: kernel and initrd, which outlive
 * it. */
void templates_set_boot(const struct templates *templates, struct vm_source *source);
/* A size and a number of processors; 0: as the template's. */
struct templates_shape {
	uint64_t memory_bytes;
	unsigned int cpus;
};
/*
 * *source: what a VM of that shape is booted from, with a template's files, for pool_claim_own; the caller's
 * reference. NULL: that is the template's own shape, and its pool has such VMs. 0, or -1 with *error set:
 * not_found; build_failed: it is damaged; conflict: what was prepared is in its memory alone; invalid: it is
 * more memory than the host has, or there is no kernel for so many processors.
 */
int templates_shape_source(const struct templates *templates, const char *name,
	const struct templates_shape *wanted, struct pool_source **source, struct error *error);
/* The template of that name, as it is loaded; NULL: it is not. template_take keeps it. */
struct template *templates_loaded(const struct templates *templates, const char *name);
/* One that is there already; NULL, with *error set (not_found): there is none, or no such template. */
struct pool *templates_find_pool(const struct templates *templates, const char *name, struct error *error);
/* As templates_pool, with its target set; invalid: it and the other targets are more than there may be VMs.
 */
struct pool *templates_set_target(
	struct templates *templates, const char *name, unsigned int target, struct error *error);

/*
 * Builds one, or builds it anew, when its turn comes. name, image, commands: in `request`, which is kept
 * until done was called; image NULL, memory_bytes 0, cpus 0: as base; disk_bytes 0: none. progress tells
 * TEMPLATE_BOOTING, too. 0, or -1 with *error set: invalid, conflict, not_ready, exhausted (as of room_check,
 * or because TEMPLATES_BUILDS_MAX wait, or there are TEMPLATES_MAX), internal: the store cannot be read.
 */
struct templates_request {
	const char *name, *image;
	uint64_t memory_bytes, disk_bytes;
	unsigned int cpus, count;
	const char *const *commands;
	const struct template_saved *saved; /* of templates_make; else NULL */
	const struct template_events *events;
	void *context;
};
int templates_build(
	struct templates *templates, const struct templates_request *request, struct error *error);
/*
 * Makes one of a guest that was saved, when its turn among the builds comes; saved is kept until done was
 * called, too. memory_bytes, disk_bytes and cpus are its guest's; image and commands are not used. 0, or -1
 * with *error set: as of templates_check_new; exhausted, as of room_check.
 */
int templates_make(struct templates *templates, const struct templates_request *request, struct error *error);
/* Whether one of that name may be made now: 0, or -1 with *error set: conflict, it is there, or is about to
 * be, or this daemon has none; exhausted, TEMPLATES_BUILDS_MAX wait, or TEMPLATES_MAX are there, `ahead`
 * others counted that are on their way here; not_ready, the daemon is stopping. */
int templates_check_new(
	const struct templates *templates, const char *name, unsigned int ahead, struct error *error);
/* What all VMs are started with, for template_inputs_of_saved. */
const struct vm_config *templates_vm_config(const struct templates *templates);
/* The name of what builds wait for; NULL: nothing. */
const char *templates_busy_with(const struct templates *templates);
/* Ends the build, or what is made, that this context asked for: done is still called, from within if it
 * waited. */
void templates_cancel(struct templates *templates, const void *context, const char *cause);
/* There is room again for the output of that build. */
void templates_continue(struct templates *templates, const void *context);
/* 0, or -1 with *error set: not_found; conflict: it is in use, or base; not_ready: it is being built or
 * loaded. */
int templates_remove(struct templates *templates, const char *name, struct error *error);
/* Each the caller's; NULL with *error set. What is damaged is shown as such. */
json_t *templates_to_json(const struct templates *templates, struct error *error);
json_t *template_to_json(const struct templates *templates, const char *name, struct error *error);
/* Of every pool, base's first. NULL without memory. */
json_t *templates_pools_to_json(const struct templates *templates);

/* Sums over all pools. */
void templates_read_gauges(const struct templates *templates, struct metrics_gauges *gauges);
/* NULL: all is well. *serves: runs on base are served all the same. */
const char *templates_ill_reason(const struct templates *templates, bool *serves);

#endif
