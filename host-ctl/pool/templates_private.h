/* SPDX-License-Identifier: Apache-2.0 */
/* Templates from within; for templates*.c alone. */
#ifndef HOST_CTL_TEMPLATES_PRIVATE_H
#define HOST_CTL_TEMPLATES_PRIVATE_H

#include "host-ctl/pool/templates.h"

struct named_pool {
	char name[TEMPLATE_NAME_MAX];
	struct pool *pool;
	bool load_due; /* its template is to be loaded */
};

/* Where jobs run, one at a time. */
struct templates_lane {
	struct templates *templates;
	struct template_job *job; /* NULL: none */
	bool loads;		  /* else it builds */
	char name[TEMPLATE_NAME_MAX];
	char size[24]; /* of the guest's memory, as the vmm takes it */
	struct vm_source source;
	struct templates_request request; /* events NULL: the job is our own */
	uint64_t promised;		  /* of the host's memory */
};

struct templates {
	struct templates_config config;
	struct metrics *metrics;
	struct template_store store;
	struct pool_slots slots;
	struct room room;
	struct named_pool pools[TEMPLATES_POOLS_MAX]; /* the first is base's */
	unsigned int pool_count;
	struct templates_lane builds, loads;
	struct templates_request waiting[TEMPLATES_BUILDS_MAX];
	unsigned int waiting_count;
	bool base_due;		    /* it is to be built */
	json_t *faults;		    /* by name: {"reason", "damaged", "at_ms"} of the last load that failed */
	char failure[VM_CAUSE_MAX]; /* why base could not be built; empty: it was, or may yet be */
	struct loop_source *work, *retry;
	uint64_t retry_ms; /* until the next try; 0: TEMPLATES_RETRY_MIN_MS */
	bool stopping;
	void (*full)(void *context);
	void (*emptied)(void *context);
	void *context;
};

/* NULL: it has no pool. */
struct named_pool *templates_entry(const struct templates *templates, const char *name);
/* A pool without a target and without anything in it. */
void templates_drop_pool(struct templates *templates, struct named_pool *entry);
/* Tells the owner when it is stopping and empty. */
void templates_note_emptied(struct templates *templates);

/* --- templates_jobs.c --- */

/* No guest gets more than the host has: 0, or -1 with *error invalid. */
int templates_check_memory(uint64_t wanted, struct error *error);

/* 0 or -errno. */
int templates_jobs_init(struct templates *templates);
void templates_jobs_finish(struct templates *templates);
/* Base: loaded if it is right, else built. */
void templates_jobs_start(struct templates *templates);
void templates_jobs_stop(struct templates *templates);
/* Whatever is due and has a free lane is begun in the loop's next turn. */
void templates_schedule(struct templates *templates);
bool templates_is_loading(const struct templates *templates, const char *name);
/* Of the last load that failed; NULL: none did. */
const json_t *templates_fault(const struct templates *templates, const char *name);

#endif
