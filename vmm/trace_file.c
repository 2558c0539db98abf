/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/trace_file.h"
#include "common/io.h"
#include "vmm/config_options.h"
#include "vmm/reason.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MODE = 0600 };

static int explain(const char *path, int r, char *error)
{
	switch (r) {
	case -EBADF:
		return reason_set(error, CONFIG_ERROR_MAX, r,
			"--trace " CONFIG_SHOWN
			" is not open for writing; have the parent process pass it on",
			path);
	case -EACCES:
	case -EPERM:
	case -EROFS:
		return reason_set(error, CONFIG_ERROR_MAX, r,
			"--trace " CONFIG_SHOWN
			" may not be written (%s); change the mode or owner of its folder, or "
			"give another",
			path, strerror(-r));
	case -ENOENT:
	case -ENOTDIR:
		return reason_set(error, CONFIG_ERROR_MAX, r,
			"--trace " CONFIG_SHOWN " is in a folder that does not exist; check the path", path);
	default:
		return reason_set(error, CONFIG_ERROR_MAX, r,
			"--trace " CONFIG_SHOWN " cannot be written (%s); give another file", path,
			strerror(-r));
	}
}

static int open_inherited(const char *path, int *fd)
{
	int flags, r = io_open_arg(path, O_WRONLY, 0);

	if (r < 0)
		return r;
	flags = fcntl(r, F_GETFL);
	if (flags < 0)
		return -errno;
	if ((flags & O_ACCMODE) == O_RDONLY)
		return -EBADF;
	*fd = r;
	return 0;
}

static int open_in_place(const char *path, int *fd)
{
	*fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	return *fd < 0 ? -errno : 0;
}

static int open_beside(struct trace_file *file)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;

	snprintf(file->temporary, sizeof(file->temporary), "%s.%d.tmp", file->path, (int)getpid());
	file->fd = open(file->temporary, flags, FILE_MODE);
	/* Of a process with this number that was killed. */
	if (file->fd < 0 && errno == EEXIST && unlink(file->temporary) == 0)
		file->fd = open(file->temporary, flags, FILE_MODE);
	return file->fd < 0 ? -errno : 0;
}

int trace_file_open(const char *path, struct trace_file *file, char *error)
{
	struct stat status;
	int r;

	file->fd = -1;
	file->path = path;
	file->temporary[0] = '\0';
	if (config_file_number(path) >= 0)
		r = open_inherited(path, &file->fd);
	else if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
		r = open_in_place(path, &file->fd);
	else
		r = open_beside(file);
	if (r == 0)
		return 0;
	file->temporary[0] = '\0';
	return explain(path, r, error);
}

int trace_file_commit(struct trace_file *file)
{
	int fd = file->fd, r = 0;

	file->fd = -1;
	/* Where a file system tells only now that it had no room. */
	if (fd > STDERR_FILENO && close(fd) < 0 && errno != EINTR)
		r = -errno;
	if (r == 0 && file->temporary[0] != '\0' && rename(file->temporary, file->path) < 0)
		r = -errno;
	if (r == 0)
		file->temporary[0] = '\0';
	else
		trace_file_discard(file);
	return r;
}

void trace_file_discard(struct trace_file *file)
{
	if (file->fd > STDERR_FILENO)
		fd_close(&file->fd);
	file->fd = -1;
	if (file->temporary[0] != '\0')
		unlink(file->temporary);
	file->temporary[0] = '\0';
}
