/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds: commands that fail and clients that leave, in the plain form; output and phases as they come, slow
 * and bad clients, in the upgraded one.
 */
#include "tests/unit/hostctl_stream_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static int open_build(const struct daemon *daemon, struct stream *stream, const char *body)
{
	char head[2048];

	return open_stream_at(daemon, stream, "/v1/templates", body, head);
}

static void expect_text(struct stream *stream, int type, const char *text)
{
	expect(stream, type);
	assert_int_equal(stream->frame.length, strlen(text));
	assert_memory_equal(stream->frame.payload, text, strlen(text));
}

static void expect_result(struct stream *stream, const char *name)
{
	json_t *object;

	expect(stream, AGENT_HOST_RESULT);
	object = json_loadb((const char *)stream->frame.payload, stream->frame.length, 0, NULL);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(object, "template"), "name")), name);
	assert_true(json_is_true(json_object_get(json_object_get(object, "template"), "loaded")));
	json_decref(object);
	expect_end(stream);
}

static void await_folders(const struct daemon *daemon, const char *prefix, int wanted)
{
	for (int waited = 0; count_templates(daemon, prefix) != wanted; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
}

static void await_metric(const struct daemon *daemon, const char *line, long wanted)
{
	for (int waited = 0; metric(daemon, line) != wanted; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
}

static void remove_template_and_state(struct daemon *daemon, const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "/v1/templates/%s", name);
	succeed(daemon, "DELETE", path, NULL);
	daemon_stop(daemon);
	remove_state(daemon);
}

static void test_a_failing_command_fails_the_build(void **state)
{
	static const struct {
		const char *body, *message;
	} cases[] = {
		{"{\"name\":\"x\",\"run\":[\"both\",\"exit 3\"]}",
			"template x could not be built: command 2 ('exit 3') exited with status 3"},
		{"{\"name\":\"x\",\"run\":[\"signal 11\"]}",
			"template x could not be built: command 1 ('signal 11') was ended by signal 11 "
			"(Segmentation fault)"},
		{"{\"name\":\"x\",\"run\":[\"no-such-command\"]}",
			"template x could not be built: command 1 ('no-such-command') could not start: No "
			"such "
			"file "
			"or directory"},
		{"{\"name\":\"x\",\"run\":[\"bad-offset\"]}",
			"template x could not be built: the agent sent a malformed STDOUT of command 1 "
			"('bad-offset')"},
		{"{\"name\":\"x\",\"run\":[\"panic\"]}",
			"template x could not be built: the guest's kernel panicked: pvpanic (is --initrd "
			"one with "
			"guest-init? `serve --serial-dir DIR` keeps what the guest said)"},
		{"{\"name\":\"x\",\"run\":[\"refuse\"]}",
			"template x could not be built: the agent refused command 1 ('refuse')"},
	};
	struct daemon daemon;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		expect_refused(
			&daemon, "POST", "/v1/templates", cases[i].body, "build_failed", cases[i].message);
	assert_int_equal(count_templates(&daemon, ""), 3);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_a_client_that_leaves_ends_its_build(void **state)
{
	struct daemon daemon;
	int client;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	client = client_open(&daemon);
	client_request(client, "POST", "/v1/templates", "", "{\"name\":\"x\",\"run\":[\"started-sleep\"]}");
	for (int waited = 0; count_templates(&daemon, ".building-x-") != 1; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	close(client);
	for (int waited = 0; count_templates(&daemon, ".building-x-"); waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	assert_int_equal(count_templates(&daemon, ""), 3);
	succeed(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\",\"a\"]}");
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void expect_waiting(struct stream *stream, const char *name)
{
	char text[96];

	snprintf(text, sizeof text, "{\"phase\":\"waiting\",\"for\":\"%s\"}", name);
	expect_text(stream, AGENT_HOST_PROGRESS, text);
}

/* Each in its turn; one that leaves gives up its place. */
static void test_builds_wait_their_turn(void **state)
{
	struct daemon daemon;
	struct stream first, second, third;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_int_equal(open_build(&daemon, &first, "{\"name\":\"x\",\"run\":[\"started-sleep\"]}"), 101);
	expect_text(&first, AGENT_HOST_PROGRESS, "{\"phase\":\"booting\"}");
	assert_int_equal(open_build(&daemon, &second, "{\"name\":\"y\"}"), 101);
	expect_waiting(&second, "x");
	assert_int_equal(open_build(&daemon, &third, "{\"name\":\"x\",\"run\":[\"echo z\"]}"), 101);
	expect_waiting(&third, "x");
	/* What could not be built is refused now, not in its turn. */
	expect_refused(&daemon, "POST", "/v1/templates", "{\"name\":\"z\",\"image\":\"/none\"}", "invalid",
		"the image /none cannot be found: No such file or directory");
	close_stream(&second);
	await_metric(&daemon, "tinderbox_clients_left_total ", 1);
	assert_int_equal(count_templates(&daemon, ".building-x-"), 1);
	close_stream(&first);
	expect_text(&third, AGENT_HOST_PROGRESS, "{\"phase\":\"booting\"}");
	expect_text(&third, AGENT_HOST_PROGRESS, "{\"phase\":\"running\",\"command\":1,\"commands\":1}");
	expect_output(&third, AGENT_STDOUT, 0, "z\n");
	for (int i = 0; i < 3; i++)
		expect(&third, AGENT_HOST_PROGRESS);
	expect_result(&third, "x");
	assert_int_equal(count_templates(&daemon, "y"), 0);
	remove_template_and_state(&daemon, "x");
}

static void test_not_too_many_wait(void **state)
{
	enum { WAITING = 8 };
	struct daemon daemon;
	struct stream streams[WAITING + 1];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	for (int i = 0; i <= WAITING; i++) {
		assert_int_equal(
			open_build(&daemon, &streams[i], "{\"name\":\"x\",\"run\":[\"started-sleep\"]}"),
			101);
		expect(&streams[i], AGENT_HOST_PROGRESS);
	}
	expect_refused(&daemon, "POST", "/v1/templates", "{\"name\":\"y\"}", "exhausted",
		"template x is being built, and 8 builds wait already: try again when some are done");
	/* Those that wait are told of the end, too. */
	daemon_stop(&daemon);
	for (int i = 1; i <= WAITING; i++)
		expect_error(&streams[i], "not_ready", "the daemon is stopping: try again when it is back");
	close_stream(&streams[0]);
	remove_state(&daemon);
}

/* As any other; the plain form waits without a word. */
static void test_builds_wait_for_base(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon_launch(&daemon, "boot save-slow:300", pool_of_one, false);
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"x\"}"), 101);
	expect_waiting(&stream, "base");
	for (int i = 0; i < 4; i++)
		expect(&stream, AGENT_HOST_PROGRESS);
	expect_result(&stream, "x");
	await_pool(&daemon, "warm", 1);
	remove_template_and_state(&daemon, "x");
}

static void test_output_and_phases_come_as_they_are(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_int_equal(
		open_build(&daemon, &stream, "{\"name\":\"tools\",\"run\":[\"echo one\",\"both\"]}"), 101);
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"booting\"}");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"running\",\"command\":1,\"commands\":2}");
	expect_output(&stream, AGENT_STDOUT, 0, "one\n");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"running\",\"command\":2,\"commands\":2}");
	/* The offsets are of the build, not of the command. */
	expect_output(&stream, AGENT_STDOUT, 4, "out\n");
	expect_output(&stream, AGENT_STDERR, 0, "err\n");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"saving\"}");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"checking\"}");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"storing\"}");
	expect_result(&stream, "tools");
	remove_template_and_state(&daemon, "tools");
}

/* Output is there before the command has ended. */
static void test_output_is_live(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_int_equal(
		open_build(&daemon, &stream, "{\"name\":\"x\",\"run\":[\"both\",\"started-sleep\"]}"), 101);
	for (int i = 0; i < 2; i++)
		expect(&stream, AGENT_HOST_PROGRESS);
	expect_output(&stream, AGENT_STDOUT, 0, "out\n");
	expect_output(&stream, AGENT_STDERR, 0, "err\n");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"running\",\"command\":2,\"commands\":2}");
	assert_int_equal(count_templates(&daemon, ".building-x-"), 1);
	/* The client leaves, and nothing is left. */
	close_stream(&stream);
	await_folders(&daemon, ".building-x-", 0);
	assert_int_equal(count_templates(&daemon, ""), 3);
	assert_int_equal(metric(&daemon, "tinderbox_clients_left_total "), 1);
	/* So it is when it half-closes. */
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"x\",\"run\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_HOST_PROGRESS);
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"running\",\"command\":1,\"commands\":1}");
	shutdown(stream.fd, SHUT_WR);
	await_folders(&daemon, ".building-x-", 0);
	expect_end(&stream);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* Whoever does not read holds up its own build; when it reads, all bytes are there. */
static void test_slow_reader(void **state)
{
	enum { TOTAL = 8 * 1000 * 1000 };
	struct daemon daemon;
	struct stream stream;
	size_t got = 0;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"x\",\"run\":[\"flood 8000000\"]}"), 101);
	for (int i = 0; i < 10; i++) {
		succeed(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\",\"hi\"]}");
	}
	assert_int_equal(count_templates(&daemon, ".building-x-"), 1);
	expect(&stream, AGENT_HOST_PROGRESS);
	expect(&stream, AGENT_HOST_PROGRESS);
	while (got < TOTAL) {
		const uint8_t *data;

		expect(&stream, AGENT_STDOUT);
		data = stream.frame.payload + 8;
		for (size_t i = 0; i < stream.frame.length - 8; i++)
			if (data[i] != 'a' + (got + i) % (32 * 1024) % 26)
				fail_msg("byte %zu differs", got + i);
		got += stream.frame.length - 8;
	}
	assert_int_equal(got, TOTAL);
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"saving\"}");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"checking\"}");
	expect_text(&stream, AGENT_HOST_PROGRESS, "{\"phase\":\"storing\"}");
	expect_result(&stream, "x");
	remove_template_and_state(&daemon, "x");
}

/* A long result finds its place behind output that is not read. */
static void test_a_long_result_behind_output(void **state)
{
	enum { LINE = 50000, FLOOD = 330000 };
	static char body[LINE + 128];
	struct daemon daemon;
	struct stream stream;
	int length;

	(void)state;
	length = snprintf(body, sizeof body, "{\"name\":\"x\",\"run\":[\"flood %d\",\"exit 0 ", FLOOD);
	memset(body + length, 'x', LINE);
	memcpy(body + length + LINE, "\"]}", sizeof "\"]}");
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_int_equal(open_build(&daemon, &stream, body), 101);
	await_folders(&daemon, "x", 1);
	do
		assert_true(next_frame(&stream));
	while (stream.frame.type != AGENT_HOST_RESULT);
	assert_true(stream.frame.length > LINE);
	expect_end(&stream);
	remove_template_and_state(&daemon, "x");
}

static void test_builds_that_fail(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	/* What is refused before the build is an ordinary answer. */
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"base\"}"), 409);
	close_stream(&stream);
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"x\",\"run\":[\"both\",\"exit 3\"]}"), 101);
	for (int i = 0; i < 2; i++)
		expect(&stream, AGENT_HOST_PROGRESS);
	expect(&stream, AGENT_STDOUT);
	expect(&stream, AGENT_STDERR);
	expect(&stream, AGENT_HOST_PROGRESS);
	expect_error(&stream, "build_failed",
		"template x could not be built: command 2 ('exit 3') exited with status 3");
	assert_int_equal(metric(&daemon, "tinderbox_errors_total{code=\"build_failed\"} "), 1);
	assert_int_equal(count_templates(&daemon, ".building-"), 0);
	/* A client that says anything. */
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"x\",\"run\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_HOST_PROGRESS);
	expect(&stream, AGENT_HOST_PROGRESS);
	send_frame(&stream, AGENT_KILL, NULL, 0);
	expect_error(&stream, "invalid", "the client broke the frame protocol: it sends nothing in a build");
	await_folders(&daemon, ".building-", 0);
	/* The next build goes on. */
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"x\"}");
	remove_template_and_state(&daemon, "x");
}

static void test_stop_tells_the_client(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"x\",\"run\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_HOST_PROGRESS);
	expect(&stream, AGENT_HOST_PROGRESS);
	daemon_stop(&daemon);
	expect_error(&stream, "build_failed", "template x could not be built: the daemon is stopping");
	assert_int_equal(count_templates(&daemon, ""), 3);
	remove_state(&daemon);
}

/* It does not hold the daemon. */
static void test_stop_with_a_client_that_does_not_read(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_int_equal(open_build(&daemon, &stream, "{\"name\":\"x\",\"run\":[\"flood 8000000\"]}"), 101);
	do
		assert_true(next_frame(&stream));
	while (stream.frame.type != AGENT_STDOUT);
	/* Until the queues on the way are full. */
	sleep_ms(300);
	daemon_stop(&daemon);
	close_stream(&stream);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_failing_command_fails_the_build),
		cmocka_unit_test(test_a_client_that_leaves_ends_its_build),
		cmocka_unit_test(test_builds_wait_their_turn),
		cmocka_unit_test(test_not_too_many_wait),
		cmocka_unit_test(test_builds_wait_for_base),
		cmocka_unit_test(test_output_and_phases_come_as_they_are),
		cmocka_unit_test(test_output_is_live),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_a_long_result_behind_output),
		cmocka_unit_test(test_builds_that_fail),
		cmocka_unit_test(test_stop_tells_the_client),
		cmocka_unit_test(test_stop_with_a_client_that_does_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
