/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/serve/state_claim.h"
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "state-dir"
#define NEW_NAME ".state-dir.new"
#define NO_SANDBOXES "none\n"

static int fail(struct error *error, int status, const char *folder)
{
	error_set(error, ERROR_INTERNAL,
		"cannot write %.256s/" FILE_NAME
		": %s: name a folder that can be made and written with --runtime-dir",
		folder, strerror(-status));
	return status;
}

static int open_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* False: there is none that was written whole. */
static bool read_claim(const char *runtime_directory, char path[PATH_MAX])
{
	int folder = open_folder(runtime_directory);
	int fd = folder < 0 ? -1 : openat(folder, FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t length = fd < 0 ? -1 : io_read_full(fd, path, PATH_MAX - 1);

	fd_close(&fd);
	fd_close(&folder);
	path[length > 0 ? length : 0] = '\0';
	return path[0] == '/' || !strcmp(path, NO_SANDBOXES);
}

void state_claim_add_end(struct error *error, const char *cgroup_root)
{
	const size_t room = sizeof error->message, used = strlen(error->message);

	if (snprintf(error->message + used, room - used, ", or end them: `echo 1 | tee %s/*/cgroup.kill`",
		    cgroup_root) >= (int)(room - used))
		snprintf(error->message + used, room - used, ", or end them");
}

/* Also one that was removed, if it is asked for by the path that was written. */
static bool is_same(const char *theirs, const char *ours)
{
	struct stat a, b;

	return !strcmp(theirs, ours) ||
	       (stat(theirs, &a) == 0 && stat(ours, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

int state_claim_check(const char *runtime_directory, const char *state_directory, int left,
	const char *cgroup_root, struct error *error)
{
	char path[PATH_MAX];
	struct stat theirs;

	if (!left)
		return 0;
	if (!read_claim(runtime_directory, path)) {
		error_set(error, ERROR_CONFLICT,
			"%d VMs that an earlier daemon left, sandboxes perhaps, are in the cgroup root "
			"%.128s, and "
			"the runtime folder %.128s is not theirs: start with the --runtime-dir that they had",
			left, cgroup_root, runtime_directory);
		state_claim_add_end(error, cgroup_root);
		return -EBUSY;
	}
	if (is_same(path, state_directory))
		return 1;
	if (stat(path, &theirs) < 0 || !S_ISDIR(theirs.st_mode))
		return 0;
	error_set(error, ERROR_CONFLICT,
		"%d VMs that an earlier daemon left do not belong to the state folder %.96s: start with "
		"--state-dir %.256s",
		left, state_directory, path);
	state_claim_add_end(error, cgroup_root);
	return -EBUSY;
}

static int write_new(int folder, const char *path)
{
	int fd = openat(folder, NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int status = fd < 0 ? -errno : io_write_all(fd, path, strlen(path));

	fd_close(&fd);
	if (!status && renameat(folder, NEW_NAME, folder, FILE_NAME) < 0)
		status = -errno;
	if (status)
		unlinkat(folder, NEW_NAME, 0);
	return status;
}

int state_claim_write(const char *runtime_directory, const char *state_directory, struct error *error)
{
	char path[PATH_MAX] = NO_SANDBOXES;
	int folder = open_folder(runtime_directory);
	int status = folder < 0 ? folder : 0;

	if (!status && state_directory && !realpath(state_directory, path))
		status = -errno;
	if (!status)
		status = write_new(folder, path);
	fd_close(&folder);
	return status ? fail(error, status, runtime_directory) : 0;
}

void state_claim_remove(const char *runtime_directory)
{
	int folder = open_folder(runtime_directory);

	if (folder >= 0)
		unlinkat(folder, FILE_NAME, 0);
	fd_close(&folder);
}
