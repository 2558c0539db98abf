/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/input_file.h"
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { HELD_PATH_MAX = 32 };

int64_t input_file_changed_ns(const struct stat *status)
{
	return (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
}

const char *input_file_fault(const struct stat *status, enum input_kind kind)
{
	switch (status->st_mode & S_IFMT) {
	case S_IFREG:
		return NULL;
	case S_IFBLK:
		return kind == INPUT_IMAGE ? NULL : "a block device";
	case S_IFDIR:
		return "a folder";
	case S_IFIFO:
		return "a named pipe";
	case S_IFSOCK:
		return "a socket";
	case S_IFCHR:
		return "a character device";
	case S_IFLNK:
		return "a symbolic link, which is not followed";
	default:
		return "no file";
	}
}

int input_file_open(
	int at, const char *path, int flags, enum input_kind kind, struct stat *status, const char **fault)
{
	char held_path[HELD_PATH_MAX];
	int held = openat(at, path, O_PATH | O_CLOEXEC | flags), fd = -1, r;

	*fault = NULL;
	if (held < 0)
		return -errno;
	r = fstat(held, status) < 0 ? -errno : 0;
	if (!r && (*fault = input_file_fault(status, kind)))
		r = -EINVAL;
	if (!r) {
		snprintf(held_path, sizeof held_path, "/proc/self/fd/%d", held);
		fd = open(held_path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		r = fd < 0 ? -errno : fd;
	}
	fd_close(&held);
	return r;
}
