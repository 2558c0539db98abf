/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of what outlives the daemon (--state-dir): whoever can write there decides what later VMs are.
 */
#ifndef HOST_CTL_STATE_FOLDER_H
#define HOST_CTL_STATE_FOLDER_H

#include "host-ctl/support/error.h"
#include <dirent.h>
#include <sys/types.h>

#define STATE_FOLDER_DEFAULT "/var/lib/tinderbox"
#define STATE_FOLDER_TEMPLATES "templates"
#define STATE_FOLDER_SANDBOXES "sandboxes"

/*
 * Opens it, made when missing; a new one's name is on the disk then. The fd, the caller's; or -errno with
 * *error set, which names the path, what is wrong and the mend: it cannot be made or opened, it is another
 * user's, or others may write to it (-EPERM).
 */
int state_folder_open(const char *path, struct error *error);
/* The same, but it is not made: -ENOENT when it is missing. */
int state_folder_open_there(const char *path, struct error *error);
/* The same as state_folder_open of a folder in it, for this daemon alone; it is no symbolic link. name: of
 * the folder. */
int state_folder_open_in(int folder, const char *path, const char *name, struct error *error);

/*
 * One that is there: a folder in that one, or AT_FDCWD and a path. Its last part is no symbolic link. The fd,
 * the caller's, or -errno: -ENOTDIR or -ELOOP, it is a link or no folder.
 */
int state_folder_open_at(int folder, const char *path);
/* What is in it, from the first entry on; for closedir. NULL with errno. */
DIR *state_folder_list(int folder);

/* Whether both can be opened, that of templates too, before anything is done. 0, or -errno as above. */
int state_folder_check(const char *path, struct error *error);

/*
 * A folder in it gets another name beside it, on the disk as well: NAME.lost-TIME, which nobody removes but
 * its owner. One that is empty is removed. 1 with its new name; 0: there is none, or was nothing in it; or
 * -errno.
 */
enum { STATE_FOLDER_ASIDE_MAX = 96 };
int state_folder_put_aside(int folder, const char *name, char aside[STATE_FOLDER_ASIDE_MAX]);

/*
 * Takes the lock of a folder that one daemon has at a time; it ends with the fd. 0; -EWOULDBLOCK: another has
 * it for a second already; or -errno. A child that a killed daemon was launching has it for a moment longer.
 */
int state_folder_lock(int folder);

/* What was written to a file of a folder, or to that itself ("."), is on the disk then. 0 or -errno; -ELOOP:
 * it is a symbolic link. */
int state_folder_sync(int folder, const char *name);

#endif
