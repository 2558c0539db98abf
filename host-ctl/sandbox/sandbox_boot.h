/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox that has its files on a disk is booted from when it is started: its own folder
 * (sandbox_files.h), whatever has become of its template, and the daemon's kernel and initrd, whose agent
 * speaks this daemon's protocol.
 *
 * boot.json: {"format", "memory_bytes", "cpus", "disk_bytes", "image": {"path", "bytes", "changed_ns"}}. The
 * image is the folder's or, where that could not be linked, the one of that path; it has to be what it was.
 */
#ifndef HOST_CTL_SANDBOX_BOOT_H
#define HOST_CTL_SANDBOX_BOOT_H

#include "host-ctl/pool/templates.h"

/* The caller's reference. NULL with *error set: conflict, its image is missing or has changed; internal, its
 * description cannot be read. */
struct pool_source *sandbox_boot_source(
	const char *state_directory, const char *id, const struct templates *templates, struct error *error);

#endif
