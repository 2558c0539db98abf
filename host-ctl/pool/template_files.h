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

#include <stdbool.h>

/*
 * "state", "memory" and, if there is one, TEMPLATE_DISK, both folders' fds: each is removed where it was as
 * soon as it is copied, so that one of them at most is there twice. It takes a while: for a worker. Nothing
 * is synced. 0; or -errno with *name, which of them: what was copied is to go with the folder.
 */
int template_files_take(int from, int to, bool has_disk, const char **name);

#endif
