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

/* False: there is none. */
static bool read_claim(const char *runtime_directory, char path[PATH_MAX])
{
	int folder = open_folder(runtime_directory);
	int fd = folder < 0 ? -1 : openat(folder, FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t length = fd < 0 ? -1 : io_read_full(fd, path, PATH_MAX - 1);

	fd_close(&fd);
	fd_close(&folder);
	path[length > 0 ? length : 0] = '\0';
	return path[0] == '/';
}

int state_claim_check(const char *runtime_directory, const char *state_directory, int left,
	const char *cgroup_root, struct error *error)
{
	char path[PATH_MAX];
	struct stat theirs, ours;

	if (!left || !read_claim(runtime_directory, path) || stat(path, &theirs) < 0 ||
		!S_ISDIR(theirs.st_mode))
		return 0;
	if (stat(state_directory, &ours) == 0 && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
		return 0;
	error_set(error, ERROR_CONFLICT,
		"%d VMs that an earlier daemon left belong to the state folder %.128s, not to %.128s: start "
		"with --state-dir %.128s, or end them: `echo 1 | tee %.64s/*/cgroup.kill`",
		left, path, state_directory, path, cgroup_root);
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
	char path[PATH_MAX];
	int folder = open_folder(runtime_directory);
	int status = folder < 0 ? folder : 0;

	if (!status && !realpath(state_directory, path))
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
