/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets with a name in the file system. Fds are CLOEXEC, non-blocking and the caller's. */
#ifndef COMMON_UNIX_SOCKET_H
#define COMMON_UNIX_SOCKET_H

#include <sys/types.h>

/*
 * Binds and listens. mode is the file's from its first moment (less the umask). A socket at path that nobody
 * listens on is replaced. The fd, or -errno: -EADDRINUSE (someone listens there), -EEXIST (something at path
 * that is no socket), -ENAMETOOLONG (longer than sun_path holds), -EINVAL (empty), or of socket and bind.
 * Two processes that replace one dead socket at the same moment must exclude each other by a lock of theirs.
 */
int unix_listen(const char *path, int type, mode_t mode, int backlog);

/* Connects without waiting. The fd, or -errno: -ECONNREFUSED (nobody listens), -ENOENT, -EAGAIN (its backlog
 * is full), -EPROTOTYPE (another type), -ENAMETOOLONG, -EINVAL ... */
int unix_connect(const char *path, int type);

#endif
