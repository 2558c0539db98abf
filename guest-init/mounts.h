/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the initramfs to the guest's root: every mount is a row of one table in mounts.c.
 *
 *   early   /proc, /sys, /dev                                    in the initramfs
 *   root    the base (read-only), the private layer, the overlay  then the early ones move below it, the
 * initramfs is emptied, and the overlay becomes / late    /dev/pts, /dev/shm, /run, /tmp, /sys/fs/cgroup
 *
 * A row that fails is a warning that names it. When the root stage fails (no disk, not a file system), the
 * initramfs stays the root and all else goes on.
 */
#ifndef GUEST_INIT_MOUNTS_H
#define GUEST_INIT_MOUNTS_H

#include "guest-init/layers.h"
#include "guest-init/options.h"
#include "guest-init/warnings.h"
#include <stdbool.h>

/* The cgroup2 of the late stage. */
#define MOUNTS_CGROUP_ROOT "/sys/fs/cgroup"

void mounts_early(struct warnings *warnings);
/* True when the root was changed. *layers: what it is made of, or all -1. */
bool mounts_root(const struct options *options, struct warnings *warnings, struct layers *layers);
void mounts_late(struct warnings *warnings);

/* Removes what a folder holds on its own file system, to MOUNTS_DEPTH_MAX; mount points and what is on them
 * stay. 0 or -errno (the first failure; the rest is tried). fd stays the caller's. */
enum { MOUNTS_DEPTH_MAX = 32 };
int mounts_empty_folder(int fd);

#endif
