/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a sandbox whose template has a disk:
 *
 *   STATE-DIR/sandboxes/ID/upper      what its guest has written (docs/disks.md)
 *   STATE-DIR/sandboxes/ID/lower      the template's disk, by another name: it stays when the template goes
 *   STATE-DIR/sandboxes/ID/image      and its image, where that is in the same file system
 *   STATE-DIR/sandboxes/ID/boot.json  what else a boot from these needs (sandbox_boot.h)
 *
 * All but the last are links to what its VM has open: nothing is copied. They are there, and on the host's
 * disk, before its row is; and they go before that does. So what has no row is nobody's, and is removed by
 * the next daemon, whenever this one or the host ended: no removal is synced. The folder of sandboxes is
 * there while there is one in it.
 */
#ifndef HOST_CTL_SANDBOX_FILES_H
#define HOST_CTL_SANDBOX_FILES_H

#include "host-ctl/vm/vm.h"

enum {
	SANDBOX_FILES_FORMAT = 1,  /* of boot.json */
	SANDBOX_FILES_BLOCK = 512, /* bytes, of st_blocks (inode(7)) */
};
#define SANDBOX_FILES_UPPER "upper"
#define SANDBOX_FILES_LOWER "lower"
#define SANDBOX_FILES_IMAGE "image"
#define SANDBOX_FILES_BOOT "boot.json"
#define SANDBOX_FILES_RESERVE_DEFAULT (UINT64_C(256) << 20)

/* What was removed. */
struct sandbox_files {
	unsigned int count;
	uint64_t bytes; /* of the host's disk that was only theirs */
};

/* A name in the folder; empty: the folder itself. */
void sandbox_files_path(
	const char *state_directory, const char *id, const char *name, char *path, size_t size);

/* The host's disk has more than `reserve` bytes left: 0; or -1 with *error exhausted, which names the folder
 * and the mend. What cannot be asked is no limit. */
int sandbox_files_check_room(const char *state_directory, uint64_t reserve, struct error *error);
/* What a copy of all that a sandbox has, its memory, and its disk, if it has one, takes at most, in bytes. */
struct sandbox_files_need {
	uint64_t written; /* by its vmm */
	uint64_t twice;	  /* what of it is there twice while a template takes it (template_files_take) */
};
void sandbox_files_copy_need(
	const char *state_directory, const char *id, uint64_t memory_bytes, struct sandbox_files_need *need);
/* There is room for it, beside `promised` bytes that other copies may still take: as of check_room. */
int sandbox_files_check_copy(const char *state_directory, const char *id,
	const struct sandbox_files_need *need, uint64_t reserve, uint64_t promised, struct error *error);
/* Gives the disk of its VM its names, in the page cache. 0, or -1 with *error set, and no folder is left:
 * not_ready, its template was just replaced. */
int sandbox_files_keep(const char *state_directory, const char *id, const struct vm *vm, struct error *error);
/* The folder of one that is a copy of a guest that was saved into the folder `from`: its upper is copied, all
 * else that it has to keep are links. It takes a while: for a worker. 0, or -1 with *error set, and no folder
 * is left. */
int sandbox_files_copy(const char *state_directory, const char *from, const char *id, struct error *error);
/* What that takes of the host's disk: 0 where the file system shares what is copied, and of one without an
 * upper. id: or the name of another folder. */
uint64_t sandbox_files_copy_bytes(const char *state_directory, const char *id);
/* As sandbox_files_check_room, when `wanted` bytes are to be written there. Without a reserve nothing is
 * asked.
 */
int sandbox_files_check_room_for(
	const char *state_directory, uint64_t reserve, uint64_t wanted, struct error *error);
/* Brings what `keep` has made to the disk. It takes a while: for a worker. 0, also when it is not there any
 * more; or -1 with *error set. */
int sandbox_files_sync(const char *state_directory, const char *id, struct error *error);
bool sandbox_files_are_there(const char *state_directory, const char *id);
/* Removes the folder with all that is in it, and looks for it: 0, also when there was none; or -errno: not
 * all of it could be removed. The room is the host's again when the VM is gone too. */
int sandbox_files_remove(const char *state_directory, const char *id, struct sandbox_files *removed);
/* Removes the folders of those that `keep` does not know. */
void sandbox_files_sweep(
	const char *state_directory, bool (*keep)(const void *context, const char *id), const void *context);

#endif
