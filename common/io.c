/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io.h"
#include "common/parse.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

static int change_flags(int fd, int get, int set, int flag, int on)
{
	int flags = fcntl(fd, get), wanted = on ? flags | flag : flags & ~flag;

	if (flags < 0)
		return -errno;
	return wanted != flags && fcntl(fd, set, wanted) < 0 ? -errno : 0;
}

int fd_set_nonblock(int fd)
{
	return change_flags(fd, F_GETFL, F_SETFL, O_NONBLOCK, 1);
}

int fd_set_cloexec(int fd, int on)
{
	return change_flags(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

int io_write_all(int fd, const void *data, size_t length)
{
	const uint8_t *bytes = data;

	while (length > 0) {
		ssize_t n = write(fd, bytes, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		length -= (size_t)n;
	}
	return 0;
}

/* offset < 0: at the file's own position. */
static ssize_t read_full_at(int fd, uint8_t *bytes, size_t length, off_t offset)
{
	size_t done = 0;

	while (done < length) {
		ssize_t n = offset < 0 ? read(fd, bytes + done, length - done)
				       : pread(fd, bytes + done, length - done, offset + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t io_read_full(int fd, void *data, size_t length)
{
	return read_full_at(fd, data, length, -1);
}

ssize_t io_pread_full(int fd, void *data, size_t length, off_t offset)
{
	return offset < 0 ? -EINVAL : read_full_at(fd, data, length, offset);
}

int io_pwrite_all(int fd, const void *data, size_t length, uint64_t offset)
{
	const uint8_t *at = data;

	while (length > 0) {
		ssize_t n = pwrite(fd, at, length, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
		length -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

union fds_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * IO_FDS_MAX)];
};

int io_send_fds(int socket, const void *data, size_t length, const int *fds, size_t count)
{
	union fds_control control = {0};
	struct iovec iov = {.iov_base = (void *)data, .iov_len = length};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (count > IO_FDS_MAX)
		return -EINVAL;
	if (count > 0) {
		struct cmsghdr *head;

		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
	}
	do
		n = sendmsg(socket, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == length ? 0 : -EMSGSIZE;
}

/* Takes the fds of one control message; those beyond `room` are closed. Returns how many came. */
static size_t take_fds(struct cmsghdr *head, int *fds, size_t have, size_t room)
{
	size_t came = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < came; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
		if (have + i < room)
			fds[have + i] = fd;
		else
			close(fd);
	}
	return came;
}

ssize_t io_receive_fds(int socket, void *data, size_t length, int *fds, size_t *count)
{
	union fds_control control;
	struct iovec iov = {.iov_base = data, .iov_len = length};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	size_t room = *count, came = 0;
	ssize_t n;

	*count = 0;
	do
		n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head))
		if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
			came += take_fds(head, fds, came, room);
	/* An empty message looks like the end, and nobody takes fds from that. */
	if (n == 0 || came > room || (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
		for (size_t i = 0; i < came && i < room; i++)
			fd_close(&fds[i]);
		return n == 0 ? 0 : -EMSGSIZE;
	}
	*count = came;
	return n;
}

int io_open_arg(const char *argument, int flags, mode_t mode)
{
	uint64_t number;
	int fd;

	if (strncmp(argument, "fd:", 3) != 0) {
		/* Not open(): musl's has a second call, for kernels that do not know O_CLOEXEC. */
		fd = openat(AT_FDCWD, argument, flags | O_CLOEXEC, mode);
		return fd < 0 ? -errno : fd;
	}
	if (parse_u64(argument + 3, 0, INT_MAX, &number) != 0)
		return -EINVAL;
	return fd_set_cloexec((int)number, 1) < 0 ? -EBADF : (int)number;
}
