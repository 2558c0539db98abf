/* SPDX-License-Identifier: Apache-2.0 */
/* The forms that a request may have, and what is no request: heads without end, several at once, names that
 * are none. */
#include "tests/unit/hostctl_sandboxes_fixture.h"

enum { HEAD_ENDLESS = 10 * 1024 * 1024, HEAD_TAKEN = 24 * 1024, MEMORY_SLACK_KIB = 4096 };

static char *const no_pool[] = {"--pool", "0", NULL}, *const pool_of_one[] = {"--pool", "1", NULL};

/* The answer to a text that is a whole request, on a connection of its own. */
static void ask(const struct daemon *daemon, const char *text, struct answer *answer)
{
	int fd = client_open(daemon);

	client_send_text(fd, text);
	client_answer(fd, answer);
	close(fd);
}

static void expect_closed(int fd)
{
	assert_int_equal(client_read_head(fd, (char[8]){0}, 8), -1);
	close(fd);
}

/* A head, and nothing after it but the next one. */
static int head_of(int fd, const char *path, char head[2048])
{
	client_request(fd, "HEAD", path, "", NULL);
	return client_read_head(fd, head, 2048);
}

static void test_head_is_get_without_a_body(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char head[2048], length[64];
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	fd = client_open(&daemon);
	call(&daemon, "GET", "/v1/healthz", NULL, &answer);
	snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(answer.body));
	answer_finish(&answer);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(head_of(fd, "/v1/healthz", head), 200);
		assert_non_null(strstr(head, length));
		assert_non_null(strstr(head, "Content-Type: application/json\r\n"));
	}
	/* And no word of what else there is, as a 405 has it. */
	assert_int_equal(head_of(fd, "/v1/sandboxes", head), 200);
	assert_null(strstr(head, "Allow:"));
	assert_int_equal(head_of(fd, "/v1/sandboxes/sb-none", head), 404);
	/* It gets the head of what a GET would get, which is no 101. */
	client_request(
		fd, "HEAD", "/v1/events", "Connection: Upgrade\r\nUpgrade: tinderbox-frames\r\n", NULL);
	assert_int_equal(client_read_head(fd, head, sizeof head), 400);
	assert_int_equal(head_of(fd, "/v1/run", head), 405);
	assert_non_null(strstr(head, "Allow: POST\r\n"));
	expect_closed(fd);
	daemon_stop(&daemon);
}

static void test_what_is_allowed_is_told(void **state)
{
	static const char *const cases[][3] = {{"DELETE", "/v1/pool", "Allow: GET, HEAD, PUT\r\n"},
		{"PATCH", "/v1/sandboxes/x", "Allow: GET, HEAD, DELETE\r\n"},
		{"GET", "/v1/sandboxes/x/pause", "Allow: POST\r\n"},
		{"OPTIONS", "/metrics", "Allow: GET, HEAD\r\n"}};
	struct daemon daemon;
	char head[2048];

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int fd = client_open(&daemon);

		client_request(fd, cases[i][0], cases[i][1], "", NULL);
		assert_int_equal(client_read_head(fd, head, sizeof head), 405);
		assert_non_null(strstr(head, cases[i][2]));
		close(fd);
	}
	daemon_stop(&daemon);
}

/* As to a proxy: RFC 9112, 3.2.2 has every server take it. */
static void test_absolute_form(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	ask(&daemon, "GET http://x/v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	ask(&daemon, "GET HTTP://name:80/v1/pool?template=none HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
	assert_string_equal(error_member(&answer, "message"),
		"there is no template none: see `host-ctl template list`, or build it");
	answer_finish(&answer);
	ask(&daemon, "GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
	assert_string_equal(
		error_member(&answer, "message"), "nothing is at /: see docs/api.md for the resources");
	answer_finish(&answer);
	ask(&daemon, "GET ftp://x/v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
	assert_string_equal(error_member(&answer, "message"),
		"nothing is at ftp://x/v1/healthz: see docs/api.md for the resources");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* Answered in their order, one that takes its time too. */
static void test_pipelined_requests(void **state)
{
	static const char run[] = "{\"argv\":[\"exit\",\"3\"]}";
	char text[1024];
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	fd = client_open(&daemon);
	snprintf(text, sizeof text,
		"GET /v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n"
		"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s"
		"GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\n\r\n"
		"GET /v1/none HTTP/1.1\r\nHost: x\r\n\r\n"
		"GET /v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		sizeof run - 1, run);
	client_send_text(fd, text);
	client_answer(fd, &answer);
	assert_string_equal(member(&answer, "status"), "\"ok\"");
	answer_finish(&answer);
	client_answer(fd, &answer);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"exited\",\"code\":3}");
	answer_finish(&answer);
	client_answer(fd, &answer);
	assert_string_equal(answer.body, "{\"sandboxes\":[]}\n");
	answer_finish(&answer);
	/* A refusal by the head is the connection's last. */
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	expect_closed(fd);
	daemon_stop(&daemon);
}

/* What was refused unread is not taken for the next request. */
static void test_a_refused_body_is_no_request(void **state)
{
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	fd = client_open(&daemon);
	client_send_text(fd, "POST /v1/none HTTP/1.1\r\nHost: x\r\nContent-Length: 47\r\n\r\n"
			     "DELETE /v1/templates/x HTTP/1.1\r\nHost: x\r\n\r\n12");
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	expect_closed(fd);
	assert_int_equal(metric(&daemon, "tinderbox_http_requests_total "), 2);
	daemon_stop(&daemon);
}

/* As much of it as the daemon takes. */
static void send_endless(int fd, const char *start, const char *more)
{
	static char block[8192];
	size_t sent = 0, length = strlen(more);

	for (size_t at = 0; at + length <= sizeof block; at += length)
		for (size_t i = 0; i < length; i++)
			block[at + i] = more[i];
	client_send_text(fd, start);
	while (sent < HEAD_ENDLESS) {
		ssize_t taken = send(fd, block, sizeof block / length * length, MSG_NOSIGNAL);

		if (taken < 0)
			break;
		sent += (size_t)taken;
	}
	assert_true(sent < HEAD_ENDLESS);
}

static void expect_head_answer(const struct daemon *daemon, const char *start, const char *more, int status)
{
	char head[2048];
	int fd = client_open(daemon);

	send_endless(fd, start, more);
	assert_int_equal(client_read_head(fd, head, sizeof head), status);
	assert_non_null(strstr(head, "Connection: close\r\n"));
	close(fd);
}

/* 10 MiB of one line, of many, of the path: refused by libmicrohttpd, at the same cost as any other. */
static void test_heads_without_end(void **state)
{
	static char name[HEAD_TAKEN + 1], text[HEAD_TAKEN + 256];
	struct daemon daemon;
	struct answer answer;
	long before;

	(void)state;
	memset(name, 'n', sizeof name - 1);
	daemon_start(&daemon, "boot", no_pool);
	before = daemon_memory_kib(&daemon, "VmRSS:");
	for (int i = 0; i < 4; i++) {
		expect_head_answer(&daemon, "GET /v1/healthz HTTP/1.1\r\nHost: x\r\nX-Long: ", "x", 431);
		expect_head_answer(
			&daemon, "GET /v1/healthz HTTP/1.1\r\nHost: x\r\n", "X-Line: 12345\r\n", 431);
		expect_head_answer(&daemon, "GET /v1/", "x", 414);
	}
	assert_in_range(daemon_memory_kib(&daemon, "VmRSS:"), 0, before + MEMORY_SLACK_KIB);
	/* A long one is not yet too long. */
	snprintf(text, sizeof text, "GET /v1/healthz HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", name);
	ask(&daemon, text, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static void test_what_is_no_http(void **state)
{
	static const char *const texts[] = {"\r\n\r\n\r\nhello\r\n\r\n", "GET /v1/healthz HTTP/9.9\r\n\r\n",
		"GET /v1/healthz HTTP/1.1\r\nno colon\r\n\r\n", "\x16\x03\x01\x02\x00\x01\r\n\r\n",
		"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		char head[2048];
		int fd = client_open(&daemon), status;

		client_send_text(fd, texts[i]);
		shutdown(fd, SHUT_WR);
		status = client_read_head(fd, head, sizeof head);
		if (status != 400 && status != 413 && status != 505 && status != -1)
			fail_msg("text %zu got %d", i, status);
		close(fd);
	}
	ask(&daemon, "GET /v1/healthz HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* Of sandboxes, commands, operations and templates: each is looked up as it is, none is a path. */
/* A text with its NULs. */
#define RAW(text)                                                                                            \
	{                                                                                                    \
		text, sizeof(text) - 1                                                                       \
	}
#define H "GET /v1/healthz HTTP/1.1\r\n"
#define BAD_LINE "the request line has a NUL, or not one space between its parts"
#define BAD_HEADER "a header has a NUL, a carriage return or no name, or goes on in a second line"
#define BAD_NAME(name) "\"" name "\" is no name of a header: no space stands before the colon"

/* What libmicrohttpd takes, or takes in part: refused, and what comes after it is no request. */
static void test_heads_that_are_not_whole(void **state)
{
	static const struct {
		struct {
			const char *bytes;
			size_t length;
		} head;
		const char *message;
	} cases[] = {
		{RAW("DELETE /v1/sandboxes/kept\0junk HTTP/1.1\r\nHost: x\r\n\r\n"), BAD_LINE},
		{RAW("DELETE /v1/sandboxes/kept\0?a=b HTTP/1.1\r\nHost: x\r\n\r\n"), BAD_LINE},
		{RAW("DELETE /v1/sandboxes/kept\0 HTTP/1.1\r\nHost: x\r\n\r\n"), BAD_LINE},
		{RAW("DELETE /v1/sandboxes/kept junk HTTP/1.1\r\nHost: x\r\n\r\n"), BAD_LINE},
		{RAW("DELETE  /v1/sandboxes/kept HTTP/1.1\r\nHost: x\r\n\r\n"), BAD_LINE},
		{RAW("DELETE\0X /v1/sandboxes/kept HTTP/1.1\r\nHost: x\r\n\r\n"), BAD_LINE},
		{RAW("GET /v1/sandboxes?state=ready\0junk HTTP/1.1\r\nHost: x\r\n\r\n"), BAD_LINE},
		{RAW(H "Host: x\r\nIdempotency-Key: a\0b\r\n\r\n"), BAD_HEADER},
		{RAW(H "Host: x\r\nIdempotency-Key: a\0b\r\nX: y\r\n\r\n"), BAD_HEADER},
		{RAW(H "Host: x\r\nIdempotency-Key: \0\r\n\r\n"), BAD_HEADER},
		{RAW(H "Host: x\r\n\0Content-Length: 5\r\nX: y\r\n\r\n"), BAD_HEADER},
		{RAW(H "Host: x\r\nIdempotency-Key: a\r\n b\r\n\r\n"), BAD_HEADER},
		{RAW(H "Host: x\r\nIdempotency-Key: a\r\n b\r\nX: y\r\n\r\n"), BAD_HEADER},
		{RAW(H "Host: x\r\nX: a\rb\r\n\r\n"), BAD_HEADER},
		{RAW("POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length : 37\r\n\r\n"),
			BAD_NAME("Content-Length ")},
		{RAW("POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding\t: chunked\r\n\r\n"),
			BAD_NAME("Transfer-Encoding?")},
		{RAW(H "Host: x\r\n: y\r\n\r\n"), BAD_HEADER},
		{RAW(H ": y\r\nHost: x\r\n\r\n"), BAD_NAME("")},
		{RAW(H "\r\n"), "the request has 0 Host headers: send one"},
		{RAW(H "X: y\r\n\r\n"), "the request has 0 Host headers: send one"},
		{RAW(H "Host: x\r\nhost: y\r\n\r\n"), "the request has 2 Host headers: send one"},
	};
	struct daemon daemon;
	struct answer answer;
	char byte;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	await_pool(&daemon, "warm", 1);
	call(&daemon, "POST", "/v1/sandboxes", "{\"name\":\"kept\"}", &answer);
	assert_int_equal(answer.status, 201);
	answer_finish(&answer);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int fd = client_open(&daemon);

		assert_int_equal(send(fd, cases[i].head.bytes, cases[i].head.length, 0),
			(ssize_t)cases[i].head.length);
		client_answer(fd, &answer);
		if (answer.status != 400 || strcmp(error_member(&answer, "message"), cases[i].message) != 0)
			fail_msg("case %zu got %d: %s", i, answer.status, answer.body);
		assert_string_equal(error_member(&answer, "code"), "invalid");
		answer_finish(&answer);
		assert_int_equal(read(fd, &byte, 1), 0);
		close(fd);
	}
	call(&daemon, "GET", "/v1/sandboxes/kept", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* The refusal's neighbours: bare line feeds, no space after the colon, no Host before HTTP/1.1. */
static void test_heads_that_are_whole(void **state)
{
	static const char *const texts[] = {"GET /v1/healthz HTTP/1.0\r\n\r\n",
		"GET /v1/healthz HTTP/1.0\n\n", H "Host:x\n\n", H "Host:\tx\r\nX:\nY: \r\n\r\n",
		"\r\nGET /v1/sandboxes?state=ready HTTP/1.1\r\nhost: x\r\nCookie: a=b; c=\"d\"\r\n\r\n"};
	static char lines[HEAD_TAKEN];
	struct daemon daemon;
	struct answer answer;
	size_t length = 0;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		ask(&daemon, texts[i], &answer);
		if (answer.status != 200)
			fail_msg("text %zu got %d: %s", i, answer.status, answer.body);
		answer_finish(&answer);
	}
	/* Its buffer grows meanwhile. */
	fd = client_open(&daemon);
	client_send_text(fd, H "Host: x\r\n");
	while (length + 128 < sizeof lines * 3 / 4)
		length += (size_t)sprintf(lines + length, "X-%zu: %100zu\r\n", length, length);
	for (size_t at = 0; at < length; at += 1000) {
		size_t part = length - at < 1000 ? length - at : 1000;

		assert_int_equal(send(fd, lines + at, part, 0), (ssize_t)part);
		sleep_ms(2);
	}
	client_send_text(fd, "\r\n");
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	close(fd);
	daemon_stop(&daemon);
}

static void test_names_that_are_none(void **state)
{
	static const char *const names[][2] = {{"..", ".."}, {"%2e%2e", ".."}, {".", "."}, {"sb-", "sb-"},
		{"%ff%fe", "??"}, {"%2500", "%00"}, {"a%20b", "a b"}};
	char path[128], message[128], id[32];
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(path, sizeof path, "/v1/sandboxes/%s", names[i][0]);
		snprintf(message, sizeof message, "there is no sandbox %s", names[i][1]);
		expect_refused(&daemon, "GET", path, NULL, "not_found", message);
		expect_refused(&daemon, "DELETE", path, NULL, "not_found", message);
		snprintf(path, sizeof path, "/v1/sandboxes/%s/run", names[i][0]);
		expect_refused(&daemon, "POST", path, "{\"argv\":[\"echo\"]}", "not_found", message);
		snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s", id, names[i][0]);
		snprintf(message, sizeof message, "sandbox %s has no command %s", id, names[i][1]);
		expect_refused(&daemon, "GET", path, NULL, "not_found", message);
		snprintf(path, sizeof path, "/v1/operations/%s", names[i][0]);
		snprintf(message, sizeof message, "there is no operation %s", names[i][1]);
		expect_refused(&daemon, "GET", path, NULL, "not_found", message);
	}
	/* Steps up are steps of nothing. */
	expect_refused(&daemon, "GET", "/v1/sandboxes/../sandboxes", NULL, "not_found",
		"nothing is at /v1/sandboxes/../sandboxes: see docs/api.md for the resources");
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

/* Parts are what stands between two '/' before anything is decoded, and then a name is looked up decoded. */
static void test_escapes_in_paths(void **state)
{
	static const struct {
		const char *rest, *message;
	} refused[] = {
		{"sb-%001", "the path has a NUL (%00), which no name has"},
		{"x%2Fpause", "the path has an escaped / (%2F), which no name has"},
		{"x%2fpause", "the path has an escaped / (%2f), which no name has"},
		{"..%2F..%2Fv1%2Fhealthz", "the path has an escaped / (%2F), which no name has"},
		{"x%0a", "the path has a control character (%0A), which no name has"},
		{"%7Fx", "the path has a control character (%7F), which no name has"},
		{"x\x01", "the path has a control character (%01), which no name has"},
		{"x%", "the path has a % without two hexadecimal digits after it: a % itself is %25"},
		{"x%4", "the path has a % without two hexadecimal digits after it: a % itself is %25"},
		{"x%4g", "the path has a % without two hexadecimal digits after it: a % itself is %25"},
		{"%-1x", "the path has a % without two hexadecimal digits after it: a % itself is %25"},
	};
	char path[128], message[128], id[32];
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{\"name\":\"a.b\"}", id);
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		snprintf(path, sizeof path, "/v1/sandboxes/%s", refused[i].rest);
		expect_refused(&daemon, "GET", path, NULL, "invalid", refused[i].message);
		expect_refused(&daemon, "POST", path, NULL, "invalid", refused[i].message);
		snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s", id, refused[i].rest);
		expect_refused(&daemon, "GET", path, NULL, "invalid", refused[i].message);
	}
	snprintf(path, sizeof path, "http://x/v1/templates/base%%2f");
	expect_refused(&daemon, "DELETE", path, NULL, "invalid",
		"the path has an escaped / (%2f), which no name has");
	/* What needs no escape means the same with one, in each part and in a parameter. */
	call(&daemon, "GET", "/v1/s%61ndboxes/a%2Eb?", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(json_string_value(json_object_get(answer.json, "id")), id);
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/sandboxes?st%61te=re%61dy", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 1);
	answer_finish(&answer);
	/* One that is decoded is not decoded again. */
	snprintf(message, sizeof message, "there is no sandbox a%%2Eb");
	expect_refused(&daemon, "GET", "/v1/sandboxes/a%252Eb", NULL, "not_found", message);
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head_is_get_without_a_body),
		cmocka_unit_test(test_what_is_allowed_is_told),
		cmocka_unit_test(test_absolute_form),
		cmocka_unit_test(test_pipelined_requests),
		cmocka_unit_test(test_a_refused_body_is_no_request),
		cmocka_unit_test(test_heads_without_end),
		cmocka_unit_test(test_what_is_no_http),
		cmocka_unit_test(test_heads_that_are_not_whole),
		cmocka_unit_test(test_heads_that_are_whole),
		cmocka_unit_test(test_names_that_are_none),
		cmocka_unit_test(test_escapes_in_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
