/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a suspended sandbox is, in its folder (sandbox_files.h), whole by itself: wherever the state folder is
 * moved or copied to, and whatever becomes of its template.
 *
 *   STATE-DIR/sandboxes/ID/state       the guest's processors and devices (docs/snapshot.md)
 *                          pages       what its memory has that `memory` has not; none when that has all
 *                          memory      what these lie upon: the template's, by another name
 *                          image       its template's, by another name
 *                          upper, lower   of one with a disk
 *                          saved.json  what else a restore needs
 *                          copying     its guest stands only until it is copied
 *
 * Where a file cannot be linked, because it is in another file system, it is copied. `memory`, `image` and
 * saved.json stay when it has woken: the next save is about the same memory again.
 *
 * `state` is there, with all that it needs, exactly while the guest may be restored from it: it comes by a
 * rename after everything else is on the disk, and goes, on the disk as well, before anybody is told that the
 * guest runs on. What is being written ends in ".new".
 *
 * saved.json: {"format", "private": is there a file of pages, "memory_sum": the checksum of what they lie
 * upon, and, as sandbox_saved_describe has it, "memory_bytes", "disk_bytes", "cpus", "cid", "image": {"path",
 * "bytes", "changed_ns"}}.
 */
#ifndef HOST_CTL_SANDBOX_SAVED_H
#define HOST_CTL_SANDBOX_SAVED_H

#include "host-ctl/pool/templates.h"
#include <sys/stat.h>

enum { SANDBOX_SAVED_FORMAT = 1, SANDBOX_SAVED_JSON_MAX = 16 * 1024 };
#define SANDBOX_SAVED_STATE "state"
#define SANDBOX_SAVED_PAGES "pages"
#define SANDBOX_SAVED_MEMORY "memory"
#define SANDBOX_SAVED_ABOUT "saved.json"
#define SANDBOX_SAVED_COPYING "copying"
#define SANDBOX_SAVED_NEW ".new"

/* The checksum of memory, of a state file that is open (docs/snapshot.md). 0; -EBADMSG: it is none. */
int sandbox_saved_sum(int state, uint64_t *sum);

/* What a VM is made of, as far as its save does not tell; the caller's. NULL without memory. */
json_t *sandbox_saved_describe(const struct vm *vm);
/* The image that it is made of is what it was when that was described, by size and time of change: a guest's
 * files, and what it has of them in memory, lie upon it. image: of a description, {"path", "bytes",
 * "changed_ns"}. */
bool sandbox_saved_is_image(const json_t *image, const struct stat *status);
/* The same of the file under SANDBOX_FILES_IMAGE, which is at path. One that has no other name is the
 * folder's alone, so nobody changes it under one: its size has to do, and it gets the time that it had, for a
 * folder that was copied has another. */
bool sandbox_saved_is_own_image(const json_t *image, const char *path, const struct stat *status);
/* The image that a sandbox is made of, by a name that does not go with its folder: {"path", "bytes",
 * "changed_ns"}, the caller's. NULL with *error set: conflict, it is not there any more, or not as it was. */
json_t *sandbox_saved_find_image(
	const char *state_directory, const char *id, const json_t *made, struct error *error);
/* How much memory such a guest has; 0: it does not say. */
uint64_t sandbox_saved_memory_bytes(const json_t *made);
/* How long a file its disk is; 0: it has none. */
uint64_t sandbox_saved_disk_bytes(const json_t *made);

/* Its folder, an fd of the caller's; -ENOENT or another -errno. */
int sandbox_saved_open(const char *state_directory, const char *id);
/* It may be restored. */
bool sandbox_saved_is_there(const char *state_directory, const char *id);
/* Its guest has its files on a disk, which goes on when it runs. */
bool sandbox_saved_has_disk(const char *state_directory, const char *id);
/* What is restored, held and as the machine that it was; the caller's reference. NULL with *error set:
 * conflict, its image has changed since; internal, a file is missing or damaged, as far as can be seen
 * without reading it whole. */
struct pool_source *sandbox_saved_source(const char *state_directory, const char *id,
	const struct templates *templates, const char *template, struct error *error);
/* The same of a folder that is not to be used up: neither held nor as that machine, and on a disk with the
 * upper of another one's folder. */
struct pool_source *sandbox_saved_copy_source(const char *state_directory, const char *folder, const char *id,
	const struct templates *templates, const char *template, struct error *error);
/* It is restored no more: on the disk as well, when this returns, which takes a while. 0 or -errno: it may
 * yet be there. */
int sandbox_saved_remove(int folder);
/* A vmm was asked to write it, and may do so still. */
bool sandbox_saved_is_written(const char *state_directory, const char *id);
/* What was being written, and is not whole: the names go at once, and their room some time later
 * (worker_close), so that no loop waits for that. */
void sandbox_saved_tidy(int folder);

/* Notes that its guest stands only until it is copied, for a daemon that finds it so. 0 or -errno. */
int sandbox_saved_mark_copying(int folder);
bool sandbox_saved_is_copying(const char *state_directory, const char *id);
/* It is so no more. */
void sandbox_saved_end_copying(const char *state_directory, const char *id);

#endif
