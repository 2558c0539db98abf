/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_files.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/support/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512 /* of st_blocks */, NAMES_MAX = 2 };

static const char *const names[NAMES_MAX] = {"upper", "lower"};

/* An existing one; -errno. */
static int open_all(const char *state_directory)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof path, "%.4000s/" STATE_FOLDER_SANDBOXES, state_directory);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int open_one(int all, const char *id)
{
	int fd = openat(all, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

/* Of one that is empty. */
static void remove_all(const char *state_directory)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%.4000s/" STATE_FOLDER_SANDBOXES, state_directory);
	rmdir(path);
}

/* --- keeping --- */

static int make_one(int all, const char *id, const struct vm *vm)
{
	int folder, status;

	if (mkdirat(all, id, 0700) < 0)
		return -errno;
	folder = open_one(all, id);
	status = folder < 0 ? folder : vm_link_disk(vm, folder, names[0], names[1]);
	fd_close(&folder);
	return status;
}

int sandbox_files_keep(const char *state_directory, const char *id, const struct vm *vm, struct error *error)
{
	struct sandbox_files ignored;
	int state = state_folder_open(state_directory, error), all, status;

	if (state < 0)
		return -1;
	all = state_folder_open_in(state, state_directory, STATE_FOLDER_SANDBOXES, error);
	fd_close(&state);
	if (all < 0)
		return -1;
	status = make_one(all, id, vm);
	fd_close(&all);
	if (!status)
		return 0;
	sandbox_files_remove(state_directory, id, &ignored);
	return error_set(error, ERROR_INTERNAL, "the disk of sandbox %s cannot be kept in %.400s/%s: %s", id,
		state_directory, STATE_FOLDER_SANDBOXES, strerror(-status));
}

bool sandbox_files_are_there(const char *state_directory, const char *id)
{
	int all = open_all(state_directory);
	bool found = all >= 0 && faccessat(all, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0;

	fd_close(&all);
	return found;
}

/* --- removing --- */

/* Its room is given back when it is closed, which takes a while. */
static int remove_file(int folder, const char *name, struct sandbox_files *removed)
{
	struct stat status;
	int fd = openat(folder, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (unlinkat(folder, name, 0) < 0) {
		int r = -errno;

		fd_close(&fd);
		return r;
	}
	removed->count++;
	if (fstat(fd, &status) == 0 && status.st_nlink == 0)
		removed->bytes += (uint64_t)status.st_blocks * BLOCK;
	worker_close(&fd, 1);
	return 0;
}

static int remove_one(int all, const char *id, struct sandbox_files *removed)
{
	int folder = open_one(all, id), status = 0;

	if (folder == -ENOENT)
		return 0;
	if (folder < 0)
		return folder;
	for (int i = 0; i < NAMES_MAX; i++) {
		int r = remove_file(folder, names[i], removed);

		status = status ? status : r;
	}
	fd_close(&folder);
	if (unlinkat(all, id, AT_REMOVEDIR) < 0 && !status)
		status = -errno;
	return status;
}

int sandbox_files_remove(const char *state_directory, const char *id, struct sandbox_files *removed)
{
	int all = open_all(state_directory), status;

	*removed = (struct sandbox_files){0};
	if (all < 0)
		return all == -ENOENT ? 0 : all;
	status = remove_one(all, id, removed);
	if (status)
		log_error("cannot remove what is left of sandbox %s in %s: %s", id, state_directory,
			strerror(-status));
	fd_close(&all);
	remove_all(state_directory);
	return status;
}

void sandbox_files_sweep(
	const char *state_directory, bool (*keep)(const void *context, const char *id), const void *context)
{
	int all = open_all(state_directory);
	DIR *listing = all < 0 ? NULL : fdopendir(all);
	struct sandbox_files ignored;
	struct dirent *entry;

	if (!listing)
		fd_close(&all);
	while (listing && (entry = readdir(listing)))
		if (entry->d_name[0] != '.' && !keep(context, entry->d_name) &&
			!remove_one(dirfd(listing), entry->d_name, &ignored))
			log_warn("removed the files of sandbox %s, which an earlier daemon left",
				entry->d_name);
	if (listing)
		closedir(listing);
	remove_all(state_directory);
}
