/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/client.h"
#include "common/io.h"
#include <errno.h>
#include <grp.h>
#include <http_parser.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* Names and values of headers longer than this are none that we ask for. */
enum { HEADER_TEXT_MAX = 64 };

/* One answer as it comes. */
struct answer {
	http_parser parser;
	size_t head_bytes; /* received before the headers were complete */
	char *body;
	size_t body_length, body_capacity;
	char name[HEADER_TEXT_MAX], value[HEADER_TEXT_MAX];
	bool in_value, headers_done, complete, upgraded;
	int failure; /* of a callback: -EMSGSIZE or -ENOMEM */
};

void client_error_set(struct client_error *error, const char *code, const char *format, ...)
{
	va_list arguments;

	*error = (struct client_error){0};
	snprintf(error->code, sizeof(error->code), "%s", code);
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
}

static int fail_memory(struct client_error *error)
{
	client_error_set(error, "io", "out of memory");
	return -ENOMEM;
}

/* ---- errors as JSON ---- */

int client_error_parse(struct client_error *error, const json_t *object)
{
	const json_t *parts = json_object_get(object, "error"), *detail = json_object_get(parts, "detail");
	const char *code = json_string_value(json_object_get(parts, "code"));
	const char *message = json_string_value(json_object_get(parts, "message"));
	char *dump = NULL;

	if (!code || !message)
		return -EPROTO;
	*error = (struct client_error){.retryable = json_is_true(json_object_get(parts, "retryable"))};
	snprintf(error->code, sizeof(error->code), "%s", code);
	snprintf(error->message, sizeof(error->message), "%s", message);
	if (detail && !json_is_null(detail))
		dump = json_dumps(detail, JSON_COMPACT | JSON_ENCODE_ANY);
	snprintf(error->detail, sizeof(error->detail), "%s", dump ? dump : "");
	free(dump);
	return 0;
}

/* Our own words as a string; a text cut at its bound may end within a character and is then left out. */
static json_t *text_json(const char *text)
{
	json_t *string = text[0] ? json_string(text) : NULL;

	return string ? string : json_null();
}

json_t *client_error_json(const struct client_error *error)
{
	json_t *detail = json_loads(error->detail, JSON_DECODE_ANY, NULL);

	return json_pack("{s:{s:s, s:o, s:b, s:o}}", "error", "code", error->code, "message",
		text_json(error->message), "retryable", error->retryable, "detail",
		detail ? detail : text_json(error->detail));
}

static void append_member(char *to, size_t size, const char *name, const json_t *value)
{
	size_t have = strlen(to);
	char *dump = json_is_string(value) ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	const char *text = json_is_string(value) ? json_string_value(value) : dump;

	snprintf(to + have, size - have, "%s%s%s%s", have ? ", " : "", name ? name : "", name ? ": " : "",
		text ? text : "");
	free(dump);
}

void client_error_detail(const struct client_error *error, char *to, size_t size)
{
	json_t *detail = json_loads(error->detail, JSON_DECODE_ANY, NULL);

	to[0] = '\0';
	if (!detail)
		snprintf(to, size, "%s", error->detail);
	else if (!json_is_object(detail))
		append_member(to, size, NULL, detail);
	for (void *at = json_object_iter(detail); at; at = json_object_iter_next(detail, at)) {
		const char *text = json_string_value(json_object_iter_value(at));

		if (!text || !strstr(error->message, text))
			append_member(to, size, json_object_iter_key(at), json_object_iter_value(at));
	}
	json_decref(detail);
}

/* ---- the connection ---- */

void client_init(struct client *client, int fd, int timeout_ms)
{
	client->fd = fd;
	client->timeout_ms = timeout_ms;
	client->idempotency_key = NULL;
	client->start = client->end = 0;
}

void client_finish(struct client *client)
{
	fd_close(&client->fd);
	client->start = client->end = 0;
}

/* Who may use the socket, for people. */
static void say_denied(struct client_error *error, const char *path)
{
	const struct group *group = NULL;
	struct stat stat_buffer;

	if (stat(path, &stat_buffer) == 0)
		group = getgrgid(stat_buffer.st_gid);
	if (group && stat_buffer.st_gid != 0)
		client_error_set(error, "denied",
			"no permission to use the daemon's socket %s: be root or a member of the group %s",
			path, group->gr_name);
	else
		client_error_set(
			error, "denied", "no permission to use the daemon's socket %s: be root", path);
}

bool client_refuse_no_socket(const char *path, const char *mend, struct client_error *error)
{
	struct stat status;

	if (stat(path, &status) < 0 || S_ISSOCK(status.st_mode))
		return false;
	client_error_set(error, "invalid", "%s is not a socket; %s", path, mend);
	return true;
}

static int fail_connect(const char *path, int r, struct client_error *error)
{
	switch (r) {
	case -ENOENT:
	case -ENOTDIR:
	case -ECONNREFUSED:
		if (client_refuse_no_socket(
			    path, "give the path that `host-ctl serve` has for --socket", error))
			return -ENOTSOCK;
		client_error_set(
			error, "no_daemon", "no daemon at %s: start one with `host-ctl serve`", path);
		return -ENOENT;
	case -EACCES:
	case -EPERM:
		say_denied(error, path);
		return -EACCES;
	default:
		client_error_set(error, "io", "cannot connect to %s: %s", path, strerror(-r));
		return r;
	}
}

int client_connect(struct client *client, const char *path, int timeout_ms, struct client_error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, r;

	client_init(client, -1, timeout_ms);
	if (strlen(path) >= sizeof(address.sun_path)) {
		client_error_set(error, "invalid",
			"the socket's path is %zu bytes long and may have at most %zu: %s", strlen(path),
			sizeof(address.sun_path) - 1, path);
		return -ENAMETOOLONG;
	}
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fail_connect(path, -errno, error);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		r = -errno;
		fd_close(&fd);
		return fail_connect(path, r, error);
	}
	client_init(client, fd, timeout_ms);
	return 0;
}

/* ---- parsing an answer ---- */

/* Appends to a header's name or value, which may come in pieces; what does not fit is left out. */
static void append_text(char text[HEADER_TEXT_MAX], const char *at, size_t length)
{
	size_t have = strlen(text), room = HEADER_TEXT_MAX - 1 - have;

	memcpy(text + have, at, length < room ? length : room);
	text[have + (length < room ? length : room)] = '\0';
}

static int on_header_field(http_parser *parser, const char *at, size_t length)
{
	struct answer *answer = parser->data;

	if (answer->in_value)
		answer->name[0] = answer->value[0] = '\0';
	answer->in_value = false;
	append_text(answer->name, at, length);
	return 0;
}

static int on_header_value(http_parser *parser, const char *at, size_t length)
{
	struct answer *answer = parser->data;

	answer->in_value = true;
	append_text(answer->value, at, length);
	if (strcasecmp(answer->name, "Upgrade") == 0)
		answer->upgraded = strcasecmp(answer->value, CLIENT_UPGRADE) == 0;
	return 0;
}

static int on_headers_complete(http_parser *parser)
{
	struct answer *answer = parser->data;

	answer->headers_done = true;
	if (parser->content_length == UINT64_MAX || parser->content_length <= CLIENT_BODY_MAX)
		return 0;
	answer->failure = -EMSGSIZE;
	return -1;
}

static int on_body(http_parser *parser, const char *at, size_t length)
{
	struct answer *answer = parser->data;
	size_t need = answer->body_length + length, capacity = answer->body_capacity;
	char *body;

	if (need > CLIENT_BODY_MAX) {
		answer->failure = -EMSGSIZE;
		return -1;
	}
	while (capacity < need)
		capacity = capacity ? 2 * capacity : CLIENT_READ;
	if (capacity > answer->body_capacity) {
		body = realloc(answer->body, capacity);
		if (!body) {
			answer->failure = -ENOMEM;
			return -1;
		}
		answer->body = body;
		answer->body_capacity = capacity;
	}
	memcpy(answer->body + answer->body_length, at, length);
	answer->body_length = need;
	return 0;
}

static int on_message_complete(http_parser *parser)
{
	struct answer *answer = parser->data;

	answer->complete = true;
	/* Whatever follows is not this answer's: stop here. */
	http_parser_pause(parser, 1);
	return 0;
}

static const http_parser_settings answer_settings = {
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_message_complete = on_message_complete,
};

static void answer_init(struct answer *answer)
{
	*answer = (struct answer){0};
	http_parser_init(&answer->parser, HTTP_RESPONSE);
	answer->parser.data = answer;
}

static int fail_answer(int failure, struct client_error *error)
{
	if (failure == -ENOMEM)
		return fail_memory(error);
	client_error_set(error, "protocol", "the daemon's answer is longer than %d bytes", CLIENT_BODY_MAX);
	return -EMSGSIZE;
}

/* Gives the bytes in the client's buffer to the parser; length 0 is the end of the stream. */
static int parse_bytes(struct client *client, struct answer *answer, struct client_error *error)
{
	size_t length = client->end - client->start;
	size_t used = http_parser_execute(
		&answer->parser, &answer_settings, client->buffer + client->start, length);
	enum http_errno failure = HTTP_PARSER_ERRNO(&answer->parser);

	client->start += used;
	if (answer->complete)
		return 0;
	if (answer->failure < 0)
		return fail_answer(answer->failure, error);
	if (length == 0) {
		client_error_set(error, "incomplete",
			"the daemon closed the connection before its answer was complete");
		return -ECONNRESET;
	}
	if (failure == HPE_HEADER_OVERFLOW ||
		(!answer->headers_done && answer->head_bytes > CLIENT_HEADER_MAX)) {
		client_error_set(error, "protocol",
			"the headers of the daemon's answer are longer than %d bytes", CLIENT_HEADER_MAX);
		return -EMSGSIZE;
	}
	if (failure != HPE_OK || used != length) {
		client_error_set(error, "protocol", "what answers at the socket does not speak HTTP");
		snprintf(error->detail, sizeof(error->detail), "%s", http_errno_description(failure));
		return -EPROTO;
	}
	return 0;
}

/* Waits for bytes and reads once into the empty buffer. Bytes, 0 at the end of the stream, or -errno. */
static ssize_t receive_some(struct client *client, struct client_error *error)
{
	struct pollfd poll_fd = {.fd = client->fd, .events = POLLIN};
	ssize_t n;
	int r;

	do
		r = poll(&poll_fd, 1, client->timeout_ms);
	while (r < 0 && errno == EINTR);
	if (r == 0) {
		client_error_set(error, "timed_out", "the daemon has not answered within %g s",
			client->timeout_ms / 1000.0);
		return -ETIMEDOUT;
	}
	do
		n = recv(client->fd, client->buffer, sizeof(client->buffer), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		r = -errno;
		client_error_set(error, "io", "cannot read the daemon's answer: %s", strerror(-r));
		return r;
	}
	client->start = 0;
	client->end = (size_t)n;
	return n;
}

static int receive_answer(struct client *client, struct answer *answer, struct client_error *error)
{
	while (!answer->complete) {
		ssize_t n = receive_some(client, error);
		int r;

		if (n < 0)
			return (int)n;
		if (!answer->headers_done)
			answer->head_bytes += (size_t)n;
		r = parse_bytes(client, answer, error);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- sending a request ---- */

static int send_all(struct client *client, const char *data, size_t length, struct client_error *error)
{
	while (length > 0) {
		ssize_t n = send(client->fd, data, length, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* It may have answered before it closed: what it said is worth more than how it left. */
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return 0;
		if (n < 0) {
			int r = -errno;

			client_error_set(error, "io", "cannot send the request: %s", strerror(-r));
			return r;
		}
		data += n;
		length -= (size_t)n;
	}
	return 0;
}

static int send_request(struct client *client, const char *method, const char *path, const json_t *request,
	bool upgrade, struct client_error *error)
{
	char head[512 + CLIENT_KEY_MAX + CLIENT_PATH_MAX], *body = NULL, *message;
	size_t length = 0;
	int r, n;

	if (strlen(path) >= CLIENT_PATH_MAX) {
		client_error_set(
			error, "invalid", "the request's path is longer than %d bytes", CLIENT_PATH_MAX - 1);
		return -E2BIG;
	}
	if (request) {
		body = json_dumps(request, JSON_COMPACT);
		if (!body)
			return fail_memory(error);
		length = strlen(body);
	}
	n = snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s", method, path,
		request ? "Content-Type: application/json\r\n" : "",
		upgrade ? "Connection: Upgrade\r\nUpgrade: " CLIENT_UPGRADE "\r\n" : "Connection: close\r\n");
	if (request)
		n += snprintf(head + n, sizeof(head) - (size_t)n, "Content-Length: %zu\r\n", length);
	if (client->idempotency_key)
		n += snprintf(head + n, sizeof(head) - (size_t)n, "Idempotency-Key: %.*s\r\n", CLIENT_KEY_MAX,
			client->idempotency_key);
	n += snprintf(head + n, sizeof(head) - (size_t)n, "\r\n");
	/* In one piece, or the daemon would wake for the head alone. */
	message = malloc((size_t)n + length);
	if (message) {
		memcpy(message, head, (size_t)n);
		memcpy(message + n, body ? body : "", length);
		r = send_all(client, message, (size_t)n + length, error);
	} else {
		r = fail_memory(error);
	}
	free(message);
	free(body);
	return r;
}

/* ---- calls ---- */

static bool is_success(int status)
{
	return status >= 200 && status < 300;
}

/* The body as a JSON object; an error object is a failure. */
static int parse_body(const struct answer *answer, int *status, json_t **object, struct client_error *error)
{
	int http_status = (int)answer->parser.status_code;
	json_t *value = json_loadb(answer->body_length ? answer->body : "", answer->body_length, 0, NULL);

	if (value && client_error_parse(error, value) == 0) {
		error->http_status = http_status;
		json_decref(value);
		return -EREMOTEIO;
	}
	if (!json_is_object(value) || (!status && !is_success(http_status))) {
		json_decref(value);
		client_error_set(error, "protocol", "the daemon answered %d without %s", http_status,
			is_success(http_status) ? "a JSON object" : "an error object");
		return -EPROTO;
	}
	if (status)
		*status = http_status;
	*object = value;
	return 0;
}

int client_call(struct client *client, const char *method, const char *path, const json_t *request,
	int *status, json_t **answer_out, struct client_error *error)
{
	struct answer answer;
	int r;

	answer_init(&answer);
	r = send_request(client, method, path, request, false, error);
	if (r == 0)
		r = receive_answer(client, &answer, error);
	if (r == 0)
		r = parse_body(&answer, status, answer_out, error);
	free(answer.body);
	return r;
}

int client_upgrade(struct client *client, const char *path, const json_t *request, struct client_error *error)
{
	struct answer answer;
	json_t *object = NULL;
	int r;

	answer_init(&answer);
	r = send_request(client, request ? "POST" : "GET", path, request, true, error);
	if (r == 0)
		r = receive_answer(client, &answer, error);
	if (r == 0 && (answer.parser.status_code != 101 || !answer.parser.upgrade || !answer.upgraded)) {
		r = parse_body(&answer, NULL, &object, error);
		json_decref(object);
		if (r == 0 || r == -EPROTO) {
			client_error_set(error, "protocol", "the daemon answered %d and did not switch to %s",
				(int)answer.parser.status_code, CLIENT_UPGRADE);
			r = -EPROTO;
		}
	}
	free(answer.body);
	return r;
}
