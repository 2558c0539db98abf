/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vsock for people who run vmm alone: `--vsock PATH` is a listening Unix socket on which a client writes
 * "CONNECT <port>\n" and reads "OK <port>\n", the same port, once the guest has accepted; what follows is the
 * stream. A guest's connection to host port P goes to the Unix socket PATH_P.
 *
 * A line longer than VSOCK_UNIX_LINE_MAX or not of that form closes the client, and so does a guest that
 * refuses. While VSOCK_UNIX_CLIENTS_MAX clients are between their connection and the guest's answer, further
 * ones wait in the backlog.
 */
#ifndef VMM_VSOCK_UNIX_H
#define VMM_VSOCK_UNIX_H

#include "common/loop.h"
#include <stdint.h>

struct virtio_device;
struct vsock_unix;

enum {
	VSOCK_UNIX_LINE_MAX = 32,    /* newline included */
	VSOCK_UNIX_CLIENTS_MAX = 64, /* that have not been joined yet */
};

/*
 * Binds and listens (a stale socket that nobody listens on is replaced; a live one is -EADDRINUSE, a file
 * that is no socket -EEXIST, a longer path than sun_path holds -ENAMETOOLONG). Mode 0600. The device is given
 * later, by vsock_unix_attach; clients wait until then. loop must outlive it. 0 or -errno.
 */
int vsock_unix_create(const char *path, struct loop *loop, struct vsock_unix **out);
/* Once. 0 or -errno of the loop. */
int vsock_unix_attach(struct vsock_unix *host, struct virtio_device *vsock);
/* For vsock_config.accept: connects to PATH_<port>. A non-blocking fd that is the caller's, or -errno. */
int vsock_unix_accept(struct vsock_unix *host, uint32_t host_port);
/* Takes NULL; unlinks the socket. Before or after the device: clients that wait for the guest are the
 * device's. */
void vsock_unix_destroy(struct vsock_unix *host);

#endif
