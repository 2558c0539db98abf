/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's end of the daemon's API: HTTP/1.1 with JSON over a Unix socket, one request on one
 * connection. The daemon is trusted no more than needed: every length it sends is bounded here.
 *
 * Every function that takes an error fills it when it fails. The kinds of failure, by return value:
 *   -ENOENT         no daemon at the path (no socket, or nobody listens)
 *   -EACCES         no permission to connect
 *   -ENAMETOOLONG   the path does not fit a socket address
 *   -ETIMEDOUT      no answer within the client's time
 *   -EPROTO         what answered does not speak this protocol
 *   -EMSGSIZE       an answer over CLIENT_HEADER_MAX or CLIENT_BODY_MAX
 *   -ECONNRESET     closed before the answer was complete
 *   -E2BIG          a request's path over CLIENT_PATH_MAX
 *   -EREMOTEIO      the daemon's own error object; the error holds its parts
 *   -ENOMEM, and -errno of the socket otherwise
 */
#ifndef HOST_CTL_CLIENT_H
#define HOST_CTL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CLIENT_SOCKET_DEFAULT "/run/tinderbox/host-ctl.sock"
#define CLIENT_UPGRADE "tinderbox-frames"

enum {
	CLIENT_READ = 16 * 1024,	    /* one read */
	CLIENT_HEADER_MAX = 16 * 1024,	    /* status line and headers of an answer */
	CLIENT_BODY_MAX = 16 * 1024 * 1024, /* body of an answer: the longest output of a run, escaped */
	CLIENT_PATH_MAX = 16 * 1024,	    /* of a request, its query included, and the NUL */
	CLIENT_KEY_MAX = 128,		    /* characters of an idempotency key */
	CLIENT_CODE_MAX = 32,
	CLIENT_TEXT_MAX = 1024,
	CLIENT_QUERY_TIMEOUT_MS = 10 * 1000, /* for what the daemon answers at once */
};

struct client_error {
	char code[CLIENT_CODE_MAX]; /* as in docs/protocol.md, or "no_daemon", "protocol", "timed_out", "io"
				     */
	char message[CLIENT_TEXT_MAX]; /* a sentence without a full stop at the end */
	char detail[CLIENT_TEXT_MAX];  /* JSON as the daemon sent it, or our own words, or empty */
	bool retryable;
	int http_status; /* of -EREMOTEIO; else 0 */
};

/* A connection. Bytes that came after the answer (an upgrade's first frames) wait in buffer[start..end). */
struct client {
	int fd;
	int timeout_ms;		     /* for each wait, or -1 */
	const char *idempotency_key; /* of the requests from then on; NULL: none. Printable */
	size_t start, end;
	char buffer[CLIENT_READ];
};

/* Takes a connected stream socket, which becomes the client's. */
void client_init(struct client *client, int fd, int timeout_ms);
/* Connects to path. On failure the client is finished already. */
int client_connect(struct client *client, const char *path, int timeout_ms, struct client_error *error);
/* True, with the error "invalid" and that mend, when something is there and is no socket: connect(2) says no
 * more than that nobody listens. */
bool client_refuse_no_socket(const char *path, const char *mend, struct client_error *error);
/* Closes the connection. Takes a client that is finished or whose fd is -1. */
void client_finish(struct client *client);

/*
 * One request and its answer. request: NULL, or a JSON value sent as the body. 0 with *answer a new
 * reference to a JSON object, and *status the answer's HTTP status. status may be NULL: then every answer
 * but 2xx is a failure. An error object is always -EREMOTEIO.
 */
int client_call(struct client *client, const char *method, const char *path, const json_t *request,
	int *status, json_t **answer, struct client_error *error);

/*
 * POSTs request to path (NULL: GETs it) and asks for CLIENT_UPGRADE. 0 when the daemon switched: from there
 * on the connection carries frames, the first of which may be in the client's buffer already. An answer other
 * than 101 is a failure.
 */
int client_upgrade(
	struct client *client, const char *path, const json_t *request, struct client_error *error);

/* Fills error from an error object ({"error":{...}}). 0, or -EPROTO when it is none. */
int client_error_parse(struct client_error *error, const json_t *object);
/* The error as such an object: a new reference, or NULL without memory. */
json_t *client_error_json(const struct client_error *error);
/* The detail for people: an object's members as "name: value, name: value", without the texts that the
 * message has already. to is always terminated. */
void client_error_detail(const struct client_error *error, char *to, size_t size);
/* Sets code and message; detail is emptied. */
void client_error_set(struct client_error *error, const char *code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
