/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: an exchange is suspended only between handle and its answer; libmicrohttpd runs in a callback
 * of the loop of its own, or at the end of the loop's round, and never within a call of ours, whose caller
 * would have other clients' requests done meanwhile. What is resumed in one of libmicrohttpd's own callbacks
 * (`inside`) is picked up by the turn that is running or by its own wake-up. Facts about 0.9.75: an answer in
 * the first call of the access handler ends the reading of a body, a later one does not; a suspended
 * connection does not notice that its client left; an upgraded one that is closed within the callback that
 * hands it over stays open until the next turn, for which nothing wakes. MHD_USE_TURBO reads a new connection
 * at once, and has epoll watch it only if nothing is there yet: three system calls fewer for a request that
 * is sent as soon as it is connected.
 */
#include "host-ctl/http/http.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/http/http_connections.h"
#include "host-ctl/http/http_head.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define ESCAPED_NUL "%00"

enum {
	RUNS_PER_TURN = 4,
	TURNS_IN_VAIN = 16, /* in a row; then it takes one run in PAUSE_MS */
	PAUSE_MS = 100,
};

struct http {
	struct loop *loop;
	struct MHD_Daemon *daemon;
	struct loop_source *source;
	struct loop_task turn;
	struct loop_source *pause; /* until the next turn that libmicrohttpd asks for */
	unsigned int in_vain;	   /* turns since it last called us or had nothing to do */
	unsigned int open;	   /* as libmicrohttpd counts them */
	struct http_connections connections;
	bool inside;
	bool deaf; /* it is being destroyed: answers are sent, and no request is heard */
	gid_t group;
	const char *target; /* that libmicrohttpd takes apart now, in its memory */
	struct metrics *metrics;
	const struct http_handler *handler;
	void *context;
};

struct http_exchange {
	struct http_request request;
	struct http *http;
	struct http_connection *held;
	struct MHD_Connection *connection;
	struct MHD_Response *response;
	unsigned int status;
	size_t capacity, dropped;
	size_t owed; /* bytes of the answer, until it is sent or dropped */
	char *path;  /* of the request, where it had escapes; else NULL */
	bool dispatched, suspended, client_left, upgraded;
	struct loop_source *watch;
	http_upgraded_fn *on_upgraded;
	void *upgrade_context;
};

struct http_stream {
	struct http *http;
	struct MHD_UpgradeResponseHandle *handle;
};

/* --- libmicrohttpd's turn --- */

/* Another turn, at the end of the loop's round: it takes no system call, and many answers are one turn's. */
static void turn_again(struct http *http)
{
	loop_defer(http->loop, &http->turn);
}

/* One run. Whether a place became free in it, after which another is needed: libmicrohttpd watches for the
 * clients that wait again only at the start of a run, and its time-out does not tell so. */
static bool run_frees_place(struct http *http)
{
	bool full = http->open >= HTTP_CONNECTIONS_MAX;

	MHD_run(http->daemon);
	return full && http->open < HTTP_CONNECTIONS_MAX;
}

/* How long it may be left alone; UINT64_MAX: until its epoll set has something. It asks for another run at
 * once, without end, while the line of a chunk that is longer than its buffer waits for a reader. */
static uint64_t run_until_idle(struct http *http)
{
	const int runs = http->in_vain < TURNS_IN_VAIN ? RUNS_PER_TURN : 1;
	MHD_UNSIGNED_LONG_LONG wait = 0;

	for (int i = 0; i < runs; i++) {
		if (run_frees_place(http))
			continue;
		if (MHD_get_timeout(http->daemon, &wait) != MHD_YES || wait) {
			http->in_vain = 0;
			return wait ? wait * CLOCK_NS_PER_MS : UINT64_MAX;
		}
	}
	if (http->in_vain >= TURNS_IN_VAIN)
		return PAUSE_MS * CLOCK_NS_PER_MS;
	http->in_vain++;
	return 0;
}

static void run_daemon(struct http *http)
{
	uint64_t wait;

	loop_forgo(http->loop, &http->turn);
	http->inside = true;
	wait = run_until_idle(http);
	http->inside = false;
	if (!wait)
		turn_again(http);
	else if (wait != UINT64_MAX)
		loop_set_timer(http->pause, wait);
}

static void daemon_ready(void *context, uint32_t events)
{
	(void)events;
	run_daemon(context);
}

static void turn(void *context)
{
	run_daemon(context);
}

/* --- answers --- */

static enum MHD_Result send_response(struct http_exchange *exchange)
{
	enum MHD_Result result;

	if (!exchange->on_upgraded)
		http_connection_enter(&exchange->http->connections, exchange->held, HTTP_ANSWERING);
	result = MHD_queue_response(exchange->connection, exchange->status, exchange->response);
	MHD_destroy_response(exchange->response);
	exchange->response = NULL;
	return result;
}

static void resume(struct http_exchange *exchange)
{
	loop_remove(exchange->watch);
	exchange->watch = NULL;
	if (!exchange->suspended)
		return;
	exchange->suspended = false;
	MHD_resume_connection(exchange->connection);
	if (!exchange->http->inside)
		turn_again(exchange->http);
}

/* Without memory for a response the connection is closed without one. */
static void answer(struct http_exchange *exchange, unsigned int status, struct MHD_Response *response)
{
	exchange->status = status;
	exchange->response = response;
	exchange->client_left = !response;
	if (!exchange->on_upgraded)
		exchange->request.left = NULL;
	resume(exchange);
}

/* The text is taken. */
static void reply(struct http_request *request, const struct http_answer *given)
{
	struct MHD_Response *response = NULL;

	if (request->answered) {
		request->left = NULL;
		request->answered(request->answered_context, given);
		return;
	}
	if (given->body)
		response = MHD_create_response_from_buffer(given->length, given->body, MHD_RESPMEM_MUST_FREE);
	if (response)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, given->type);
	else
		free(given->body);
	if (response) {
		request->exchange->owed = given->length;
		http_connection_owe(request->exchange->held, given->length);
	}
	if (response && request->replayed)
		MHD_add_response_header(response, "Idempotency-Replayed", "true");
	if (response && request->allow[0])
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, request->allow);
	answer(request->exchange, given->status, response);
}

void http_reply_text(
	struct http_request *request, unsigned int status, const char *type, char *text, size_t length)
{
	reply(request, &(struct http_answer){.status = status, .type = type, .body = text, .length = length});
}

static void reply_json(struct http_request *request, unsigned int status, json_t *body, enum error_kind error)
{
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL, *line = NULL;
	size_t length = text ? strlen(text) : 0;

	json_decref(body);
	if (text)
		line = realloc(text, length + 2);
	if (line)
		memcpy(line + length, "\n", 2);
	else
		free(text);
	reply(request, &(struct http_answer){.status = status,
			       .type = "application/json",
			       .body = line,
			       .length = length + 1,
			       .error = error});
}

void http_reply_json(struct http_request *request, unsigned int status, json_t *body)
{
	reply_json(request, status, body, ERROR_NONE);
}

void http_reply_error(struct http_request *request, const struct error *error)
{
	request->http->metrics->errors[error->kind]++;
	reply_json(request, error_http_status(error->kind), error_to_json(error), error->kind);
}

/* --- upgrade --- */

static void upgrade_done(void *context, struct MHD_Connection *connection, void *state, const char *extra,
	size_t extra_length, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
	struct http_exchange *exchange = context;
	struct http_stream *stream = malloc(sizeof *stream);

	(void)connection;
	(void)state;
	if (!stream || exchange->http->deaf || fd_set_nonblock(fd) < 0) {
		free(stream);
		MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
		return;
	}
	*stream = (struct http_stream){.http = exchange->http, .handle = handle};
	exchange->upgraded = true;
	exchange->request.left = NULL;
	exchange->on_upgraded(exchange->upgrade_context, stream, fd, extra, extra_length);
}

void http_upgrade(struct http_request *request, const char *const *headers, http_upgraded_fn *upgraded,
	void (*left)(void *context), void *context)
{
	struct http_exchange *exchange = request->exchange;
	struct MHD_Response *response = MHD_create_response_for_upgrade(upgrade_done, exchange);

	if (response)
		MHD_add_response_header(response, MHD_HTTP_HEADER_UPGRADE, HTTP_UPGRADE_PROTOCOL);
	for (; response && headers[0]; headers += 2)
		MHD_add_response_header(response, headers[0], headers[1]);
	request->left = left;
	request->left_context = context;
	exchange->on_upgraded = upgraded;
	exchange->upgrade_context = context;
	answer(exchange, MHD_HTTP_SWITCHING_PROTOCOLS, response);
}

void http_stream_close(struct http_stream *stream)
{
	struct http *http = stream->http;

	MHD_upgrade_action(stream->handle, MHD_UPGRADE_ACTION_CLOSE);
	free(stream);
	turn_again(http);
}

/* --- requests --- */

static void tell_left(struct http_exchange *exchange)
{
	void (*left)(void *) = exchange->request.left;

	exchange->request.left = NULL;
	exchange->client_left = true;
	if (left)
		left(exchange->request.left_context);
}

static void client_changed(void *context, uint32_t events)
{
	struct http_exchange *exchange = context;

	if (!(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
		return;
	exchange->http->metrics->clients_left++;
	tell_left(exchange);
	resume(exchange);
}

/* After the request is handed over, so that the watch costs nothing on the way to its first byte. */
static enum MHD_Result suspend(struct http_exchange *exchange)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	if (info)
		exchange->watch = loop_add_fd(
			exchange->http->loop, info->connect_fd, EPOLLRDHUP, client_changed, exchange);
	if (!exchange->watch) {
		tell_left(exchange);
		return MHD_NO;
	}
	exchange->suspended = true;
	MHD_suspend_connection(exchange->connection);
	return MHD_YES;
}

static void set_too_large(const struct http_request *request, struct error *error)
{
	error_set(error, ERROR_TOO_LARGE, "the body is over the limit of %d bytes: %s", HTTP_BODY_MAX,
		request->body_mend ? request->body_mend : "send less");
}

static enum MHD_Result refuse_early(struct http_exchange *exchange, struct error *error)
{
	http_reply_error(&exchange->request, error);
	return exchange->response ? send_response(exchange) : MHD_NO;
}

/* Where the next request begins is not known either: the connection ends with the answer. */
static enum MHD_Result refuse_and_close(struct http_exchange *exchange, const struct error *error)
{
	http_reply_error(&exchange->request, error);
	if (exchange->response)
		MHD_add_response_header(exchange->response, MHD_HTTP_HEADER_CONNECTION, "close");
	return exchange->response ? send_response(exchange) : MHD_NO;
}

static enum MHD_Result begin(struct http *http, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, void **state)
{
	struct http_exchange *exchange = calloc(1, sizeof *exchange);
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct error error;

	if (!exchange || http->deaf || !info || !info->socket_context) {
		free(exchange);
		return MHD_NO;
	}
	*state = exchange;
	exchange->http = http;
	exchange->held = info->socket_context;
	exchange->connection = connection;
	exchange->request = (struct http_request){.method = method,
		.path = http_head_path(path),
		.peer = &exchange->held->peer,
		.http = http,
		.connection = connection,
		.exchange = exchange};
	http_head_read(&exchange->request);
	http->metrics->http_requests++;
	if (!exchange->request.peer->allowed) {
		error_set(&error, ERROR_DENIED,
			"uid %u may not use this daemon: be root or in the socket's group",
			(unsigned)exchange->request.peer->uid);
		return refuse_early(exchange, &error);
	}
	if (http_head_check_form(
		    &exchange->request, exchange->held->target, exchange->held->target_end, version, &error))
		return refuse_and_close(exchange, &error);
	if (http_connection_check_share(&http->connections, exchange->held, &error))
		return refuse_early(exchange, &error);
	http_connection_enter(&http->connections, exchange->held, HTTP_BODY);
	if (http_head_check_length(&exchange->request, &error))
		return refuse_and_close(exchange, &error);
	if (http_head_decode_path(exchange->request.path, &exchange->path, &error))
		return refuse_early(exchange, &error);
	if (exchange->path)
		exchange->request.path = exchange->path;
	if (http->handler->check(http->context, &exchange->request, &error) ||
		http_head_check_upgrade(&exchange->request, version, &error))
		return refuse_early(exchange, &error);
	if (http_head_announced(&exchange->request) > HTTP_BODY_MAX) {
		set_too_large(&exchange->request, &error);
		return refuse_early(exchange, &error);
	}
	return MHD_YES;
}

/* Bytes beyond the limit are dropped, and counted: the answer has to wait for the end of the body. */
static enum MHD_Result take_body(struct http_exchange *exchange, const char *data, size_t length)
{
	struct http_request *request = &exchange->request;
	size_t capacity = exchange->capacity ? exchange->capacity : HTTP_BODY_START;
	char *body;

	if (exchange->dropped || length > HTTP_BODY_MAX - request->body_length) {
		exchange->dropped += length;
		return exchange->dropped > HTTP_DISCARD_MAX ? MHD_NO : MHD_YES;
	}
	while (capacity < request->body_length + length)
		capacity *= 2;
	if (capacity > exchange->capacity) {
		body = realloc(request->body, capacity);
		if (!body)
			return MHD_NO;
		request->body = body;
		exchange->capacity = capacity;
	}
	memcpy(request->body + request->body_length, data, length);
	request->body_length += length;
	return MHD_YES;
}

/* What was done must be told of, whoever does not read. */
static bool only_tells(const struct http_request *request)
{
	return !strcmp(request->method, MHD_HTTP_METHOD_GET) ||
	       !strcmp(request->method, MHD_HTTP_METHOD_HEAD);
}

static enum MHD_Result dispatch(struct http_exchange *exchange)
{
	struct http *http = exchange->http;
	struct error error;

	exchange->dispatched = true;
	http_connection_enter(&http->connections, exchange->held, HTTP_BUSY);
	exchange->request.received_ns = exchange->held->since_ns;
	if (exchange->dropped) {
		set_too_large(&exchange->request, &error);
		http_reply_error(&exchange->request, &error);
	} else if (only_tells(&exchange->request) && http_connection_check_unread(exchange->held, &error)) {
		http_reply_error(&exchange->request, &error);
	} else {
		http->handler->handle(http->context, &exchange->request);
	}
	if (exchange->client_left)
		return MHD_NO;
	return exchange->response ? send_response(exchange) : suspend(exchange);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *data, size_t *length, void **state)
{
	struct http_exchange *exchange = *state;
	struct http *http = context;
	size_t taken = *length;

	http->in_vain = 0;
	if (!exchange)
		return begin(http, connection, path, method, version, state);
	if (taken) {
		*length = 0;
		return take_body(exchange, data, taken);
	}
	if (exchange->client_left)
		return MHD_NO;
	if (exchange->response)
		return send_response(exchange);
	if (exchange->dispatched)
		return MHD_YES;
	return http->deaf ? MHD_NO : dispatch(exchange);
}

static void on_completed(
	void *context, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
	struct http_exchange *exchange = *state;
	struct http *http = context;

	(void)connection;
	(void)code;
	http->in_vain = 0;
	if (!exchange)
		return;
	*state = NULL;
	http_connection_enter(&exchange->http->connections, exchange->held, HTTP_WAITING);
	http_connection_settle(exchange->held, exchange->owed);
	loop_remove(exchange->watch);
	tell_left(exchange);
	if (exchange->response)
		MHD_destroy_response(exchange->response);
	free(exchange->request.body);
	free(exchange->path);
	free(exchange);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
	enum MHD_ConnectionNotificationCode code)
{
	struct http *http = context;
	const union MHD_ConnectionInfo *info;

	http->in_vain = 0;
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		http->open--;
		http_connections_remove(&http->connections, *state);
		*state = NULL;
		return;
	}
	http->open++;
	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	*state = info ? http_connections_add(&http->connections, connection, info->connect_fd, http->group)
		      : NULL;
}

/* --- life --- */

static void on_message(void *context, const char *format, va_list arguments)
{
	char line[256];
	size_t length;

	(void)context;
	vsnprintf(line, sizeof line, format, arguments);
	length = strcspn(line, "\n");
	line[length] = '\0';
	log_debug("libmicrohttpd: %s", line);
}

/* Before it is taken apart. What is returned is the first *state of on_request. */
static void *note_target(void *context, const char *target, struct MHD_Connection *connection)
{
	struct http *http = context;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct http_connection *held = info ? info->socket_context : NULL;

	http->target = target;
	if (held) {
		held->target = target;
		held->target_end = http_head_find_end(target);
	}
	return NULL;
}

/* Of the query's names and values; the path is decoded later, where it can be refused. What holds a NUL would
 * be cut there: it stays as it came. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text)
{
	const struct http *http = context;

	(void)connection;
	return text == http->target || strstr(text, ESCAPED_NUL) ? strlen(text) : MHD_http_unescape(text);
}

static int start_daemon(struct http *http, int listener)
{
	const union MHD_DaemonInfo *info;

	http->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_TURBO | MHD_ALLOW_SUSPEND_RESUME |
						MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG,
		0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL,
		MHD_OPTION_UNESCAPE_CALLBACK, unescape, http, MHD_OPTION_URI_LOG_CALLBACK, note_target, http,
		MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)HTTP_HEADER_MEMORY, MHD_OPTION_END);
	if (!http->daemon)
		return -EIO;
	info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return -EIO;
	http->source = loop_add_fd(http->loop, info->epoll_fd, EPOLLIN, daemon_ready, http);
	return http->source ? 0 : -ENOMEM;
}

struct http *http_create(struct loop *loop, int listener, gid_t group, uint64_t limit_ms,
	struct metrics *metrics, const struct http_handler *handler, void *context)
{
	struct http *http = calloc(1, sizeof *http);

	if (!http)
		return NULL;
	*http = (struct http){.loop = loop,
		.turn = {.fn = turn, .context = http},
		.group = group,
		.metrics = metrics,
		.handler = handler,
		.context = context};
	http->pause = loop_add_timer(loop, turn, http);
	if (!http->pause || http_connections_init(&http->connections, loop, limit_ms, metrics) < 0 ||
		start_daemon(http, listener) < 0) {
		log_error("cannot start the HTTP server");
		http_destroy(http);
		return NULL;
	}
	return http;
}

void http_stop_listening(struct http *http)
{
	MHD_quiesce_daemon(http->daemon);
}

void http_destroy(struct http *http)
{
	if (!http)
		return;
	loop_remove(http->source);
	http->deaf = true;
	if (http->turn.asked)
		run_daemon(http);
	http->inside = true;
	if (http->daemon)
		MHD_stop_daemon(http->daemon);
	loop_forgo(http->loop, &http->turn);
	loop_remove(http->pause);
	http_connections_finish(&http->connections);
	free(http);
}
