/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `host-ctl serve`: one table, from which the help is printed too. */
#ifndef HOST_CTL_SERVE_OPTIONS_H
#define HOST_CTL_SERVE_OPTIONS_H

#include "host-ctl/pool/pool.h"
#include "host-ctl/sandbox/sandbox_files.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/vm/standby.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

enum {
	SERVE_POOL_DEFAULT = 2,
	SERVE_KEY_GRACE_DEFAULT_MS = 60 * 1000,
	SERVE_KEY_GRACE_MAX_MS = 24 * 60 * 60 * 1000,
	SERVE_REHEARSALS_DEFAULT = 1,
	SERVE_REHEARSALS_MAX = 8,
	SERVE_STANDBY_DEFAULT = 2,
	SERVE_VMS_DEFAULT = 128,
	SERVE_UID_BASE_DEFAULT = 700000,
	SERVE_KEEP_MS = 10 * 60 * 1000, /* of sandboxes that are gone */
	SERVE_ERROR_MAX = 1280,
};
#define SERVE_KEEP_COMMANDS_MAX_MS (UINT64_C(30) * 24 * 60 * 60 * 1000)
#define SERVE_DISK_RESERVE_MAX (UINT64_C(1) << 50)
#define SERVE_MEMORY_DEFAULT "128M"
#define SERVE_RUNTIME_DEFAULT "/run/tinderbox"
#define SERVE_STATE_DEFAULT STATE_FOLDER_DEFAULT
#define SERVE_MKFS_DEFAULT "/usr/sbin/mkfs.ext4"

/* Paths are texts of argv, or defaults that are static or in `found`. */
struct serve_options {
	const char *socket, *runtime_directory, *cgroup_root;
	const char *vmm, *kvm, *kernel, *initrd, *image, *memory, *serial_directory, *state_directory, *mkfs;
	uint64_t memory_bytes, boot_timeout_ms, reserve_bytes, disk_reserve_bytes, key_grace_ms, keep_ms,
		keep_commands_ms, client_timeout_ms;
	unsigned int target, vms_max, starts_max, queue_max, rehearsals, cpus, standby;
	uid_t uid_base;
	gid_t group;
	bool limits_required, verbose, help, cold, no_prefault;
	int ready_fd;		/* -1: none */
	const char *kernel_smp; /* for templates of several processors; may not be there */
	char found[5][PATH_MAX];
};

/*
 * argv[0] is the verb. 0, or -1 with a sentence in error (SERVE_ERROR_MAX bytes). With help set, nothing else
 * counts.
 */
int serve_options_parse(struct serve_options *options, int argc, char **argv, char *error);
void serve_options_print_help(FILE *to);

#endif
