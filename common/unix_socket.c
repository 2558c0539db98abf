/* SPDX-License-Identifier: Apache-2.0 */
#include "common/unix_socket.h"
#include "common/io.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int make_address(const char *path, struct sockaddr_un *address)
{
	size_t length = strlen(path);

	/* An empty path would ask for an abstract name. */
	if (length == 0)
		return -EINVAL;
	if (length >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(address->sun_path, path, length + 1);
	return 0;
}

int unix_connect(const char *path, int type)
{
	struct sockaddr_un address;
	int fd = -1, r = make_address(path, &address);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		r = -errno;
		fd_close(&fd);
		return r;
	}
	return fd;
}

/* Removes the socket of a process that is gone. 0 or why not. */
static int remove_dead(const char *path, int type)
{
	struct stat status;
	int fd, r;

	if (lstat(path, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EEXIST;
	r = fd = unix_connect(path, type);
	fd_close(&fd);
	/* -EAGAIN: so many connect to it that its backlog is full. -EPROTOTYPE: it is of another type. */
	if (r >= 0 || r == -EAGAIN || r == -EPROTOTYPE)
		return -EADDRINUSE;
	if (r != -ECONNREFUSED && r != -ENOENT)
		return r;
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int bind_to(int fd, const struct sockaddr_un *address)
{
	return bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
}

int unix_listen(const char *path, int type, mode_t mode, int backlog)
{
	struct sockaddr_un address;
	int fd = -1, r = make_address(path, &address);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* The file takes its mode from the socket. */
	if (fd < 0 || fchmod(fd, mode) < 0) {
		r = -errno;
		goto fail;
	}
	r = bind_to(fd, &address);
	if (r == -EADDRINUSE) {
		r = remove_dead(path, type);
		if (r == 0)
			r = bind_to(fd, &address);
	}
	if (r < 0)
		goto fail;
	if (listen(fd, backlog) < 0) {
		r = -errno;
		unlink(path);
		goto fail;
	}
	return fd;
fail:
	fd_close(&fd);
	return r;
}
