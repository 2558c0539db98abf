/* SPDX-License-Identifier: Apache-2.0 */
/* For suites that save VMs and restore them: snapshots are in memory, and handed over as fds. */
#ifndef TESTS_MACHINE_SNAPSHOT_VM_H
#define TESTS_MACHINE_SNAPSHOT_VM_H

#include "tests/machine/machine.h"

enum { SNAPSHOT_VM_CLONES_MAX = 20 }; /* at once */

struct snapshot_files {
	int state, memory; /* memfds that children inherit; -1: none */
	int disk;	   /* the same; only of a save with VMM_SAVE_DISK */
};

/* Empty files for state and memory. */
void snapshot_files_make(struct snapshot_files *files);
void snapshot_files_close(struct snapshot_files *files);
/* The memory can't change any more, as that of clones: then it is not read to be checked. */
void snapshot_files_seal(const struct snapshot_files *files);
/* The state's bytes, malloc'ed. */
uint8_t *snapshot_files_state(const struct snapshot_files *files, size_t *length);

/* Saves a paused VM into new files. The reply's status, or -ETIMEDOUT. */
int snapshot_vm_save(struct machine *machine, struct snapshot_files *files, struct vmm_message *reply);
/* The same with flags of VMM_SAVE: with VMM_SAVE_PRIVATE, files->memory has the private pages; with
 * VMM_SAVE_DISK there is a third file, files->disk. */
int snapshot_vm_save_as(
	struct machine *machine, uint64_t flags, struct snapshot_files *files, struct vmm_message *reply);
/* The same into files that there are. */
int snapshot_vm_save_into(struct machine *machine, uint64_t flags, const struct snapshot_files *files,
	struct vmm_message *reply);
/* Pauses, saves and kills it: true when all was done; else reported under name. */
bool snapshot_vm_take(
	struct suite *suite, struct machine *machine, const char *name, struct snapshot_files *files);
bool snapshot_vm_take_as(struct suite *suite, struct machine *machine, uint64_t flags, const char *name,
	struct snapshot_files *files);
/* A VM out of the files; options as machine_start's. The files stay the caller's. */
bool snapshot_vm_restore(struct suite *suite, const struct snapshot_files *files, const char *const *options,
	struct machine *machine);

/* The same with a working set, the caller's too, and no options. */
bool snapshot_vm_restore_with(
	struct suite *suite, const struct snapshot_files *files, int working_set, struct machine *machine);
/* A VM out of private pages and the memory that they lie upon. */
bool snapshot_vm_restore_upon(struct suite *suite, int base, const struct snapshot_files *files,
	const char *const *options, struct machine *machine);
/* A vmm that waits to be told what to restore; true: it said so. */
bool snapshot_vm_stand_by(struct suite *suite, const char *const *options, struct machine *machine);
/* Tells it: order and fds as they are. The reply's status, or -ETIMEDOUT. */
int snapshot_vm_order(struct machine *machine, struct vmm_message *order, const int *fds, unsigned count);
/* Restores so many at once and waits for their ends: how many had that exit status. After one that had not,
 * the others are ended. */
int snapshot_vm_count_ends(struct suite *suite, const struct snapshot_files *files, int count, int status);

/* A stream to a guest's port; -errno. */
int snapshot_vm_connect(struct machine *machine, uint32_t port);
/* The guest's own connection to a host port; -errno. */
int snapshot_vm_await_stream(struct machine *machine, uint32_t port);
/* As read, but not for ever. Streams do not block. */
ssize_t snapshot_vm_read(int fd, void *data, size_t length);
/* Sends a line to the guest's port and takes what comes back, to the stream's end; false: nothing came, and
 * answer (size bytes) says why if there was no stream. */
bool snapshot_vm_command(struct machine *machine, uint32_t port, const char *line, char *answer, size_t size);

#endif
