/* SPDX-License-Identifier: Apache-2.0 */
/* Requests before they mean anything: what is refused for its head, and how a body may be sent. */
#include "tests/unit/hostctl_fixture.h"

static char *const no_pool[] = {"--pool", "0", NULL}, *const pool_of_one[] = {"--pool", "1", NULL};

static void test_http_refusals(void **state)
{
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	call(&daemon, "GET", "/v2/run", NULL, &answer);
	assert_int_equal(answer.status, 404);
	assert_string_equal(
		error_member(&answer, "message"), "nothing is at /v2/run: see docs/api.md for the resources");
	answer_finish(&answer);
	call(&daemon, "DELETE", "/v1/pool", NULL, &answer);
	assert_int_equal(answer.status, 405);
	assert_string_equal(error_member(&answer, "message"), "/v1/pool takes GET and PUT, not DELETE");
	answer_finish(&answer);
	/* Announced and not sent: refused unread. */
	fd = client_open(&daemon);
	client_send_text(fd, "POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n");
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 413);
	assert_string_equal(error_member(&answer, "message"),
		"the body is over the limit of 1048576 bytes: stream stdin over the upgraded form");
	answer_finish(&answer);
	close(fd);
	fd = client_open(&daemon);
	client_send_text(fd, "POST /v1/templates HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n");
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 413);
	assert_string_equal(error_member(&answer, "message"),
		"the body is over the limit of 1048576 bytes: put long scripts into the image, and run them "
		"from there");
	answer_finish(&answer);
	close(fd);
	daemon_stop(&daemon);
}

static void test_a_body_has_one_length(void **state)
{
	static const char *const twice[] = {
		"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
		"Content-Length: 2\r\ncontent-length: 2\r\n\r\n{}",
		"Content-Length: 0\r\nContent-Length: 27\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	};
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++) {
		struct answer answer;
		int fd = client_open(&daemon);

		client_send_text(fd, "POST /v1/run HTTP/1.1\r\nHost: x\r\n");
		client_send_text(fd, twice[i]);
		client_answer(fd, &answer);
		assert_int_equal(answer.status, 400);
		assert_string_equal(error_member(&answer, "code"), "invalid");
		assert_string_equal(error_member(&answer, "message"),
			"the request tells the length of its body more than once: send one Content-Length, "
			"or chunks");
		answer_finish(&answer);
		/* Nothing after it is taken for a request. */
		assert_int_equal(client_read_head(fd, (char[8]){0}, 8), -1);
		close(fd);
	}
	daemon_stop(&daemon);
}

/* The answer to the text, which ends with its head: refused so. */
static void expect_head_refused(
	const struct daemon *daemon, const char *text, const char *message, bool closed)
{
	struct answer answer;
	int fd = client_open(daemon);

	client_send_text(fd, text);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 400);
	assert_string_equal(error_member(&answer, "code"), "invalid");
	assert_string_equal(error_member(&answer, "message"), message);
	answer_finish(&answer);
	if (closed)
		assert_int_equal(client_read_head(fd, (char[8]){0}, 8), -1);
	close(fd);
}

/* Where its end is told in a way that nobody here knows, the answer does not wait for it. */
static void test_a_body_is_in_chunks_or_plain(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	expect_head_refused(&daemon, "POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
		"the Transfer-Encoding \"gzip\" is not known: send chunked, or a Content-Length", true);
	expect_head_refused(&daemon,
		"POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"the Transfer-Encoding \"gzip, chunked\" is not known: send chunked, or a Content-Length",
		true);
	expect_head_refused(&daemon, "POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n",
		"the Transfer-Encoding \"\" is not known: send chunked, or a Content-Length", true);
	daemon_stop(&daemon);
}

static void test_an_upgrade_is_asked_for_in_full(void **state)
{
	static const char *const options[] = {"Connection: Upgrade\r\n",
		"Connection: keep-alive, upgrade\r\n", "Connection: keep-alive\r\nConnection: x,Upgrade\r\n"};
	static const char *const not_options[] = {
		"", "Connection: keep-alive\r\n", "Connection: upgrades, up\r\n"};
	const char *const body = "{\"argv\":[\"exit\",\"3\"]}";
	char headers[128], head[2048];
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (int i = 0; i < 3; i++) {
		snprintf(headers, sizeof headers, "%sUpgrade: tinderbox-frames\r\n", options[i]);
		fd = client_open(&daemon);
		client_request(fd, "POST", "/v1/run", headers, body);
		assert_int_equal(client_read_head(fd, head, sizeof head), 101);
		close(fd);
		/* The plain form, as if the header were not there. */
		snprintf(headers, sizeof headers, "%sUpgrade: tinderbox-frames\r\n", not_options[i]);
		fd = client_open(&daemon);
		client_request(fd, "POST", "/v1/run", headers, body);
		client_answer(fd, &answer);
		assert_string_equal(member(&answer, "result"), "{\"kind\":\"exited\",\"code\":3}");
		answer_finish(&answer);
		close(fd);
	}
	daemon_stop(&daemon);
}

/* Before a VM is claimed for it. */
static void test_no_upgrade_in_an_older_version(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	expect_head_refused(&daemon,
		"POST /v1/run HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: tinderbox-frames\r\n"
		"Content-Length: 17\r\n\r\n{\"argv\":[\"both\"]}",
		"HTTP/1.0 has no upgrade: ask in HTTP/1.1", false);
	assert_int_equal(pool_number(&daemon, "warm"), 1);
	assert_int_equal(pool_number(&daemon, "claims_warm"), 0);
	daemon_stop(&daemon);
}

static void test_no_parameters_are_ignored(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", no_pool);
	expect_refused(
		&daemon, "GET", "/v1/healthz?x=1", NULL, "invalid", "/v1/healthz takes no parameter \"x\"");
	expect_refused(&daemon, "GET", "/metrics?x", NULL, "invalid", "/metrics takes no parameter \"x\"");
	expect_refused(
		&daemon, "GET", "/v1/pool?template=", NULL, "invalid", "the parameter template has no value");
	daemon_stop(&daemon);
}

/* A body in chunks has no announced length. */
static void test_chunked_bodies(void **state)
{
	static char chunk[64 * 1024];
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	memset(chunk, ' ', sizeof chunk);
	daemon_start(&daemon, "boot", pool_of_one);
	fd = client_open(&daemon);
	client_send_text(fd, "POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	client_send_text(fd, "9\r\n{\"argv\":[\r\n9\r\n\"exit\",\"3\r\n3\r\n\"]}\r\n0\r\n\r\n");
	client_answer(fd, &answer);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"exited\",\"code\":3}");
	answer_finish(&answer);
	client_send_text(fd, "POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 17; i++) {
		client_send_text(fd, "10000\r\n");
		client_send(fd, chunk, sizeof chunk);
		client_send_text(fd, "\r\n");
	}
	client_send_text(fd, "0\r\n\r\n");
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 413);
	assert_string_equal(error_member(&answer, "code"), "too_large");
	answer_finish(&answer);
	close(fd);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_http_refusals),
		cmocka_unit_test(test_a_body_has_one_length),
		cmocka_unit_test(test_a_body_is_in_chunks_or_plain),
		cmocka_unit_test(test_an_upgrade_is_asked_for_in_full),
		cmocka_unit_test(test_no_upgrade_in_an_older_version),
		cmocka_unit_test(test_no_parameters_are_ignored),
		cmocka_unit_test(test_chunked_bodies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
