/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes templates, by a build or of a sandbox's guest that was saved, and loads those of the disk.
 *
 *   build  (a disk) ─▶ a VM boots ─saved─┐
 *   make   its files are copied ───────────┼─▶ read ─▶ a clone ─warm─▶ sealed, on the disk ─▶ done
 *   load   ────────────────────────────────┴─▶ read ─▶ a clone ─warm─▶ sealed ──────────────▶ done
 *
 * Any failure, and cancel: the VM is ended, nothing is left, done with the error.
 *
 * Reading into memory, recording the working set and bringing to the disk take up to seconds and are a
 * worker's; a cancel waits for its end, and comes too late once a build is being given its name. The loop
 * goes on meanwhile.
 *
 * The disk, if there is one, is read beside that clone: a build notes its checksum in template.json, a load
 * holds it against that. What is checked is the file that is open, which all clones lie upon; afterwards
 * nobody reads it for that again.
 *
 * The clone that checks maps memory that is not sealed yet, so that its vmm checks the memory's checksum over
 * the very bytes that all later clones map.
 *
 * The preparing commands are each bounded by command_timeout_ms; what they write goes to `output` as it
 * comes.
 */
#ifndef HOST_CTL_TEMPLATE_BUILD_H
#define HOST_CTL_TEMPLATE_BUILD_H

#include "host-ctl/pool/room.h"
#include "host-ctl/pool/template_files.h"
#include "host-ctl/pool/template_store.h"

enum { TEMPLATE_COMMANDS_MAX = 64, TEMPLATE_COMMAND_TIMEOUT_MS = 10 * 60 * 1000 };

/* Of a build, in this order; making has the first and the last two. */
enum template_phase {
	TEMPLATE_WAITING, /* for another build or load */
	TEMPLATE_BOOTING,
	TEMPLATE_RUNNING, /* a preparing command; again for each */
	TEMPLATE_SAVING,
	TEMPLATE_CHECKING, /* that a clone gets warm */
	TEMPLATE_STORING,
	TEMPLATE_PHASE_COUNT
};

struct template_events {
	/* What a preparing command wrote. May be NULL. */
	void (*output)(void *context, bool is_stderr, const void *bytes, size_t length);
	/* False: no output is taken until template_job_continue. May be NULL. */
	bool (*has_room)(void *context);
	/* A phase begins; not called for TEMPLATE_WAITING and TEMPLATE_BOOTING, which are before the job.
	 * command: which one runs, the first is 1. May be NULL. */
	void (*progress)(void *context, enum template_phase phase, unsigned int command);
	/* The end; the job is freed after it. template: it is in the store; NULL: *error says why not. */
	void (*done)(void *context, struct template *template, const struct error *error);
};

struct template_order {
	const char *name;		/* copied */
	const struct vm_source *source; /* a boot; outlives the job */
	const char *const *commands;	/* outlive the job */
	unsigned int count;
	unsigned int rehearsals;	    /* of the clones */
	unsigned int slot;		    /* of its VMs, one at a time */
	const struct room *room;	    /* that has to hold the template's memory; outlives the job */
	const char *mkfs;		    /* mkfs.ext4, for a source with disk_bytes; outlives the job */
	const struct template_saved *saved; /* outlives the job; of template_make alone */
};

struct template_job;

/* Begins. 0: done will be called, from the loop; -errno: *error says why not, and nothing is left. */
int template_build(struct template_store *store, const struct vm_config *config,
	const struct template_order *order, const struct template_events *events, void *context,
	struct template_job **job, struct error *error);
/* The same of a guest that was saved: of order, source, commands, count and mkfs are not used. done tells
 * conflict, when something has the name by then. */
int template_make(struct template_store *store, const struct vm_config *config,
	const struct template_order *order, const struct template_events *events, void *context,
	struct template_job **job, struct error *error);
/* The same for one that is on the disk: of order, source, commands and count are not used. -ENOENT: there is
 * none. */
int template_fetch(struct template_store *store, const struct vm_config *config,
	const struct template_order *order, const struct template_events *events, void *context,
	struct template_job **job, struct error *error);

/* Ends it: done is called with this cause. */
void template_job_cancel(struct template_job *job, const char *cause);
/* There is room again for output. */
void template_job_continue(struct template_job *job);
/* "booting", ... */
const char *template_phase_name(enum template_phase phase);
/* Its one VM, for lists; NULL between two. */
const struct vm *template_job_vm(const struct template_job *job);

#endif
