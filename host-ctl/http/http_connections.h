/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds the connections of the daemon, and for how long.
 *
 *   WAITING ──head──▶ BODY ──all of it──▶ BUSY ──▶ ANSWERING ──all sent──▶ WAITING
 *      └───────────────────refused at the head───────┘      BUSY: upgraded ones, too
 *
 * A connection that stays WAITING, or in BODY, for longer than the limit is cut off, however its bytes come:
 * in BODY with ERROR_REQUEST_TIMEOUT, in WAITING without an answer, for there it cannot be told from an idle
 * one. In ANSWERING it may take HTTP_ANSWER_LIMITS times as long. One in which the client has said that
 * nothing will follow (half-closed) is cut off at the next look. There are HTTP_LOOKS of these in a limit,
 * and each limit is kept to within one of them.
 *
 * One user (uid) cannot shut out the others. When fewer than HTTP_CONNECTIONS_SPARE are left, a new
 * connection costs the user who has the most the oldest that it has WAITING, or else in BODY, or else another
 * user that. What is not WAITING is never more of one user's than there is besides for all others: so one
 * user alone has HTTP_CONNECTIONS_MAX / 2 of these, two a third each.
 *
 * To cut off is to shut the socket down: its owner, libmicrohttpd, then closes it, at once or, where it does
 * not read, when it has run a second later.
 */
#ifndef HOST_CTL_HTTP_CONNECTIONS_H
#define HOST_CTL_HTTP_CONNECTIONS_H

#include "common/loop.h"
#include "host-ctl/http/http.h"
#include "host-ctl/support/error.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	HTTP_CONNECTIONS_SPARE = 32,
	HTTP_ANSWER_LIMITS = 5,
	HTTP_LOOKS = 8,
};

enum http_phase { HTTP_WAITING, HTTP_BODY, HTTP_BUSY, HTTP_ANSWERING };

struct http_user; /* http_connections.c's */

struct http_connection {
	struct http_peer peer;
	struct MHD_Connection *owner;
	int fd; /* not owned */
	enum http_phase phase;
	bool cut;
	const char *target, *target_end; /* of the request whose head comes, in the owner's memory */
	uint64_t since_ns;		 /* of the phase */
	struct http_user *user;
	struct http_connection *next, *previous; /* in the order of since_ns */
};

struct http_connections {
	struct http_connection *first, *last;
	struct http_user *users;
	unsigned int count; /* that are not cut off */
	unsigned int held;  /* of all: not WAITING */
	uint64_t limit_ns;
	struct loop_source *timer;
	bool armed;
	struct metrics *metrics;
};

/* 0 or -ENOMEM. */
int http_connections_init(
	struct http_connections *all, struct loop *loop, uint64_t limit_ms, struct metrics *metrics);
/* Takes one that is all zero. Those that are left stay their owners'. */
void http_connections_finish(struct http_connections *all);

/* A new one, WAITING; its place may be another's, which is cut off. NULL without memory. */
struct http_connection *http_connections_add(
	struct http_connections *all, struct MHD_Connection *owner, int fd, gid_t group);
/* Takes NULL. Frees it. */
void http_connections_remove(struct http_connections *all, struct http_connection *connection);

void http_connection_enter(
	struct http_connections *all, struct http_connection *connection, enum http_phase phase);
/* Before a WAITING one enters another phase: 0; or -1 with *error set, ERROR_EXHAUSTED: its user has its
 * share. */
int http_connection_check_share(
	const struct http_connections *all, const struct http_connection *connection, struct error *error);
/* Its user has so many bytes of answers more that it has not read yet; and has them no more. */
void http_connection_owe(struct http_connection *connection, uint64_t bytes);
void http_connection_settle(struct http_connection *connection, uint64_t bytes);
/* Before an answer is made that only tells: 0; or -1 with *error set, ERROR_EXHAUSTED: its user has
 * HTTP_UNREAD_MAX bytes of others to read. So there is one answer more than these at most. */
int http_connection_check_unread(const struct http_connection *connection, struct error *error);

#endif
