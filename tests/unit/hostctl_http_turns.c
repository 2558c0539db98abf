/* SPDX-License-Identifier: Apache-2.0 */
/* When libmicrohttpd runs: after the callbacks of the loop's round, and never within a call of http.h. */
#include "tests/unit/hostctl_stream_fixture.h"

#include "common/loop.h"
#include "host-ctl/http/http.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { HELD_MAX = 4, TURNS_MAX = 200 };

/* A server whose handler holds each request, or has it upgraded. */
struct server {
	char folder[64], socket[96];
	int listener, event;
	struct loop *loop;
	struct metrics metrics;
	struct http *http;
	struct http_request *held[HELD_MAX];
	struct http_stream *stream;
	int handled;
};

static int check(void *context, struct http_request *request, struct error *error)
{
	(void)context;
	(void)request;
	(void)error;
	return 0;
}

static void left(void *context)
{
	(void)context;
}

static void upgraded(void *context, struct http_stream *stream, int fd, const void *extra, size_t length)
{
	struct server *server = context;

	(void)fd;
	(void)extra;
	(void)length;
	server->stream = stream;
}

static void handle(void *context, struct http_request *request)
{
	static const char *const no_headers[] = {NULL};
	struct server *server = context;

	assert_true(server->handled < HELD_MAX);
	server->held[server->handled++] = request;
	if (request->wants_upgrade)
		http_upgrade(request, no_headers, upgraded, left, server);
}

static const struct http_handler handler = {.check = check, .handle = handle};

static void server_start(struct server *server)
{
	*server = (struct server){.folder = "/tmp/tinderbox-unit.XXXXXX", .event = -1};
	assert_non_null(mkdtemp(server->folder));
	snprintf(server->socket, sizeof server->socket, "%s/api.sock", server->folder);
	server->listener = unix_listen(server->socket, SOCK_STREAM, 0600, 8);
	assert_true(server->listener >= 0);
	server->loop = loop_create();
	assert_non_null(server->loop);
	server->http =
		http_create(server->loop, server->listener, 0, WAIT_MS, &server->metrics, &handler, server);
	assert_non_null(server->http);
}

static void server_finish(struct server *server)
{
	http_destroy(server->http);
	loop_destroy(server->loop);
	close(server->listener);
	unlink(server->socket);
	assert_int_equal(rmdir(server->folder), 0);
}

/* A connection on which a request was sent. */
static int ask(const struct server *server, const char *path, const char *headers)
{
	const struct timeval limit = {.tv_sec = WAIT_MS / 1000};
	int fd = unix_connect(server->socket, SOCK_STREAM);

	assert_true(fd >= 0);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	client_request(fd, "GET", path, headers, NULL);
	return fd;
}

static void await_handled(struct server *server, int wanted)
{
	for (int i = 0; i < TURNS_MAX && server->handled < wanted; i++)
		assert_int_equal(loop_turn(server->loop, POLL_MS), 0);
	assert_int_equal(server->handled, wanted);
}

static bool is_readable(int fd)
{
	return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
}

static void expect_answered(int fd)
{
	struct answer answer;

	client_answer(fd, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(answer.body, "{}\n");
	answer_finish(&answer);
	close(fd);
}

static void reply(struct server *server, int number)
{
	http_reply_json(server->held[number], 200, json_object());
}

/* Whoever answers in the midst of his work finds all as it was. */
static void test_an_answer_serves_nobody_else_from_within(void **state)
{
	struct server server;
	int first, second;

	(void)state;
	server_start(&server);
	first = ask(&server, "/first", "");
	await_handled(&server, 1);
	second = ask(&server, "/second", "");
	reply(&server, 0);
	assert_int_equal(server.handled, 1);
	await_handled(&server, 2);
	expect_answered(first);
	reply(&server, 1);
	assert_int_equal(loop_turn(server.loop, -1), 0);
	expect_answered(second);
	server_finish(&server);
}

static void test_the_end_of_a_stream_serves_nobody_from_within(void **state)
{
	struct server server;
	char head[2048], byte;
	int first, second;

	(void)state;
	server_start(&server);
	first = ask(&server, "/first", UPGRADE);
	await_handled(&server, 1);
	assert_non_null(server.stream);
	assert_int_equal(client_read_head(first, head, sizeof head), 101);
	second = ask(&server, "/second", "");
	http_stream_close(server.stream);
	assert_int_equal(server.handled, 1);
	await_handled(&server, 2);
	assert_int_equal(read(first, &byte, 1), 0);
	close(first);
	reply(&server, 1);
	assert_int_equal(loop_turn(server.loop, -1), 0);
	expect_answered(second);
	server_finish(&server);
}

static void reply_to_all(void *context, uint32_t events)
{
	struct server *server = context;
	uint64_t count;

	(void)events;
	assert_int_equal(read(server->event, &count, sizeof count), sizeof count);
	for (int i = 0; i < server->handled; i++)
		reply(server, i);
}

/* An answer waits for no other round of the loop. */
static void test_answers_of_a_round_go_out_at_its_end(void **state)
{
	const uint64_t one = 1;
	struct server server;
	int clients[2];

	(void)state;
	server_start(&server);
	server.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_non_null(loop_add_fd(server.loop, server.event, EPOLLIN, reply_to_all, &server));
	for (int i = 0; i < 2; i++) {
		clients[i] = ask(&server, "/", "");
		await_handled(&server, i + 1);
	}
	/* What may be left of the requests. */
	assert_int_equal(loop_turn(server.loop, 0), 0);
	assert_int_equal(write(server.event, &one, sizeof one), sizeof one);
	assert_int_equal(loop_turn(server.loop, 0), 0);
	assert_true(is_readable(clients[0]));
	assert_true(is_readable(clients[1]));
	expect_answered(clients[0]);
	expect_answered(clients[1]);
	server_finish(&server);
	close(server.event);
}

/* The last answer is given after the loop's last round. */
static void test_what_is_answered_last_is_sent_and_nothing_is_heard(void **state)
{
	struct server server;
	char byte;
	int first, second;

	(void)state;
	server_start(&server);
	first = ask(&server, "/first", "");
	await_handled(&server, 1);
	second = ask(&server, "/second", "");
	reply(&server, 0);
	server_finish(&server);
	assert_int_equal(server.handled, 1);
	expect_answered(first);
	assert_true(read(second, &byte, 1) <= 0);
	close(second);
}

/* Who has not read what was answered is told nothing more, and nobody else's memory goes for it. */
static void test_answers_that_nobody_reads(void **state)
{
	enum { UNREAD = 3, BYTES = HTTP_UNREAD_MAX / UNREAD + 1 };
	struct server server;
	struct answer answer;
	int fds[UNREAD], fd;

	(void)state;
	server_start(&server);
	for (int i = 0; i < UNREAD; i++) {
		char *text = calloc(1, BYTES);

		assert_non_null(text);
		fds[i] = ask(&server, "/long", "");
		await_handled(&server, i + 1);
		http_reply_text(server.held[i], 200, "text/plain", text, BYTES);
		assert_int_equal(loop_turn(server.loop, POLL_MS), 0);
	}
	fd = ask(&server, "/more", "");
	for (int i = 0; i < TURNS_MAX && !is_readable(fd); i++)
		assert_int_equal(loop_turn(server.loop, POLL_MS), 0);
	assert_int_equal(server.handled, UNREAD);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 429);
	assert_string_equal(error_member(&answer, "code"), "exhausted");
	assert_non_null(
		strstr(error_member(&answer, "message"), " bytes of answers that it has not read yet"));
	answer_finish(&answer);
	close(fd);
	/* One that leaves has them no more. */
	close(fds[0]);
	for (int i = 0; i < UNREAD; i++)
		assert_int_equal(loop_turn(server.loop, POLL_MS), 0);
	fd = ask(&server, "/again", "");
	await_handled(&server, UNREAD + 1);
	reply(&server, UNREAD);
	for (int i = 0; i < TURNS_MAX && !is_readable(fd); i++)
		assert_int_equal(loop_turn(server.loop, POLL_MS), 0);
	expect_answered(fd);
	for (int i = 1; i < UNREAD; i++)
		close(fds[i]);
	server_finish(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_answer_serves_nobody_else_from_within),
		cmocka_unit_test(test_the_end_of_a_stream_serves_nobody_from_within),
		cmocka_unit_test(test_answers_of_a_round_go_out_at_its_end),
		cmocka_unit_test(test_answers_that_nobody_reads),
		cmocka_unit_test(test_what_is_answered_last_is_sent_and_nothing_is_heard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
