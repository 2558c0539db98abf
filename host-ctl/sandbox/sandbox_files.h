/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a sandbox whose template has a disk:
 *
 *   STATE-DIR/sandboxes/ID/upper   what its guest has written (docs/disks.md)
 *   STATE-DIR/sandboxes/ID/lower   the template's disk, by another name: it stays when the template goes
 *
 * Both are links to what its VM has open: nothing is copied. They are there before its row is written, and go
 * before that does; so what has no row is nobody's. The folder of sandboxes is there while there is one in
 * it.
 */
#ifndef HOST_CTL_SANDBOX_FILES_H
#define HOST_CTL_SANDBOX_FILES_H

#include "host-ctl/vm/vm.h"

/* What was removed. */
struct sandbox_files {
	unsigned int count;
	uint64_t bytes; /* of the host's disk that the upper took */
};

/* Gives the disk of its VM its names. 0, or -1 with *error set, and no folder is left. */
int sandbox_files_keep(const char *state_directory, const char *id, const struct vm *vm, struct error *error);
bool sandbox_files_are_there(const char *state_directory, const char *id);
/* Removes the folder with all that is in it, and looks for it: 0, also when there was none; or -errno: not
 * all of it could be removed. The room is the host's again when the VM is gone too. */
int sandbox_files_remove(const char *state_directory, const char *id, struct sandbox_files *removed);
/* Removes the folders of those that `keep` does not know. */
void sandbox_files_sweep(
	const char *state_directory, bool (*keep)(const void *context, const char *id), const void *context);

#endif
