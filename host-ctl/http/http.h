/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 on a Unix socket: libmicrohttpd within our event loop, with its own epoll set as one of our fds.
 *
 * A client is hostile within these bounds: HTTP_CONNECTIONS_MAX connections (further ones wait in the
 * backlog), shared by the users (http_connections.h), HTTP_HEADER_MEMORY for a request's head, HTTP_BODY_MAX
 * for a body (a longer one is refused unread where its length is announced, else read and dropped up to
 * HTTP_DISCARD_MAX, then the connection is closed), a limit of time for a request to be there and for its
 * answer to be read (likewise), HTTP_UNREAD_MAX bytes of answers that a user has not read, and one answer:
 * then GET is refused, which only tells.
 *
 * A handler answers at once or later. Until it does the connection is suspended and the socket is watched: a
 * client that closes (or half-closes) its end has left. What is answered or closed outside of it goes out
 * when the callbacks of the loop's round have returned; so neither is a request handed to it nor a connection
 * upgraded within a call of these functions.
 */
#ifndef HOST_CTL_HTTP_H
#define HOST_CTL_HTTP_H

#include "common/loop.h"
#include "host-ctl/support/error.h"
#include "host-ctl/support/metrics.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_UPGRADE_PROTOCOL "tinderbox-frames"

enum {
	HTTP_CONNECTIONS_MAX = 512,
	HTTP_HEADER_MEMORY = 32 * 1024,
	HTTP_BODY_MAX = 1024 * 1024,
	HTTP_BODY_START = 4096,
	HTTP_DISCARD_MAX = 8 * 1024 * 1024,
	HTTP_UNREAD_MAX = 64 * 1024 * 1024,
	HTTP_LIMIT_MS = 60 * 1000,
	HTTP_ALLOW_MAX = 32,
	HTTP_UPGRADE_HEADERS_MAX = 4,
};

struct http_peer {
	uid_t uid;
	gid_t gid;
	pid_t pid;
	bool allowed;
};

struct http;
struct http_request;
struct http_stream;

/* What the API makes of requests; all called from the loop. */
struct http_handler {
	/* After the head and before the body. 0, or -1 with *error set: refused, the body is not read. */
	int (*check)(void *context, struct http_request *request, struct error *error);
	/* The request is complete: it is answered by http_reply_* or http_upgrade, now or later. */
	void (*handle)(void *context, struct http_request *request);
};

struct http_request;

/* What is answered; body: from malloc. */
struct http_answer {
	unsigned int status;
	const char *type;
	char *body;
	size_t length;
	enum error_kind error; /* ERROR_NONE: it is none */
};

struct http_request {
	const char *method; /* a HEAD is to be answered as the GET: the body is left out here */
	const char *path;   /* decoded: no '/' in it was escaped, and no character is of control */
	const struct http_peer *peer;
	char *body;
	size_t body_length;
	uint64_t received_ns; /* CLOCK_MONOTONIC, when its last byte was read */
	bool wants_upgrade;   /* Connection: Upgrade, and Upgrade: tinderbox-frames */
	bool replayed;	      /* set by handle: the answer is another request's, and says so */
	/* Idempotency-Key: how many of them, and the last. */
	unsigned int keys;
	const char *key;
	const void *route;     /* the handler's, set by check and read by handle */
	const char *body_mend; /* set by check: what to do about a body over the limit; NULL: send less */
	char allow[HTTP_ALLOW_MAX]; /* set by check with ERROR_METHOD_NOT_ALLOWED: the methods that are */
	/* Set by handle when it answers later: called once if the client leaves first; then no reply is made.
	 */
	void (*left)(void *context);
	void *left_context;
	/* Set: no client's but its maker's, who takes the answer in place of http.c, and its body; the
	 * request is over then. It never wants to be upgraded. */
	void (*answered)(void *context, const struct http_answer *answer);
	void *answered_context;
	json_t *query; /* then: its parameters, an object of strings, the maker's; else NULL */
	struct http *http;
	struct MHD_Connection *connection; /* http*.c's, as is; NULL when answered is set */
	struct http_exchange *exchange;	   /* http.c's; NULL when answered is set */
};

/* An upgraded connection. `stream` is to be ended by http_stream_close; fd is non-blocking and not owned. */
typedef void http_upgraded_fn(
	void *context, struct http_stream *stream, int fd, const void *extra, size_t extra_length);

/*
 * listener: a listening Unix socket, non-blocking; it stays the caller's. group: members may connect, besides
 * root and the daemon's own uid. limit_ms: of http_connections.h. NULL on failure (logged).
 */
struct http *http_create(struct loop *loop, int listener, gid_t group, uint64_t limit_ms,
	struct metrics *metrics, const struct http_handler *handler, void *context);
/* No new connection is taken from now on. */
void http_stop_listening(struct http *http);
/* Takes NULL. Every request must have been answered and every stream closed. What was answered last is still
 * sent, and no request is handed to the handler any more. */
void http_destroy(struct http *http);

/* The value of a parameter of the query (?NAME=VALUE), decoded; it lives as long as the request. NULL: there
 * is none. */
const char *http_query(const struct http_request *request, const char *name);
/* Each of them (value may be NULL), until visit returns false. */
void http_each_query(const struct http_request *request,
	bool (*visit)(void *context, const char *name, const char *value), void *context);
/* 0; or -1 with *error set, ERROR_INVALID: the query has a parameter without a value, twice, or of another
 * name than these (two at most, ended by NULL). */
int http_check_query(const struct http_request *request, const char *const *names, struct error *error);

/* Each answers a request, once; afterwards the request is gone. */
void http_reply_json(
	struct http_request *request, unsigned int status, json_t *body); /* takes the reference */
/* text: from malloc, taken. */
void http_reply_text(
	struct http_request *request, unsigned int status, const char *type, char *text, size_t length);
void http_reply_error(struct http_request *request, const struct error *error);
/*
 * 101 Switching Protocols; headers: name, value pairs, ended by NULL. upgraded is called when the answer is
 * sent; if the client leaves before, left is.
 */
void http_upgrade(struct http_request *request, const char *const *headers, http_upgraded_fn *upgraded,
	void (*left)(void *context), void *context);

/* Ends an upgraded connection; what was written to its fd is still delivered. */
void http_stream_close(struct http_stream *stream);

#endif
