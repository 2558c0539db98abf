/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk that a template is built on: an ext4 file system with a journal, in a sparse file.
 *
 * No guest has to make the rest of it (lazy_itable_init=0), which each clone's would do again, as writes to
 * its own upper. The journal is not written (lazy_journal_init=1): the holes of a new file are zeros already,
 * and take no room. Its blocks have 4096 bytes, as those of an upper, so that no write of the guest brings up
 * a block's rest. Its UUID is random: an upper tells its lower by the first 64 KiB of it (docs/disks.md),
 * which are then never those of another template's.
 */
#ifndef HOST_CTL_TEMPLATE_DISK_H
#define HOST_CTL_TEMPLATE_DISK_H

#include <stdint.h>

enum {
	TEMPLATE_DISK_CAUSE_MAX = 320,
	TEMPLATE_DISK_MAKE_MS = 60 * 1000, /* then mkfs is ended */
};

/*
 * Makes the empty file of an fd, open both ways, such a disk. mkfs: the path of mkfs.ext4, which is run with
 * nothing but that file. 0; or -errno with cause set: the file cannot be so large, mkfs cannot be started,
 * took too long (-ETIMEDOUT), or failed (-EIO, with its last words). It takes a while: for a worker.
 */
int template_disk_make(int disk, uint64_t bytes, const char *mkfs, char cause[TEMPLATE_DISK_CAUSE_MAX]);

#endif
