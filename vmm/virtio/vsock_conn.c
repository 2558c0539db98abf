/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: their table, their host sockets and their credit.
 *
 * Invariants: received - forwarded is what buffer holds, at most VSOCK_BUFFER; a connection is in a bucket
 * until it is ENDED and owes no RST; a removed one has no fd and is in no list but vsock->removed.
 */
#include "vmm/virtio/vsock_conn.h"
#include "common/io.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
	SHUTDOWN_BOTH = VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND,
	/* Told when the guest knows of less room than LOW, and there is STEP more. When nothing is held and
	 * the room is low there always is, so a guest never waits for room that we have. */
	CREDIT_LOW = VSOCK_BUFFER / 2,
	CREDIT_STEP = VSOCK_BUFFER / 4,
};

static void on_socket(void *context, uint32_t events);

/* table */

static struct vsock_conn **bucket(struct vsock *vsock, uint32_t guest_port, uint32_t host_port)
{
	return &vsock->buckets[(guest_port * 31 + host_port) % VSOCK_BUCKETS];
}

struct vsock_conn *vsock_conn_find(struct vsock *vsock, uint32_t guest_port, uint32_t host_port)
{
	struct vsock_conn *conn = *bucket(vsock, guest_port, host_port);

	while (conn && (conn->guest_port != guest_port || conn->host_port != host_port))
		conn = conn->hash_next;
	return conn;
}

static void insert(struct vsock_conn *conn)
{
	struct vsock *vsock = conn->vsock;
	struct vsock_conn **head = bucket(vsock, conn->guest_port, conn->host_port);

	conn->hash_next = *head;
	*head = conn;
	conn->hashed = true;
	conn->next = vsock->all;
	if (conn->next)
		conn->next->previous = conn;
	vsock->all = conn;
	vsock->count++;
}

static void unhash(struct vsock_conn *conn)
{
	struct vsock_conn **link = bucket(conn->vsock, conn->guest_port, conn->host_port);

	if (!conn->hashed)
		return;
	while (*link != conn)
		link = &(*link)->hash_next;
	*link = conn->hash_next;
	conn->hashed = false;
}

static void close_host(struct vsock_conn *conn)
{
	loop_remove(conn->source);
	conn->source = NULL;
	fd_close(&conn->fd);
	conn->readable = false;
	conn->forwarded = conn->received; /* what was held goes nowhere */
}

static void remove_conn(struct vsock_conn *conn)
{
	struct vsock *vsock = conn->vsock;

	close_host(conn);
	unhash(conn);
	vsock_conn_deactivate(conn);
	if (conn->previous)
		conn->previous->next = conn->next;
	else
		vsock->all = conn->next;
	if (conn->next)
		conn->next->previous = conn->previous;
	vsock->count--;
	conn->removed = true;
	conn->hash_next = vsock->removed;
	vsock->removed = conn;
}

void vsock_conn_reap(struct vsock *vsock)
{
	while (vsock->removed) {
		struct vsock_conn *conn = vsock->removed;

		vsock->removed = conn->hash_next;
		free(conn->buffer);
		free(conn);
	}
}

int vsock_conn_create(struct vsock *vsock, enum vsock_conn_state state, uint32_t guest_port,
	uint32_t host_port, int fd, struct vsock_conn **out)
{
	struct vsock_conn *conn = NULL;
	int error = -EMFILE;

	if (vsock->count >= VSOCK_CONNECTIONS_MAX)
		goto fail;
	error = -ENOMEM;
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		goto fail;
	conn->vsock = vsock;
	conn->state = state;
	conn->guest_port = guest_port;
	conn->host_port = host_port;
	conn->fd = fd;
	conn->events = state == CONN_ESTABLISHED ? EPOLLIN : 0;
	conn->source = loop_add_fd(vsock->loop, fd, conn->events, on_socket, conn);
	if (!conn->source) {
		error = -errno;
		goto fail;
	}
	insert(conn);
	*out = conn;
	return 0;
fail:
	fd_close(&fd);
	free(conn);
	return error;
}

/* turn */

uint32_t vsock_conn_credit(const struct vsock_conn *conn)
{
	uint32_t in_flight = conn->sent - conn->peer_forwarded;

	/* A guest that claims more than was sent makes in_flight huge, and gets nothing. */
	return in_flight < conn->peer_buffer ? conn->peer_buffer - in_flight : 0;
}

/*
 * Bytes wait, but the guest has no room: it is asked, once, in case its last word of room went astray. It
 * tells of new room without being asked, too.
 */
static void consider_asking(struct vsock_conn *conn)
{
	if (conn->state != CONN_ESTABLISHED || !conn->readable || conn->asked_credit ||
		vsock_conn_credit(conn))
		return;
	conn->asked_credit = true;
	conn->owes |= OWES_CREDIT_REQUEST;
}

static bool may_request(const struct vsock *vsock)
{
	return !vsock->event_pending && !vsock->event_told;
}

static bool has_work(const struct vsock_conn *conn)
{
	if (conn->state == CONN_WAITING && !may_request(conn->vsock))
		return false;
	if (conn->owes)
		return true;
	return conn->state == CONN_ESTABLISHED && conn->readable && vsock_conn_credit(conn) > 0;
}

void vsock_conn_activate(struct vsock_conn *conn)
{
	struct vsock *vsock = conn->vsock;

	if (conn->active || conn->removed)
		return;
	consider_asking(conn);
	if (!has_work(conn))
		return;
	conn->active = true;
	conn->active_next = NULL;
	conn->active_previous = vsock->active_last;
	if (vsock->active_last)
		vsock->active_last->active_next = conn;
	else
		vsock->active_first = conn;
	vsock->active_last = conn;
}

void vsock_conn_deactivate(struct vsock_conn *conn)
{
	struct vsock *vsock = conn->vsock;

	if (!conn->active)
		return;
	if (conn->active_previous)
		conn->active_previous->active_next = conn->active_next;
	else
		vsock->active_first = conn->active_next;
	if (conn->active_next)
		conn->active_next->active_previous = conn->active_previous;
	else
		vsock->active_last = conn->active_previous;
	conn->active = false;
}

void vsock_conn_owe(struct vsock_conn *conn, unsigned owes)
{
	conn->owes |= owes;
	vsock_conn_activate(conn);
}

/* host socket */

static uint32_t held(const struct vsock_conn *conn)
{
	return conn->received - conn->forwarded;
}

void vsock_conn_watch(struct vsock_conn *conn)
{
	uint32_t events = 0;

	if (conn->removed || !conn->source)
		return;
	if (conn->state == CONN_ESTABLISHED && !conn->readable &&
		!(conn->host_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND) &&
		!(conn->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV))
		events |= EPOLLIN;
	if (held(conn))
		events |= EPOLLOUT;
	if (events == conn->events)
		return;
	conn->events = events;
	(void)loop_set_events(conn->source, events); /* cannot fail for an fd that is watched */
}

/* The guest is told of room when it is short of it and there is enough to tell. */
static void consider_credit(struct vsock_conn *conn)
{
	uint32_t room = VSOCK_BUFFER - (conn->received - conn->told); /* as the guest knows it */

	if (conn->state == CONN_ESTABLISHED && room < CREDIT_LOW &&
		conn->forwarded - conn->told >= CREDIT_STEP)
		vsock_conn_owe(conn, OWES_CREDIT_UPDATE);
}

static void tell_shutdown(struct vsock_conn *conn, uint32_t flags)
{
	if ((conn->host_shutdown | flags) == conn->host_shutdown)
		return;
	conn->host_shutdown |= flags;
	if (conn->state == CONN_ESTABLISHED)
		vsock_conn_owe(conn, OWES_SHUTDOWN);
}

/* ENDED: removes it when neither side needs it any more. */
static void settle(struct vsock_conn *conn)
{
	if (conn->removed || conn->state != CONN_ENDED)
		return;
	if (held(conn) == 0)
		close_host(conn);
	if (!(conn->owes & OWES_RST))
		unhash(conn);
	if (conn->fd < 0 && conn->owes == 0)
		remove_conn(conn);
	else
		vsock_conn_watch(conn);
}

/* The host reads no more: what is held and what comes is dropped, and the guest is told. */
static void stop_writing(struct vsock_conn *conn)
{
	conn->forwarded = conn->received;
	tell_shutdown(conn, VIRTIO_VSOCK_SHUTDOWN_RCV);
	settle(conn);
}

/* Bytes written, 0 when the socket is full; stops the direction on an error. */
static uint32_t write_socket(struct vsock_conn *conn, struct iovec *iov, unsigned count)
{
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
	ssize_t written;

	do
		written = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (written < 0 && errno == EINTR);
	if (written >= 0)
		return (uint32_t)written;
	if (errno != EAGAIN)
		stop_writing(conn);
	return 0;
}

/* All that the guest sent is with the host. */
static void drained(struct vsock_conn *conn)
{
	if (conn->fd >= 0 && (conn->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND))
		(void)shutdown(conn->fd, SHUT_WR); /* fails only when the peer is gone: no matter */
	settle(conn);
}

/* Writes what is held. */
static void flush(struct vsock_conn *conn)
{
	uint32_t length = held(conn), run = VSOCK_BUFFER - conn->buffer_start, written;
	struct iovec iov[2];

	if (length == 0)
		return;
	run = run < length ? run : length;
	iov[0] = (struct iovec){.iov_base = conn->buffer + conn->buffer_start, .iov_len = run};
	iov[1] = (struct iovec){.iov_base = conn->buffer, .iov_len = length - run};
	written = write_socket(conn, iov, iov[1].iov_len ? 2 : 1);
	if (held(conn) == 0)
		return; /* stopped */
	conn->forwarded += written;
	conn->buffer_start = (conn->buffer_start + written) % VSOCK_BUFFER;
	if (held(conn) == 0)
		drained(conn);
	consider_credit(conn);
}

/* Keeps bytes that were counted as received, behind those that are held already. 0 or -ENOMEM. */
static int hold(struct vsock_conn *conn, uint32_t already, struct virtq_bytes *bytes)
{
	uint32_t end, run, length = (uint32_t)bytes->length;

	if (!conn->buffer)
		conn->buffer = malloc(VSOCK_BUFFER);
	if (!conn->buffer)
		return -ENOMEM;
	if (already == 0)
		conn->buffer_start = 0;
	end = (conn->buffer_start + already) % VSOCK_BUFFER;
	run = VSOCK_BUFFER - end < length ? VSOCK_BUFFER - end : length;
	(void)virtq_bytes_take(bytes, conn->buffer + end, run);
	(void)virtq_bytes_take(bytes, conn->buffer, length - run);
	return 0;
}

void vsock_conn_receive(struct vsock_conn *conn, struct virtq_bytes *bytes)
{
	uint32_t already = held(conn), length = (uint32_t)bytes->length, written = 0;

	/* The guest knows of told + VSOCK_BUFFER bytes in all; told is never ahead of forwarded. */
	if (conn->state != CONN_ESTABLISHED || (conn->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND) ||
		length > VSOCK_BUFFER - (conn->received - conn->told)) {
		vsock_conn_abort(conn);
		return;
	}
	conn->received += length;
	if (conn->fd < 0 || (conn->host_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV)) {
		conn->forwarded = conn->received;
	} else {
		if (already == 0)
			written = write_socket(conn, bytes->iov, bytes->count);
		if (held(conn)) {
			conn->forwarded += written;
			virtq_bytes_skip(bytes, written);
		}
		if (held(conn) && hold(conn, already, bytes) < 0) {
			vsock_conn_abort(conn);
			return;
		}
	}
	consider_credit(conn);
	vsock_conn_watch(conn);
}

/* The host sends no more, and when it has hung up neither reads any. */
static void end_of_host(struct vsock_conn *conn)
{
	conn->readable = false;
	tell_shutdown(conn, conn->hung_up ? SHUTDOWN_BOTH : VIRTIO_VSOCK_SHUTDOWN_SEND);
	if (conn->hung_up)
		close_host(conn);
}

uint32_t vsock_conn_read(struct vsock_conn *conn, struct virtq_bytes *room)
{
	ssize_t got;

	do
		got = readv(conn->fd, room->iov, (int)room->count);
	while (got < 0 && errno == EINTR);
	if (got > 0) {
		/* After a hang-up nothing tells of the rest, so it is read until its end. */
		if ((uint64_t)got < room->length && !conn->hung_up)
			conn->readable = false;
		conn->sent += (uint32_t)got;
		return (uint32_t)got;
	}
	if (got < 0 && errno == EAGAIN && !conn->hung_up) {
		conn->readable = false;
		return 0;
	}
	if (got < 0)
		conn->hung_up = true;
	end_of_host(conn);
	return 0;
}

/* done gets the status, once. */
static void finish_connect(struct vsock_conn *conn, int status)
{
	void (*done)(void *context, int status) = conn->done;

	conn->done = NULL;
	if (done)
		done(conn->context, status);
}

static void on_hang_up(struct vsock_conn *conn)
{
	loop_remove(conn->source);
	conn->source = NULL;
	conn->hung_up = true;
	switch (conn->state) {
	case CONN_WAITING:
		finish_connect(conn, -ECONNRESET);
		remove_conn(conn);
		break;
	case CONN_REQUESTED:
		finish_connect(conn, -ECONNRESET);
		vsock_conn_abort(conn);
		break;
	case CONN_ESTABLISHED:
		conn->forwarded = conn->received;
		if ((conn->host_shutdown & VIRTIO_VSOCK_SHUTDOWN_SEND) ||
			(conn->guest_shutdown & VIRTIO_VSOCK_SHUTDOWN_RCV)) {
			end_of_host(conn);
		} else {
			conn->readable = true;
			vsock_conn_activate(conn);
		}
		break;
	case CONN_ENDED:
		conn->forwarded = conn->received;
		settle(conn);
		break;
	}
}

static void on_socket(void *context, uint32_t events)
{
	struct vsock_conn *conn = context;
	struct vsock *vsock = conn->vsock;

	virtio_device_enter(&vsock->base); /* may end the connection, for a reset that was pending */
	if (!conn->removed && (events & EPOLLOUT))
		flush(conn);
	if (!conn->removed && (events & EPOLLIN)) {
		conn->readable = true;
		vsock_conn_activate(conn);
	}
	if (!conn->removed && conn->source && (events & (EPOLLHUP | EPOLLERR)))
		on_hang_up(conn);
	vsock_packet_pump(vsock);
	vsock_conn_watch(conn);
	vsock_conn_reap(vsock);
	virtio_device_leave(&vsock->base);
}

/* state */

void vsock_conn_establish(struct vsock_conn *conn)
{
	conn->state = CONN_ESTABLISHED;
	finish_connect(conn, 0);
	vsock_conn_watch(conn);
}

void vsock_conn_abort(struct vsock_conn *conn)
{
	finish_connect(conn, -ECONNREFUSED);
	close_host(conn);
	conn->state = CONN_ENDED;
	conn->owes = 0;
	vsock_conn_owe(conn, OWES_RST);
}

void vsock_conn_end(struct vsock_conn *conn, bool owe_rst)
{
	finish_connect(conn, -ECONNREFUSED);
	conn->state = CONN_ENDED;
	conn->readable = false;
	conn->owes = 0;
	if (owe_rst)
		vsock_conn_owe(conn, OWES_RST);
	else
		vsock_conn_deactivate(conn);
	settle(conn);
}

void vsock_conn_reset_sent(struct vsock_conn *conn)
{
	settle(conn);
}

void vsock_conn_shutdown(struct vsock_conn *conn, uint32_t flags)
{
	uint32_t added = flags & SHUTDOWN_BOTH & ~conn->guest_shutdown;

	if (conn->state != CONN_ESTABLISHED) {
		vsock_conn_abort(conn);
		return;
	}
	conn->guest_shutdown |= added;
	if (conn->guest_shutdown == SHUTDOWN_BOTH) {
		vsock_conn_end(conn, true);
		return;
	}
	if (conn->fd >= 0 && (added & VIRTIO_VSOCK_SHUTDOWN_RCV)) {
		(void)shutdown(conn->fd, SHUT_RD);
		conn->readable = false;
	}
	if ((added & VIRTIO_VSOCK_SHUTDOWN_SEND) && held(conn) == 0)
		drained(conn);
	vsock_conn_watch(conn);
}

void vsock_conn_activate_all(struct vsock *vsock)
{
	for (struct vsock_conn *conn = vsock->all; conn; conn = conn->next)
		vsock_conn_activate(conn);
}

void vsock_conn_end_all(struct vsock *vsock)
{
	struct vsock_conn *next;

	for (struct vsock_conn *conn = vsock->all; conn; conn = next) {
		next = conn->next;
		if (conn->state == CONN_WAITING) {
			vsock_conn_deactivate(conn);
			continue;
		}
		finish_connect(conn, -ECONNRESET);
		vsock_conn_end(conn, false);
	}
}

void vsock_conn_destroy_all(struct vsock *vsock)
{
	while (vsock->all) {
		struct vsock_conn *conn = vsock->all;

		finish_connect(conn, -ECONNRESET);
		remove_conn(conn);
	}
	vsock_conn_reap(vsock);
}
