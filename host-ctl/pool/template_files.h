/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox's vmm has written of its guest, for a template: the files of one folder into another.
 *
 * They are copied, not moved: the vmm that has written them runs on, and may have them open still. One that a
 * guest has taken over would change what later VMs are made of, which no checksum of a disk would show. And
 * their pages count in its cgroup. Where the file system can, copies share their blocks.
 */
#ifndef HOST_CTL_TEMPLATE_FILES_H
#define HOST_CTL_TEMPLATE_FILES_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdint.h>

/* A guest that was saved, whole, with its disk, if it has one, as one file (vm_ask_save_whole). */
struct template_saved {
	int folder;    /* that has "state", "memory" and TEMPLATE_DISK, which are used up */
	json_t *about; /* what is to be in template.json, but for the working set */
	uint64_t memory_bytes, disk_bytes; /* of the guest's; 0: it has no disk */
};

/*
 * Its files into another folder, an fd: each is removed where it was as soon as it is copied, so that one of
 * them at most is there twice. It takes a while: for a worker. Nothing is synced. 0; or -errno with *name,
 * which of them: -EBADMSG, it has not the size that it was saved with (a state at most VM_STATE_FILE_MAX);
 * -EINVAL, it is no regular file; -ECANCELED, it was stopped (file_copy). What was copied by then is to go
 * with the folder.
 */
int template_files_take(
	const struct template_saved *saved, int folder, const atomic_bool *stop, const char **name);

#endif
