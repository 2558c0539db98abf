/* SPDX-License-Identifier: Apache-2.0 */
/* The client against daemons that answer by script, well and badly, over a socketpair. */
#include "tests/support/unit.h"

#include "host-ctl/cli/client.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A client and the daemon's end of its connection, on which the answer may wait already. */
struct fixture {
	struct client client;
	int daemon;
};

static void fixture_init(struct fixture *fixture, int timeout_ms)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	client_init(&fixture->client, pair[0], timeout_ms);
	fixture->daemon = pair[1];
}

static void fixture_finish(struct fixture *fixture)
{
	client_finish(&fixture->client);
	if (fixture->daemon >= 0)
		close(fixture->daemon);
}

static void answer(struct fixture *fixture, const void *text, size_t length)
{
	assert_int_equal(send(fixture->daemon, text, length, MSG_NOSIGNAL), (ssize_t)length);
}

/* The daemon says no more; what the client sends is still taken. */
static void end_answer(struct fixture *fixture)
{
	assert_int_equal(shutdown(fixture->daemon, SHUT_WR), 0);
}

/* ---- requests ---- */

static void requests_are_what_the_api_wants(void **state)
{
	(void)state;
	static const char wanted[] = "POST /v1/run HTTP/1.1\r\nHost: localhost\r\n"
				     "Content-Type: application/json\r\nConnection: close\r\n"
				     "Content-Length: 7\r\n\r\n{\"a\":1}";
	json_t *request = json_pack("{s:i}", "a", 1), *object = NULL;
	char got[512] = "";
	struct client_error error;
	struct fixture fixture;

	fixture_init(&fixture, 1000);
	answer(&fixture, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 40);
	assert_int_equal(client_call(&fixture.client, "POST", "/v1/run", request, NULL, &object, &error), 0);
	assert_true(recv(fixture.daemon, got, sizeof(got) - 1, 0) > 0);
	assert_string_equal(got, wanted);
	json_decref(object);
	json_decref(request);
	fixture_finish(&fixture);
}

static void an_upgrade_asks_for_the_frames(void **state)
{
	(void)state;
	static const char wanted[] = "POST /v1/run HTTP/1.1\r\nHost: localhost\r\n"
				     "Content-Type: application/json\r\nConnection: Upgrade\r\n"
				     "Upgrade: tinderbox-frames\r\nContent-Length: 2\r\n\r\n{}";
	static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
				       "Upgrade: tinderbox-frames\r\n\r\n";
	json_t *request = json_object();
	char got[512] = "";
	struct client_error error;
	struct fixture fixture;

	fixture_init(&fixture, 1000);
	answer(&fixture, switched, strlen(switched));
	assert_int_equal(client_upgrade(&fixture.client, "/v1/run", request, &error), 0);
	assert_int_equal(fixture.client.start, fixture.client.end);
	assert_true(recv(fixture.daemon, got, sizeof(got) - 1, 0) > 0);
	assert_string_equal(got, wanted);
	json_decref(request);
	fixture_finish(&fixture);
}

static void frames_in_the_same_packet_as_the_101_are_kept(void **state)
{
	(void)state;
	static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
				       "Upgrade: tinderbox-frames\r\n\r\n\x03\0\0\0Pabc";
	size_t length = sizeof(switched) - 1;
	json_t *request = json_object();
	struct client_error error;
	struct fixture fixture;

	fixture_init(&fixture, 1000);
	answer(&fixture, switched, length);
	assert_int_equal(client_upgrade(&fixture.client, "/v1/run", request, &error), 0);
	assert_int_equal(fixture.client.end - fixture.client.start, 8);
	assert_memory_equal(fixture.client.buffer + fixture.client.start, "\x03\0\0\0Pabc", 8);
	json_decref(request);
	fixture_finish(&fixture);
}

/* ---- answers that fail ---- */

static void bad_answers_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *answer;
		int result;
		const char *code, *message;
	} cases[] = {
		{"", -ECONNRESET, "incomplete",
			"the daemon closed the connection before its answer was complete"},
		{"HTTP/1.1 200 OK\r\nContent-Le", -ECONNRESET, "incomplete",
			"the daemon closed the connection before its answer was complete"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\":", -ECONNRESET, "incomplete",
			"the daemon closed the connection before its answer was complete"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\"", -ECONNRESET,
			"incomplete", "the daemon closed the connection before its answer was complete"},
		{"SSH-2.0-OpenSSH_9.2\r\n", -EPROTO, "protocol",
			"what answers at the socket does not speak HTTP"},
		{"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", -EPROTO, "protocol",
			"what answers at the socket does not speak HTTP"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 16777217\r\n\r\n", -EMSGSIZE, "protocol",
			"the daemon's answer is longer than 16777216 bytes"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", -EPROTO, "protocol",
			"the daemon answered 200 without a JSON object"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", -EPROTO, "protocol",
			"the daemon answered 200 without a JSON object"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", -EPROTO, "protocol",
			"the daemon answered 200 without a JSON object"},
		{"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", -EPROTO, "protocol",
			"the daemon answered 404 without an error object"},
		{"HTTP/1.1 500 No\r\nContent-Length: 12\r\n\r\n{\"error\":{}}", -EPROTO, "protocol",
			"the daemon answered 500 without an error object"},
		{"HTTP/1.1 429 No\r\n\r\n"
		 "{\"error\":{\"code\":\"exhausted\",\"message\":\"the queue is full\","
		 "\"retryable\":true}}",
			-EREMOTEIO, "exhausted", "the queue is full"},
		/* An error object is an error, whatever the status; the end of the stream may end it. */
		{"HTTP/1.1 200 OK\r\n\r\n"
		 "{\"error\":{\"code\":\"internal\",\"message\":\"m\"}}",
			-EREMOTEIO, "internal", "m"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct client_error error;
		struct fixture fixture;
		json_t *object = NULL;

		fixture_init(&fixture, 1000);
		answer(&fixture, cases[i].answer, strlen(cases[i].answer));
		end_answer(&fixture);
		assert_int_equal(client_call(&fixture.client, "GET", "/v1/pool", NULL, NULL, &object, &error),
			cases[i].result);
		assert_string_equal(error.message, cases[i].message);
		assert_string_equal(error.code, cases[i].code);
		assert_null(object);
		fixture_finish(&fixture);
	}
}

static void a_header_without_end_is_refused(void **state)
{
	(void)state;
	char *text = malloc(2 * CLIENT_HEADER_MAX);
	struct client_error error;
	struct fixture fixture;
	json_t *object = NULL;

	assert_non_null(text);
	memset(text, 'x', 2 * CLIENT_HEADER_MAX);
	memcpy(text, "HTTP/1.1 200 OK\r\nX-Long: ", 25);
	fixture_init(&fixture, 1000);
	answer(&fixture, text, 2 * CLIENT_HEADER_MAX);
	assert_int_equal(
		client_call(&fixture.client, "GET", "/v1/pool", NULL, NULL, &object, &error), -EMSGSIZE);
	assert_string_equal(error.message, "the headers of the daemon's answer are longer than 16384 bytes");
	fixture_finish(&fixture);
	free(text);
}

static void a_silent_daemon_is_given_up(void **state)
{
	(void)state;
	struct client_error error;
	struct fixture fixture;
	json_t *object = NULL;

	fixture_init(&fixture, 50);
	assert_int_equal(
		client_call(&fixture.client, "GET", "/v1/pool", NULL, NULL, &object, &error), -ETIMEDOUT);
	assert_string_equal(error.code, "timed_out");
	assert_string_equal(error.message, "the daemon has not answered within 0.05 s");
	fixture_finish(&fixture);
}

static void an_upgrade_that_is_none_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *answer;
		int result;
		const char *message;
	} cases[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", -EPROTO,
			"the daemon answered 200 and did not switch to tinderbox-frames"},
		{"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", -EPROTO,
			"the daemon answered 101 and did not switch to tinderbox-frames"},
		{"HTTP/1.1 101 S\r\nUpgrade: tinderbox-frames\r\n\r\n", -EPROTO,
			"the daemon answered 101 and did not switch to tinderbox-frames"},
		{"HTTP/1.1 503 No\r\nContent-Length: 48\r\n\r\n"
		 "{\"error\":{\"code\":\"not_ready\",\"message\":\"no VM\"}}",
			-EREMOTEIO, "no VM"},
	};
	json_t *request = json_object();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct client_error error;
		struct fixture fixture;

		fixture_init(&fixture, 1000);
		answer(&fixture, cases[i].answer, strlen(cases[i].answer));
		end_answer(&fixture);
		assert_int_equal(
			client_upgrade(&fixture.client, "/v1/run", request, &error), cases[i].result);
		assert_string_equal(error.message, cases[i].message);
		fixture_finish(&fixture);
	}
	json_decref(request);
}

/* ---- answers that are fine ---- */

struct drip {
	int fd;
	const char *text;
};

/* One byte a write: the client sees every boundary. */
static void *drip(void *argument)
{
	struct drip *drip = argument;

	for (size_t i = 0; drip->text[i]; i++)
		if (send(drip->fd, drip->text + i, 1, MSG_NOSIGNAL) != 1)
			break;
	return NULL;
}

static void an_answer_may_come_a_byte_at_a_time(void **state)
{
	(void)state;
	struct client_error error;
	struct fixture fixture;
	json_t *object = NULL;
	pthread_t thread;
	struct drip script = {.text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
				      "4\r\n{\"a\"\r\n3\r\n:7}\r\n0\r\n\r\n"};

	fixture_init(&fixture, 5000);
	script.fd = fixture.daemon;
	assert_int_equal(pthread_create(&thread, NULL, drip, &script), 0);
	assert_int_equal(client_call(&fixture.client, "GET", "/v1/pool", NULL, NULL, &object, &error), 0);
	assert_int_equal(json_integer_value(json_object_get(object, "a")), 7);
	pthread_join(thread, NULL);
	json_decref(object);
	fixture_finish(&fixture);
}

static void an_upgrade_may_come_a_byte_at_a_time(void **state)
{
	(void)state;
	json_t *request = json_object();
	struct client_error error;
	struct fixture fixture;
	pthread_t thread;
	struct drip script = {.text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: Tinderbox-Frames\r\n"
				      "Connection: upgrade\r\n\r\n"};

	fixture_init(&fixture, 5000);
	script.fd = fixture.daemon;
	assert_int_equal(pthread_create(&thread, NULL, drip, &script), 0);
	assert_int_equal(client_upgrade(&fixture.client, "/v1/run", request, &error), 0);
	pthread_join(thread, NULL);
	json_decref(request);
	fixture_finish(&fixture);
}

static void a_status_is_told_to_those_who_ask(void **state)
{
	(void)state;
	struct client_error error;
	struct fixture fixture;
	json_t *object = NULL;
	int status = 0;

	fixture_init(&fixture, 1000);
	answer(&fixture, "HTTP/1.1 503 No\r\nContent-Length: 7\r\n\r\n{\"a\":1}", 45);
	assert_int_equal(
		client_call(&fixture.client, "GET", "/v1/healthz", NULL, &status, &object, &error), 0);
	assert_int_equal(status, 503);
	assert_int_equal(json_integer_value(json_object_get(object, "a")), 1);
	json_decref(object);
	fixture_finish(&fixture);
}

static void a_daemon_that_closes_after_its_answer_is_heard(void **state)
{
	(void)state;
	static const char text[] = "HTTP/1.1 413 No\r\nContent-Length: 48\r\n\r\n"
				   "{\"error\":{\"code\":\"too_large\",\"message\":\"large\"}}";
	json_t *request = json_object(), *object = NULL;
	char *megabyte = malloc(1024 * 1024);
	struct client_error error;
	struct fixture fixture;

	assert_non_null(megabyte);
	memset(megabyte, 'a', 1024 * 1024);
	json_object_set_new(request, "stdin", json_stringn(megabyte, 1024 * 1024));
	fixture_init(&fixture, 1000);
	answer(&fixture, text, strlen(text));
	/* It reads no byte of the request. */
	assert_int_equal(shutdown(fixture.daemon, SHUT_RDWR), 0);
	assert_int_equal(
		client_call(&fixture.client, "POST", "/v1/run", request, NULL, &object, &error), -EREMOTEIO);
	assert_string_equal(error.code, "too_large");
	assert_int_equal(error.http_status, 413);
	json_decref(request);
	fixture_finish(&fixture);
	free(megabyte);
}

/* ---- errors ---- */

static void the_parts_of_an_error_come_through(void **state)
{
	(void)state;
	static const struct {
		const char *detail; /* as JSON */
		const char *words;
	} cases[] = {
		{"null", ""},
		{"\"text\"", "text"},
		{"{\"vm\":\"7f\",\"cause\":\"it panicked\"}", "vm: 7f, cause: it panicked"},
		{"{\"vm\":\"7f\",\"cause\":\"VM is gone\"}", "vm: 7f"},
		{"{\"cause\":\"the VM is gone\"}", ""},
		{"{\"n\":3}", "n: 3"},
		{"[1,2]", "[1,2]"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[256], words[CLIENT_TEXT_MAX], *back;
		struct client_error error;
		json_t *object;

		snprintf(text, sizeof(text),
			"{\"error\":{\"code\":\"guest_lost\",\"message\":\"the VM is "
			"gone\",\"retryable\":false,"
			"\"detail\":%s}}",
			cases[i].detail);
		object = json_loads(text, 0, NULL);
		assert_int_equal(client_error_parse(&error, object), 0);
		json_decref(object);
		client_error_detail(&error, words, sizeof(words));
		assert_string_equal(words, cases[i].words);
		/* And back to what the daemon said. */
		object = client_error_json(&error);
		back = json_dumps(object, JSON_COMPACT);
		assert_string_equal(back, text);
		free(back);
		json_decref(object);
	}
}

/* ---- connecting ---- */

static void no_daemon_is_told_apart(void **state)
{
	(void)state;
	char folder[] = "/tmp/hostctl_client.XXXXXX", path[64], text[256], wanted[256];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct client_error error;
	struct client client;
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	assert_int_equal(client_connect(&client, path, 1000, &error), -ENOENT);
	snprintf(text, sizeof(text), "no daemon at %s: start one with `host-ctl serve`", path);
	assert_string_equal(error.message, text);
	assert_string_equal(error.code, "no_daemon");
	client_finish(&client);

	/* A file. */
	assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
	assert_int_equal(client_connect(&client, path, 1000, &error), -ENOTSOCK);
	snprintf(wanted, sizeof(wanted),
		"%s is not a socket; give the path that `host-ctl serve` has for --socket", path);
	assert_string_equal(error.message, wanted);
	assert_string_equal(error.code, "invalid");
	client_finish(&client);
	assert_int_equal(unlink(path), 0);

	/* A socket that a dead daemon left. */
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(client_connect(&client, path, 1000, &error), -ENOENT);
	assert_string_equal(error.message, text);
	client_finish(&client);

	/* A live one that is not for everybody. */
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(chmod(folder, 0755), 0);
	if (geteuid() == 0) {
		assert_int_equal(seteuid(65534), 0);
		assert_int_equal(client_connect(&client, path, 1000, &error), -EACCES);
		assert_int_equal(seteuid(0), 0);
		snprintf(text, sizeof(text), "no permission to use the daemon's socket %s: be root", path);
		assert_string_equal(error.message, text);
		assert_string_equal(error.code, "denied");
		client_finish(&client);
	}
	close(fd);
	unlink(path);
	rmdir(folder);
}

static void a_path_too_long_is_named(void **state)
{
	(void)state;
	char path[109], text[256];
	struct client_error error;
	struct client client;

	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	path[108] = '\0';
	assert_int_equal(client_connect(&client, path, 1000, &error), -ENAMETOOLONG);
	snprintf(
		text, sizeof(text), "the socket's path is 108 bytes long and may have at most 107: %s", path);
	assert_string_equal(error.message, text);
	assert_string_equal(error.code, "invalid");
	/* One less is only absent. */
	path[107] = '\0';
	assert_int_equal(client_connect(&client, path, 1000, &error), -ENOENT);
	client_finish(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_are_what_the_api_wants),
		cmocka_unit_test(an_upgrade_asks_for_the_frames),
		cmocka_unit_test(frames_in_the_same_packet_as_the_101_are_kept),
		cmocka_unit_test(bad_answers_are_named),
		cmocka_unit_test(a_header_without_end_is_refused),
		cmocka_unit_test(a_silent_daemon_is_given_up),
		cmocka_unit_test(an_upgrade_that_is_none_is_refused),
		cmocka_unit_test(an_answer_may_come_a_byte_at_a_time),
		cmocka_unit_test(an_upgrade_may_come_a_byte_at_a_time),
		cmocka_unit_test(a_status_is_told_to_those_who_ask),
		cmocka_unit_test(a_daemon_that_closes_after_its_answer_is_heard),
		cmocka_unit_test(the_parts_of_an_error_come_through),
		cmocka_unit_test(no_daemon_is_told_apart),
		cmocka_unit_test(a_path_too_long_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
