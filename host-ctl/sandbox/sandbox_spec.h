/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox is asked to be: the body of POST /v1/sandboxes. Whatever is wrong is refused by name.
 */
#ifndef HOST_CTL_SANDBOX_SPEC_H
#define HOST_CTL_SANDBOX_SPEC_H

#include "host-ctl/pool/template.h"
#include "host-ctl/support/error.h"
#include <jansson.h>
#include <stdint.h>

enum {
	SANDBOX_METADATA_MAX = 32, /* entries */
	SANDBOX_KEY_MAX = 64,	   /* bytes of a key of it */
	SANDBOX_VALUE_MAX = 256,   /* and of a value */
	SANDBOX_ENV_MAX = 256,	   /* variables */
	SANDBOX_ENV_BYTES = 32 * 1024,
	SANDBOX_CPU_MIN = 5,		       /* hundredths of a CPU */
	SANDBOX_CPU_MAX = 100 * 100,	       /* the VM's own limit holds below it */
	SANDBOX_MEMORY_MIN = 96 * 1024 * 1024, /* of the vmm and its guest */
};
#define SANDBOX_TTL_MAX_MS (UINT64_C(30) * 24 * 60 * 60 * 1000)

/* What becomes of one that is idle, or whose time to live is over. */
enum sandbox_idle { SANDBOX_IDLE_KILL, SANDBOX_IDLE_PAUSE, SANDBOX_IDLE_SUSPEND };

struct sandbox_spec {
	char name[TEMPLATE_NAME_MAX]; /* empty: none */
	char template[TEMPLATE_NAME_MAX];
	json_t *metadata, *env; /* objects of strings, never NULL */
	uint64_t ttl_ms;	/* 0: none */
	enum sandbox_idle ttl_action;
	uint64_t idle_after_ms; /* 0: none */
	enum sandbox_idle idle_action;
	/* Of its VM; 0: as its template's. */
	uint64_t memory_bytes;
	unsigned int cpus;
	uint64_t memory_max;  /* 0: as the VM's */
	unsigned int cpu_max; /* hundredths of a CPU; 0: as the VM's */
	uint32_t pids_max;    /* of each command, in the guest; 0: no limit */
};

/* 0, or -1 with *error set (invalid, too_large, internal without memory); then there is nothing to finish. */
int sandbox_spec_parse(struct sandbox_spec *spec, json_t *body, struct error *error);
/* Takes a zeroed one too. */
void sandbox_spec_finish(struct sandbox_spec *spec);
/* The fields that a body may have, ended by NULL. */
extern const char *const sandbox_spec_fields[];
/* As it was asked, all fields; the caller's. NULL without memory. */
json_t *sandbox_spec_to_json(const struct sandbox_spec *spec);
/* "kill", "pause" or "suspend". */
const char *sandbox_idle_name(enum sandbox_idle action);

#endif
