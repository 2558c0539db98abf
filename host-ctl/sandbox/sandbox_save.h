/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's guest brought to the disk (sandbox_saved.h): the vmm writes into two new files, then a worker
 * finds what they lie upon, gives all of it its names, and syncs it.
 *
 * A copy, of a guest that runs on, is the same in a folder of another name, with the sandbox's disk as it is
 * while the guest stands. No later daemon is to have it, so that nothing of it is synced.
 *
 * A copy that is flat needs nothing of the sandbox, nor of its template: it is a state, all of the memory
 * and, of a sandbox that has one, its disk as one file, all written by the vmm. No sandbox is restored from
 * it.
 *
 * Pages are about the memory that the VM was made of. It is recognised by its checksum, which the vmm has
 * written into the state: the sandbox's own, its template's on the disk, or the one that its VM was made of,
 * in this order. When none is that, as after a restart of the daemon when the template was built anew
 * meanwhile, all of the memory is wanted; then that is what the next save is about.
 */
#ifndef HOST_CTL_SANDBOX_SAVE_H
#define HOST_CTL_SANDBOX_SAVE_H

#include "host-ctl/pool/template.h"
#include <limits.h>

/* The worker's, from sandbox_save_work on until it is done. */
struct sandbox_save {
	char state_directory[PATH_MAX], id[64], template[TEMPLATE_NAME_MAX];
	char name[64];		     /* of the folder: its id, or of a copy another */
	json_t *made;		     /* as of sandbox_saved_describe, a reference */
	int base_state, base_memory; /* that its VM was made of; -1: not known */
	int own;		     /* of a copy: the sandbox's own folder; else -1 */
	/* All but the first are what the vmm writes to; memory: all of it, or pages; disk: of a flat one. */
	int folder, state, memory, disk;
	uint64_t disk_bytes; /* of the sandbox's, 0: it has none */
	bool whole;	     /* all of the memory */
	bool flat;
	/* What came of it. */
	bool wants_whole;   /* there is nothing that the pages lie upon */
	bool is_there;	    /* it may be restored; else nothing of it is left */
	struct error error; /* kind ERROR_NONE: all is well */
};

/* Takes nothing yet. made: a reference is taken. */
void sandbox_save_init(struct sandbox_save *save, const char *state_directory, const char *id,
	const char *template, json_t *made);
/* It is to be a copy, in a folder of this name, which is its caller's to remove. The guest is about to stand
 * for that, which is noted, until sandbox_save_finish, for a daemon that finds it so. 0, or -1 with
 * save->error set. */
int sandbox_save_make_copy(struct sandbox_save *save, const char *name, bool flat);
/* Opens what its VM was made of, as far as it is known. */
void sandbox_save_know_base(struct sandbox_save *save, const struct vm_source *source);
/* Two new files, and of a flat copy with a disk a third, in place of those before. 0, or -1 with save->error
 * set. */
int sandbox_save_open(struct sandbox_save *save, bool whole);
/* Brings what was written to the disk. For a worker. */
void sandbox_save_work(struct sandbox_save *save);
/* It is not to be, and does not come back after a loss of power either: where is_there says so, that takes a
 * while, and is for a worker. 0 or -errno. */
int sandbox_save_undo(struct sandbox_save *save);
/* Closes all, and removes what was not done, as sandbox_saved_tidy does. Takes one that is all that init
 * made. */
void sandbox_save_finish(struct sandbox_save *save);

#endif
