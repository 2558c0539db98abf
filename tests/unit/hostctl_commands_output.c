/* SPDX-License-Identifier: Apache-2.0 */
/* The output of commands: waited for, kept, less of it, and what gives way to that of others. */
#include "tests/unit/hostctl_attach_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static int ask_for_output(const struct daemon *daemon, const char *id, const char *command, const char *query)
{
	char path[SANDBOX_PATH_MAX];
	int fd = client_open(daemon);

	snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/output?wait=true%s", id, command, query);
	client_request(fd, "GET", path, "", NULL);
	return fd;
}

static void expect_body(int fd, const char *body)
{
	struct answer answer;

	client_answer(fd, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(answer.body, body);
	answer_finish(&answer);
	close(fd);
}

/* Until there is some, or there will be none; beside who is attached. */
static void test_waiting_for_output(void **state)
{
	static const char cat[] = "{\"argv\":[\"cat\"],\"stdin_stream\":true,\"on_detach\":\"keep\"}";
	struct daemon daemon;
	struct answer answer;
	struct stream stream;
	struct command created;
	char id[32], command[32];
	int first, second, left, other;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	start_followed(&daemon, &stream, id, cat, command);
	first = ask_for_output(&daemon, id, command, "");
	left = ask_for_output(&daemon, id, command, "");
	other = ask_for_output(&daemon, id, command, "&stream=stderr");
	assert_int_equal(metric(&daemon, "tinderbox_commands_running "), 1);
	close(left);
	send_frame(&stream, AGENT_STDIN, "abc", 3);
	expect_output(&stream, AGENT_STDOUT, 0, "abc");
	expect_body(first, "{\"data\":\"abc\",\"offset\":0,\"next_offset\":3,\"bytes\":3,\"ended\":false}\n");
	expect_body(ask_for_output(&daemon, id, command, "&offset=1"),
		"{\"data\":\"bc\",\"offset\":1,\"next_offset\":3,\"bytes\":3,\"ended\":false}\n");
	second = ask_for_output(&daemon, id, command, "&offset=3");
	call_command(&daemon, "DELETE", id, command, "", NULL, &answer);
	assert_int_equal(answer.status, 409);
	answer_finish(&answer);
	send_frame(&stream, AGENT_STDIN_EOF, NULL, 0);
	/* What came on stdout was no news of stderr. */
	expect_body(other, "{\"data\":\"\",\"offset\":0,\"next_offset\":0,\"bytes\":0,\"ended\":true}\n");
	expect_body(second, "{\"data\":\"\",\"offset\":3,\"next_offset\":3,\"bytes\":3,\"ended\":true}\n");
	expect_body(ask_for_output(&daemon, id, command, "&offset=3"),
		"{\"data\":\"\",\"offset\":3,\"next_offset\":3,\"bytes\":3,\"ended\":true}\n");
	close_stream(&stream);
	call_command(&daemon, "GET", id, command, "/output?wait=1", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "wait is true or false, not \"1\"");

	/* One that nobody has started ends as well, and so does a sandbox. */
	create_command(&daemon, id, "{\"argv\":[\"x\"]}", &created);
	first = ask_for_output(&daemon, id, created.id, "");
	assert_int_equal(metric(&daemon, "tinderbox_commands_running "), 0);
	call_command(&daemon, "POST", id, created.id, "/kill", NULL, &answer);
	answer_finish(&answer);
	expect_body(first, "{\"data\":\"\",\"offset\":0,\"next_offset\":0,\"bytes\":0,\"ended\":true}\n");
	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	first = ask_for_output(&daemon, id, command, "");
	await_field(&daemon, id, command, "state", "\"running\"");
	delete_sandbox(&daemon, id);
	expect_body(first, "{\"data\":\"\",\"offset\":0,\"next_offset\":0,\"bytes\":0,\"ended\":true}\n");
	daemon_stop(&daemon);
}

static void expect_bytes_at(const struct daemon *daemon, const char *id, const char *command, long offset,
	const char *start, long next)
{
	struct answer answer;
	char rest[64];

	snprintf(rest, sizeof rest, "/output?offset=%ld", offset);
	call_command(daemon, "GET", id, command, rest, NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_memory_equal(json_string_value(json_object_get(answer.json, "data")), start, strlen(start));
	assert_int_equal(json_integer_value(json_object_get(answer.json, "next_offset")), next);
	answer_finish(&answer);
}

/* Until whoever read it is gone, it is whole. */
static void await_held(const struct daemon *daemon, const char *id, const char *command, json_int_t wanted)
{
	json_int_t held = -1;

	for (int waited = 0; waited < WAIT_MS && held != wanted; waited += POLL_MS) {
		struct answer answer;

		call_command(daemon, "GET", id, command, "", NULL, &answer);
		held = json_integer_value(json_object_get(json_object_get(answer.json, "stdout"), "held"));
		answer_finish(&answer);
		sleep_ms(held == wanted ? 0 : POLL_MS);
	}
	assert_int_equal(held, wanted);
}

/* All of it is handed over, and a plain run answers with what any does; what is kept of it then is less. */
static void test_less_output_is_kept(void **state)
{
	enum { WRITTEN = 2000000, ANSWERED = 1024 * 1024 };
	static const char body[] = "{\"argv\":[\"flood\",\"2000000\"],\"output_max\":4096}";
	struct daemon daemon;
	struct stream stream;
	struct answer answer;
	const json_t *output;
	char id[32], command[32], path[SANDBOX_PATH_MAX];
	uint64_t got = 0;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	run_in(&daemon, id, body, &answer);
	output = json_object_get(answer.json, "stdout");
	assert_int_equal(json_string_length(json_object_get(output, "data")), ANSWERED);
	assert_int_equal(json_integer_value(json_object_get(output, "bytes")), WRITTEN);
	assert_int_equal(json_integer_value(json_object_get(output, "dropped")), WRITTEN - ANSWERED);
	assert_int_equal(json_integer_value(json_object_get(output, "head_bytes")), ANSWERED / 2);
	snprintf(command, sizeof command, "%s", json_string_value(json_object_get(answer.json, "command")));
	answer_finish(&answer);
	await_held(&daemon, id, command, 4096);

	start_followed(&daemon, &stream, id, body, command);
	while (got < WRITTEN) {
		expect(&stream, AGENT_STDOUT);
		got += stream.frame.length - sizeof(struct agent_output);
	}
	assert_int_equal(got, WRITTEN);
	expect_exit(&stream, AGENT_EXITED, 0);
	await_held(&daemon, id, command, 4096);
	expect_bytes_at(&daemon, id, command, 0, "abcdef", 2048);
	/* The pattern of a chunk of the fake's begins anew with each. */
	expect_bytes_at(&daemon, id, command, WRITTEN - 2048, "", WRITTEN);
	snprintf(path, sizeof path, "/commands/%s/output?offset=2048", command);
	expect_refusal_of(&daemon, "GET", id, path, NULL, 409, "conflict",
		"output at offset 2048 is no longer held: all from 1997952 on is");
	daemon_stop(&daemon);
}

/* Output and result outlive the sandbox. */
static void test_output_of_a_deleted_sandbox(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], command[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	run_in(&daemon, id, "{\"argv\":[\"echo\",\"kept\"]}", &answer);
	snprintf(command, sizeof command, "%s", json_string_value(json_object_get(answer.json, "command")));
	answer_finish(&answer);
	delete_sandbox(&daemon, id);
	call_command(&daemon, "GET", id, command, "/output", NULL, &answer);
	assert_string_equal(member(&answer, "data"), "\"kept\\n\"");
	answer_finish(&answer);
	call_command(&daemon, "GET", id, command, "", NULL, &answer);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"exited\",\"code\":0}");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* In the background, since nobody is to read all of it. */
static void start_flood(const struct daemon *daemon, const char *id, char command[32])
{
	static const char body[] = "{\"argv\":[\"flood\",\"1100000\"],\"on_detach\":\"keep\"}";
	struct stream stream;
	char path[SANDBOX_PATH_MAX], head[2048];

	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	assert_int_equal(open_stream_at(daemon, &stream, path, body, head), 101);
	snprintf(command, 32, "%.20s", strstr(head, "Tinderbox-Command: ") + strlen("Tinderbox-Command: "));
	close_stream(&stream);
}

static void await_ends(const struct daemon *daemon)
{
	for (int waited = 0; metric(daemon, "tinderbox_commands_running ") > 0; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
}

static void run_flood(const struct daemon *daemon, const char *id, char command[32])
{
	start_flood(daemon, id, command);
	await_ends(daemon);
}

static json_int_t held(const struct daemon *daemon, const char *id, const char *command)
{
	struct answer answer;
	char rest[64];
	json_int_t held;

	snprintf(rest, sizeof rest, "/commands/%s", command);
	call_sandbox(daemon, "GET", id, rest, NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(answer.json, "stdout"), "bytes")),
		1100000);
	held = json_integer_value(json_object_get(json_object_get(answer.json, "stdout"), "held"));
	answer_finish(&answer);
	return held;
}

/* Of all that has ended, the oldest output gives way, and says so; results stay. */
static void test_oldest_output(void **state)
{
	enum { EACH = 1024 * 1024, OUTPUTS = 256, AT_ONCE = 16 };
	char *const two[] = {"--pool", "2", NULL};
	struct daemon daemon;
	char ids[2][32], first[32], second[32], last[32], path[64];

	(void)state;
	daemon_start(&daemon, "boot", two);
	create_sandbox(&daemon, "{}", ids[0]);
	create_sandbox(&daemon, "{}", ids[1]);
	run_flood(&daemon, ids[0], first);
	run_flood(&daemon, ids[0], second);
	for (int i = 2; i < OUTPUTS; i++) {
		start_flood(&daemon, ids[i % 2], last);
		if (i % AT_ONCE == 0)
			await_ends(&daemon);
	}
	await_ends(&daemon);
	assert_int_equal(held(&daemon, ids[0], first), EACH);
	run_flood(&daemon, ids[1], last);
	assert_int_equal(held(&daemon, ids[0], first), 0);
	assert_int_equal(held(&daemon, ids[0], second), EACH);
	assert_int_equal(held(&daemon, ids[1], last), EACH);
	snprintf(path, sizeof path, "/commands/%s/output", first);
	expect_refusal_of(&daemon, "GET", ids[0], path, NULL, 409, "conflict",
		"output at offset 0 is no longer held: all from 1100000 on is");
	/* What is forgotten with its sandbox makes room. */
	delete_sandbox(&daemon, ids[0]);
	assert_int_equal(held(&daemon, ids[0], second), EACH);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waiting_for_output),
		cmocka_unit_test(test_less_output_is_kept),
		cmocka_unit_test(test_output_of_a_deleted_sandbox),
		cmocka_unit_test(test_oldest_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
