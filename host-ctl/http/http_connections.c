/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants: `held` of a user and of all counts those that are not WAITING, cut off or not; `connections`
 * and `count` those that are not cut off. */
#include "host-ctl/http/http_connections.h"
#include "host-ctl/http/peer.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct http_user {
	uid_t uid;
	unsigned int references;  /* all that are in the list */
	unsigned int connections; /* that are not cut off */
	unsigned int held;	  /* not WAITING */
	uint64_t unread;	  /* bytes of answers that are not sent yet */
	struct http_user *next;
};

/* --- users --- */

/* NULL without memory. */
static struct http_user *find_user(struct http_connections *all, uid_t uid)
{
	struct http_user *user = all->users;

	while (user && user->uid != uid)
		user = user->next;
	if (user)
		return user;
	user = calloc(1, sizeof *user);
	if (!user)
		return NULL;
	*user = (struct http_user){.uid = uid, .next = all->users};
	all->users = user;
	return user;
}

static void forget_user(struct http_connections *all, struct http_user *user)
{
	struct http_user **link = &all->users;

	while (*link != user)
		link = &(*link)->next;
	*link = user->next;
	free(user);
}

static const struct http_user *user_with_most(const struct http_connections *all)
{
	const struct http_user *most = all->users;

	for (const struct http_user *user = all->users; user; user = user->next)
		if (user->connections > most->connections)
			most = user;
	return most;
}

/* --- cutting off --- */

/* The end of the socket is not seen where libmicrohttpd cannot read: where its buffer is full of the line of
 * a chunk. Its own limit of time, of which a second is the least, ends that one. */
static void cut(struct http_connections *all, struct http_connection *connection)
{
	connection->cut = true;
	connection->user->connections--;
	all->count--;
	shutdown(connection->fd, SHUT_RDWR);
	MHD_set_connection_option(connection->owner, MHD_CONNECTION_OPTION_TIMEOUT, 1U);
}

/* libmicrohttpd can answer only when the body is there: this one is sent past it. Where the socket takes
 * nothing, the client hears nothing. */
static void cut_with_answer(
	struct http_connections *all, struct http_connection *connection, const struct error *error)
{
	json_t *body = error_to_json(error);
	char *text = json_dumps(body, JSON_COMPACT), head[256];
	int length = snprintf(head, sizeof head,
		"HTTP/1.1 %u Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n",
		error_http_status(error->kind), text ? strlen(text) : 0);

	all->metrics->errors[error->kind]++;
	if (text && send(connection->fd, head, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL) == length)
		send(connection->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
	free(text);
	json_decref(body);
	cut(all, connection);
}

static void cut_late(struct http_connections *all, struct http_connection *connection)
{
	struct error error;

	if (connection->phase != HTTP_BODY) {
		cut(all, connection);
		return;
	}
	error_set(&error, ERROR_REQUEST_TIMEOUT, "the body did not come within %llu ms: send it in one go",
		(unsigned long long)(all->limit_ns / CLOCK_NS_PER_MS));
	cut_with_answer(all, connection, &error);
}

/* --- limits --- */

/* How long it may stay in its phase; 0: for ever. */
static uint64_t limit_of(const struct http_connections *all, const struct http_connection *connection)
{
	switch (connection->phase) {
	case HTTP_BUSY:
		return 0;
	case HTTP_ANSWERING:
		return all->limit_ns * HTTP_ANSWER_LIMITS;
	default:
		return all->limit_ns;
	}
}

/* What has come is served first. libmicrohttpd sees the end of the stream by itself, but not where that came
 * together with bytes that it has read. */
static bool has_half_closed(const struct http_connection *connection)
{
	struct pollfd state = {.fd = connection->fd, .events = POLLRDHUP};
	int unread = 0;

	return (connection->phase == HTTP_WAITING || connection->phase == HTTP_BODY) &&
	       poll(&state, 1, 0) == 1 && ioctl(connection->fd, FIONREAD, &unread) == 0 && !unread;
}

static void arm(struct http_connections *all)
{
	if (all->armed)
		return;
	all->armed = true;
	loop_set_timer(all->timer, all->limit_ns / HTTP_LOOKS);
}

static void look(void *context)
{
	struct http_connections *all = context;
	uint64_t now = clock_now();

	all->armed = false;
	for (struct http_connection *connection = all->first; connection; connection = connection->next) {
		uint64_t limit = limit_of(all, connection);

		if (connection->cut || !limit)
			continue;
		if (now - connection->since_ns >= limit)
			cut_late(all, connection);
		else if (has_half_closed(connection))
			cut(all, connection);
		arm(all);
	}
}

/* --- places --- */

/* user: NULL: of anybody. */
static struct http_connection *find_oldest(
	const struct http_connections *all, const struct http_user *user, enum http_phase phase)
{
	struct http_connection *connection = all->first;

	while (connection &&
		(connection->cut || connection->phase != phase || (user && connection->user != user)))
		connection = connection->next;
	return connection;
}

static void make_room(struct http_connections *all)
{
	const struct http_user *most = user_with_most(all);
	struct http_connection *victim;

	if (all->count < HTTP_CONNECTIONS_MAX - HTTP_CONNECTIONS_SPARE)
		return;
	victim = find_oldest(all, most, HTTP_WAITING);
	if (!victim)
		victim = find_oldest(all, most, HTTP_BODY);
	if (!victim)
		victim = find_oldest(all, NULL, HTTP_WAITING);
	if (victim)
		cut(all, victim);
}

int http_connection_check_share(
	const struct http_connections *all, const struct http_connection *connection, struct error *error)
{
	const struct http_user *user = connection->user;

	if (user->held < HTTP_CONNECTIONS_MAX - all->held)
		return 0;
	return error_set(error, ERROR_EXHAUSTED,
		"uid %u has %u requests and streams under way, of %d that there may be of all: let some end",
		(unsigned)user->uid, user->held, HTTP_CONNECTIONS_MAX);
}

void http_connection_owe(struct http_connection *connection, uint64_t bytes)
{
	connection->user->unread += bytes;
}

void http_connection_settle(struct http_connection *connection, uint64_t bytes)
{
	connection->user->unread -= bytes;
}

int http_connection_check_unread(const struct http_connection *connection, struct error *error)
{
	const struct http_user *user = connection->user;

	if (user->unread < HTTP_UNREAD_MAX)
		return 0;
	return error_set(error, ERROR_EXHAUSTED,
		"uid %u has %llu bytes of answers that it has not read yet, and is told nothing more before "
		"they are fewer than %d: read them, or ask for fewer at a time",
		(unsigned)user->uid, (unsigned long long)user->unread, HTTP_UNREAD_MAX);
}

/* --- the list --- */

static void put_last(struct http_connections *all, struct http_connection *connection)
{
	connection->since_ns = clock_now();
	connection->next = NULL;
	connection->previous = all->last;
	*(all->last ? &all->last->next : &all->first) = connection;
	all->last = connection;
}

static void take_out(struct http_connections *all, struct http_connection *connection)
{
	*(connection->previous ? &connection->previous->next : &all->first) = connection->next;
	*(connection->next ? &connection->next->previous : &all->last) = connection->previous;
}

static void hold(struct http_connections *all, struct http_connection *connection, bool held)
{
	if (held == (connection->phase != HTTP_WAITING))
		return;
	if (held) {
		connection->user->held++;
		all->held++;
	} else {
		connection->user->held--;
		all->held--;
	}
}

void http_connection_enter(
	struct http_connections *all, struct http_connection *connection, enum http_phase phase)
{
	hold(all, connection, phase != HTTP_WAITING);
	connection->phase = phase;
	take_out(all, connection);
	put_last(all, connection);
	if (phase != HTTP_BUSY)
		arm(all);
}

struct http_connection *http_connections_add(
	struct http_connections *all, struct MHD_Connection *owner, int fd, gid_t group)
{
	struct http_connection *connection = calloc(1, sizeof *connection);

	if (!connection)
		return NULL;
	peer_read(&connection->peer, fd, group);
	connection->owner = owner;
	connection->fd = fd;
	connection->user = find_user(all, connection->peer.uid);
	if (!connection->user) {
		free(connection);
		return NULL;
	}
	make_room(all);
	connection->user->references++;
	connection->user->connections++;
	all->count++;
	put_last(all, connection);
	arm(all);
	return connection;
}

void http_connections_remove(struct http_connections *all, struct http_connection *connection)
{
	if (!connection)
		return;
	hold(all, connection, false);
	if (!connection->cut) {
		connection->user->connections--;
		all->count--;
	}
	take_out(all, connection);
	if (!--connection->user->references)
		forget_user(all, connection->user);
	free(connection);
}

/* --- life --- */

int http_connections_init(
	struct http_connections *all, struct loop *loop, uint64_t limit_ms, struct metrics *metrics)
{
	*all = (struct http_connections){.limit_ns = limit_ms * CLOCK_NS_PER_MS,
		.timer = loop_add_timer(loop, look, all),
		.metrics = metrics};
	return all->timer ? 0 : -ENOMEM;
}

void http_connections_finish(struct http_connections *all)
{
	loop_remove(all->timer);
}
