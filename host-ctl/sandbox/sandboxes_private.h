/* SPDX-License-Identifier: Apache-2.0 */
/* Between sandboxes.c, sandbox*.c and operation.c. */
#ifndef HOST_CTL_SANDBOXES_PRIVATE_H
#define HOST_CTL_SANDBOXES_PRIVATE_H

#include "host-ctl/journal/journal_again.h"
#include "host-ctl/sandbox/sandboxes.h"

struct sandboxes {
	struct sandboxes_config config;
	struct sandbox *first, *last; /* the oldest first */
	unsigned int count;
	struct operation *operations; /* the newest first */
	unsigned int operation_count;
	unsigned int command_count; /* of all sandboxes */
	uint64_t output_bytes;	    /* held of commands that have ended */
	struct list forks;	    /* under way (sandbox_fork.c) */
	struct list snapshots;	    /* the same (sandbox_snapshot.c) */
	unsigned int workers;	    /* that have files of sandboxes */
	uint64_t disk_promised;	    /* bytes of the host's, to copies that are still to be made */
	struct loop_source *timer;  /* of the clocks of all (sandbox_clocks.c)... */
	uint64_t due_ns;	    /* ...and for when it is armed, CLOCK_MONOTONIC; 0: it is not */
	struct journal_again again; /* rows of sandboxes and commands that the journal did not take */
};

/* Whether there may be one more, of that name: 0, or -1 with *error set: conflict, exhausted. */
int sandboxes_check_new(struct sandboxes *all, const struct sandbox_spec *spec, struct error *error);
/* To the registry, and out of it with its memory. */
void sandboxes_add(struct sandbox *sandbox);
void sandboxes_forget(struct sandbox *sandbox);
/* work(context) by a worker, then done(context), which calls the other first. 0 or -errno. */
int sandboxes_begin_work(
	struct sandboxes *all, void (*work)(void *context), void (*done)(void *context), void *context);
void sandboxes_end_work(struct sandboxes *all);
/* Bytes of the host's disk for one who has *promised already: more of them are; and so many of them, at most
 * all, are on it by now and count as what it has not left, or will not be. */
void sandboxes_promise_disk(struct sandboxes *all, uint64_t *promised, uint64_t bytes);
void sandboxes_settle_disk(struct sandboxes *all, uint64_t *promised, uint64_t bytes);
/* The hook of every change of a sandbox's state, before its watchers. */
void sandboxes_changed(struct sandbox *sandbox, enum sandbox_state before);

/* --- sandbox_fork.c --- */

/* All forks that are under way, without anybody being told; before the sandboxes. */
void sandbox_forks_finish(struct sandboxes *all);

/* --- sandbox_snapshot.c --- */

/* The same of snapshots. None is the templates' by then. */
void sandbox_snapshots_finish(struct sandboxes *all);

/* --- sandbox_clocks.c --- */

/* 0 or -ENOMEM, also without an fd for their timer. */
int sandbox_clocks_init(struct sandboxes *all);
/* After the last sandbox. Takes one that was not begun. */
void sandbox_clocks_finish(struct sandboxes *all);

#endif
