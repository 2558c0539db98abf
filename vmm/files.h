/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files named on the command line, opened and checked before KVM is touched, so that what is wrong with
 * them is said in the same words on every host. The control socket and /dev/kvm are opened by their modules.
 */
#ifndef VMM_FILES_H
#define VMM_FILES_H

#include "vmm/config.h"

enum { FILES_ERROR_MAX = CONFIG_ERROR_MAX };

/* -1: not asked for. All but 0, 1 and 2 are CLOEXEC. */
struct files {
	int kernel;
	int initrd;
	int restore_state, restore_memory, working_set, pages;
	int disks[CONFIG_DISKS_MAX]; /* writable unless read_only or with an upper */
	int uppers[CONFIG_DISKS_MAX];
	int tap;		   /* set up as tap_open does */
	int serial_in, serial_out; /* "-": 0 and 1; a file: output only */
	int stats;		   /* without a file: 2 */
	int trace; /* what is at that place now, to tell it from the others; see trace_file.h */
};

/*
 * Opens in the order of the struct. 0, or -errno with a sentence in error (FILES_ERROR_MAX bytes) that names
 * option, file, cause and mend; nothing is left open then. A disk is a regular file or a block device, not
 * empty, and a multiple of BLK_SECTOR; an upper is one of its lower, or empty (cow_check). What kernel and
 * initrd are is checked by those that load them. A serial file is appended to; it, an upper and a stats file
 * are made with mode 0600. -ENOTUNIQ: two are the same file
 * (or block device), by whatever name, and one of them would be written to: a writable disk, serial, stats or
 * trace; that is wrong usage, and nothing of it has been changed. Only serial and stats may share what the
 * parent opened.
 */
int files_open(const struct config *config, struct files *files, char *error);
/* Empties a stats file that was given by its path, once nothing else can refuse. 0, or -errno with a sentence
 * in error (FILES_ERROR_MAX bytes). */
int files_begin_stats(const struct config *config, const struct files *files, char *error);
/* Closes what is open but 0, 1 and 2; takes one that files_open refused. An fd that was handed on is set to
 * -1 before. */
void files_close(struct files *files);

#endif
