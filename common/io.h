/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for file descriptors: whole reads and writes, fds over sockets, `fd:N` arguments. */
#ifndef COMMON_IO_H
#define COMMON_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Closes *fd when it is >= 0 and sets it to -1; errno is kept. */
void fd_close(int *fd);

/* 0 or -errno. */
int fd_set_nonblock(int fd);
int fd_set_cloexec(int fd, int on);

/* Writes all of it to a blocking fd, whatever the signals. 0 or -errno. */
int io_write_all(int fd, const void *data, size_t length);
/* The same at an offset, which the fd must have. -EIO: the file takes no more, and does not say why. */
int io_pwrite_all(int fd, const void *data, size_t length, uint64_t offset);

/* Reads until length or end of file. Bytes read, or -errno. */
ssize_t io_read_full(int fd, void *data, size_t length);
ssize_t io_pread_full(int fd, void *data, size_t length, off_t offset);

enum { IO_FDS_MAX = 12 }; /* fds in one message */

/*
 * One message on a Unix socket with up to IO_FDS_MAX fds; never raises SIGPIPE.
 * Send: 0 or -errno (-EAGAIN when the socket is non-blocking and full); the fds stay the caller's.
 * Receive: bytes (0: the peer closed, or sent an empty message, whose fds are closed) or -errno; *count is
 * room on entry and the number received on return; fds arrive CLOEXEC and are the caller's. A message whose
 * fds did not all fit is -EMSGSIZE and leaves none open.
 */
int io_send_fds(int socket, const void *data, size_t length, const int *fds, size_t count);
ssize_t io_receive_fds(int socket, void *data, size_t length, int *fds, size_t *count);

/*
 * A path on a command line, or "fd:N" for a file that the parent opened. Returns a CLOEXEC fd that is the
 * caller's (for fd:N, N itself), or -errno: -EBADF when N is not an open fd, -EINVAL when it is not a number.
 */
int io_open_arg(const char *argument, int flags, mode_t mode);

#endif
