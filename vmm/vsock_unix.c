/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's bytes are read up to its newline and no further: what follows belongs to the guest. Then the
 * device owns the fd, and the client's struct lives on only to answer it.
 */
#include "vmm/vsock_unix.h"
#include "common/io.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/unix_socket.h"
#include "vmm/virtio/vsock.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SOCKET_MODE = 0600 };
#define ACCEPT_RETRY_NS UINT64_C(100000000) /* after accept failed for want of fds or memory */

struct client {
	struct vsock_unix *host; /* NULL: it is gone, and done frees us */
	struct client *next, *previous;
	int fd; /* the device's, once source is NULL */
	struct loop_source *source;
	uint32_t port;
	unsigned length;
	char line[VSOCK_UNIX_LINE_MAX];
};

struct vsock_unix {
	struct loop *loop;
	struct virtio_device *vsock;
	int fd;
	struct loop_source *source, *retry;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* ours while fd is open */
	struct client *clients;
	unsigned count;
};

/* clients */

/* Accepts, unless there are too many clients. */
static void watch_listener(struct vsock_unix *host)
{
	(void)loop_set_events(host->source, host->count < VSOCK_UNIX_CLIENTS_MAX ? EPOLLIN : 0);
}

static void client_unlink(struct client *client)
{
	struct vsock_unix *host = client->host;

	if (client->previous)
		client->previous->next = client->next;
	else
		host->clients = client->next;
	if (client->next)
		client->next->previous = client->previous;
	if (host->count-- == VSOCK_UNIX_CLIENTS_MAX)
		watch_listener(host);
}

/* For one whose fd is still ours. */
static void client_destroy(struct client *client)
{
	loop_remove(client->source);
	fd_close(&client->fd);
	client_unlink(client);
	free(client);
}

/* The guest has answered: on success the fd is open and nothing has been written to it yet. */
static void on_joined(void *context, int status)
{
	struct client *client = context;
	char line[VSOCK_UNIX_LINE_MAX];
	int length;

	if (status == 0) {
		length = snprintf(line, sizeof(line), "OK %" PRIu32 "\n", client->port);
		/* The first bytes on an empty socket fit, or the client is gone. */
		if (send(client->fd, line, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT) != length)
			(void)shutdown(client->fd, SHUT_RDWR);
	}
	if (client->host)
		client_unlink(client);
	free(client);
}

static void join(struct client *client)
{
	int fd = client->fd, error;

	loop_remove(client->source);
	client->source = NULL;
	error = vsock_connect(client->host->vsock, client->port, fd, on_joined, client);
	if (error == 0)
		return;
	client->fd = -1;
	log_warn("vsock: a client of %s: %s", client->host->path, strerror(-error));
	client_destroy(client);
}

/* The line without its newline, NUL-terminated. */
static int parse_line(char *line, uint32_t *port)
{
	static const char verb[] = "CONNECT ";
	uint64_t value;

	if (strncmp(line, verb, sizeof(verb) - 1) != 0)
		return -EINVAL;
	if (parse_u64(line + sizeof(verb) - 1, 0, UINT32_MAX - 1, &value) < 0)
		return -EINVAL;
	*port = (uint32_t)value;
	return 0;
}

/* Takes bytes up to a newline. 1: the line is whole; 0: more are needed; -errno. */
static int read_line(struct client *client)
{
	char *end = client->line + client->length, *newline;
	size_t room = sizeof(client->line) - client->length;
	ssize_t got = recv(client->fd, end, room, MSG_PEEK);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (got == 0)
		return -ECONNRESET;
	newline = memchr(end, '\n', (size_t)got);
	got = recv(client->fd, end, newline ? (size_t)(newline + 1 - end) : (size_t)got, 0);
	if (got < 0)
		return -errno;
	client->length += (unsigned)got;
	if (newline) {
		*newline = '\0';
		return strlen(client->line) == (size_t)(newline - client->line) ? 1 : -EINVAL;
	}
	return client->length < sizeof(client->line) ? 0 : -EMSGSIZE;
}

static void on_client(void *context, uint32_t events)
{
	struct client *client = context;
	int result = read_line(client);

	(void)events;
	if (result == 0)
		return;
	if (result > 0 && parse_line(client->line, &client->port) == 0)
		join(client);
	else
		client_destroy(client);
}

/* 0 or -errno; the fd is closed on failure. */
static int add_client(struct vsock_unix *host, int fd)
{
	struct client *client = calloc(1, sizeof(*client));
	int error = -ENOMEM;

	if (!client)
		goto fail;
	client->host = host;
	client->fd = fd;
	client->source = loop_add_fd(host->loop, fd, EPOLLIN, on_client, client);
	if (!client->source) {
		error = -errno;
		goto fail;
	}
	client->next = host->clients;
	if (client->next)
		client->next->previous = client;
	host->clients = client;
	if (++host->count == VSOCK_UNIX_CLIENTS_MAX)
		watch_listener(host);
	return 0;
fail:
	fd_close(&fd);
	free(client);
	return error;
}

/* listener */

static void on_listener(void *context, uint32_t events)
{
	struct vsock_unix *host = context;
	int fd = accept4(host->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	int error;

	(void)events;
	error = fd < 0 ? -errno : add_client(host, fd);
	if (error == 0 || error == -EAGAIN || error == -EINTR || error == -ECONNABORTED)
		return;
	log_warn("vsock: accepting on %s: %s", host->path, strerror(-error));
	(void)loop_set_events(host->source, 0);
	(void)loop_set_timer(host->retry, ACCEPT_RETRY_NS);
}

static void on_retry(void *context)
{
	watch_listener(context);
}

int vsock_unix_create(const char *path, struct loop *loop, struct vsock_unix **out)
{
	struct vsock_unix *host;
	int error;

	if (strlen(path) >= sizeof(host->path))
		return -ENAMETOOLONG;
	host = calloc(1, sizeof(*host));
	if (!host)
		return -ENOMEM;
	host->loop = loop;
	host->fd = -1;
	memcpy(host->path, path, strlen(path));
	error = unix_listen(path, SOCK_STREAM, SOCKET_MODE, SOMAXCONN);
	if (error < 0)
		goto fail;
	host->fd = error;
	host->retry = loop_add_timer(loop, on_retry, host);
	if (!host->retry) {
		error = -errno;
		goto fail;
	}
	*out = host;
	return 0;
fail:
	vsock_unix_destroy(host);
	return error;
}

int vsock_unix_attach(struct vsock_unix *host, struct virtio_device *vsock)
{
	host->vsock = vsock;
	host->source = loop_add_fd(host->loop, host->fd, EPOLLIN, on_listener, host);
	return host->source ? 0 : -errno;
}

int vsock_unix_accept(struct vsock_unix *host, uint32_t host_port)
{
	char path[sizeof(host->path)];
	int length = snprintf(path, sizeof(path), "%s_%" PRIu32, host->path, host_port);

	return length < 0 || (size_t)length >= sizeof(path) ? -ENAMETOOLONG : unix_connect(path, SOCK_STREAM);
}

void vsock_unix_destroy(struct vsock_unix *host)
{
	struct client *next;

	if (!host)
		return;
	for (struct client *client = host->clients; client; client = next) {
		next = client->next;
		if (client->source) {
			loop_remove(client->source);
			fd_close(&client->fd);
			free(client);
		} else {
			client->host = NULL;
		}
	}
	loop_remove(host->source);
	loop_remove(host->retry);
	if (host->fd >= 0)
		(void)unlink(host->path);
	fd_close(&host->fd);
	free(host);
}
