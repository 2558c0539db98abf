/* SPDX-License-Identifier: Apache-2.0 */
/* Commands whose sandbox stands or dies, clients that come at the moment of an end, and what is kept of it.
 */
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandbox.h"
#include "tests/unit/hostctl_sandboxes_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

/* Starts one, its STARTED read; the stream is the caller's to close. */
static void start_followed(const struct daemon *daemon, struct stream *stream, const char *id,
	const char *body, char command[32])
{
	char path[SANDBOX_PATH_MAX], head[2048];

	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	assert_int_equal(open_stream_at(daemon, stream, path, body, head), 101);
	snprintf(command, 32, "%.20s", strstr(head, "Tinderbox-Command: ") + strlen("Tinderbox-Command: "));
	expect(stream, AGENT_STARTED);
}

static void call_command(const struct daemon *daemon, const char *method, const char *id, const char *command,
	const char *rest, struct answer *answer)
{
	char path[SANDBOX_PATH_MAX];

	snprintf(path, sizeof path, "/commands/%s%s", command, rest);
	call_sandbox(daemon, method, id, path, NULL, answer);
}

static void expect_state_of(
	const struct daemon *daemon, const char *id, const char *command, const char *wanted)
{
	struct answer answer;

	call_command(daemon, "GET", id, command, "", &answer);
	assert_string_equal(json_string_value(json_object_get(answer.json, "state")), wanted);
	answer_finish(&answer);
}

static void test_vm_that_dies_while_paused(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stream stream;
	char id[32], command[32], message[256];

	(void)state;
	daemon_start(&daemon, "boot pause-panic", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	start_followed(&daemon, &stream, id, "{\"argv\":[\"started-sleep\"]}", command);
	call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
	answer_finish(&answer);
	snprintf(message, sizeof message,
		"no result: sandbox %s is failed: its VM ended: the guest's kernel panicked: while paused",
		id);
	expect_error(&stream, "guest_lost", message);
	expect_state_of(&daemon, id, command, "ended");
	await_state(&daemon, id, "failed");
	daemon_stop(&daemon);
}

/* The host's clock stands with the guest; when that goes on, it has its grace anew. */
static void test_deadline_across_a_pause(void **state)
{
	enum { GRACE_MS = 2000, PAUSED_MS = 2600 };
	struct daemon daemon;
	struct answer answer;
	struct stream stream;
	struct timespec before, after;
	char id[32], command[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	start_followed(&daemon, &stream, id,
		"{\"argv\":[\"started-sleep\"],\"timeout_ms\":1,\"on_detach\":\"keep\"}", command);
	close_stream(&stream);
	ask_sandbox(&daemon, id, "pause", "paused");
	sleep_ms(PAUSED_MS);
	expect_state_of(&daemon, id, command, "running");
	clock_gettime(CLOCK_MONOTONIC, &before);
	ask_sandbox(&daemon, id, "resume", "ready");
	call_command(&daemon, "GET", id, command, "/output?wait=true", &answer);
	assert_string_equal(member(&answer, "ended"), "true");
	answer_finish(&answer);
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >=
		    GRACE_MS - 1);
	call_command(&daemon, "GET", id, command, "", &answer);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* Each new size is handed on, while it runs; without a terminal there is none. */
static void test_resize(void **state)
{
	static const struct agent_resize sizes[] = {{.rows = 40, .cols = 111}, {.rows = 1, .cols = 65535}};
	struct daemon daemon;
	struct stream stream;
	char id[32], command[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	start_followed(&daemon, &stream, id,
		"{\"argv\":[\"sizes\",\"2\"],\"tty\":{\"rows\":24,\"cols\":80},\"stdin_stream\":true}",
		command);
	expect_output(&stream, AGENT_STDOUT, 0, "24 80\n");
	send_frame(&stream, AGENT_RESIZE, &sizes[0], sizeof sizes[0]);
	expect_output(&stream, AGENT_STDOUT, 6, "40 111\n");
	send_frame(&stream, AGENT_RESIZE, &sizes[1], sizeof sizes[1]);
	expect_output(&stream, AGENT_STDOUT, 13, "1 65535\n");
	expect_exit(&stream, AGENT_EXITED, 0);

	start_followed(&daemon, &stream, id, "{\"argv\":[\"cat\"],\"stdin_stream\":true}", command);
	send_frame(&stream, AGENT_RESIZE, &sizes[0], sizeof sizes[0]);
	send_frame(&stream, AGENT_STDIN_EOF, NULL, 0);
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

static void make_token(const struct daemon *daemon, const char *id, const char *command, char body[160])
{
	struct answer answer;

	call_command(daemon, "POST", id, command, "/token", &answer);
	assert_int_equal(answer.status, 201);
	snprintf(body, 160, "{\"token\":\"%s\",\"stdout_offset\":1}",
		json_string_value(json_object_get(answer.json, "attach_token")));
	answer_finish(&answer);
}

/* Just before its end, just after, or between: the same bytes and the same result. */
static void test_reattached_at_the_end(void **state)
{
	enum { ROUNDS = 40 };
	struct daemon daemon;
	struct stream first, second;
	char id[32], command[32], body[160], path[SANDBOX_PATH_MAX], head[2048];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	for (int i = 0; i < ROUNDS; i++) {
		start_followed(&daemon, &first, id,
			"{\"argv\":[\"cat\"],\"stdin_stream\":true,\"on_detach\":\"keep\"}", command);
		make_token(&daemon, id, command, body);
		send_frame(&first, AGENT_STDIN, "abc", 3);
		expect_output(&first, AGENT_STDOUT, 0, "abc");
		send_frame(&first, AGENT_STDIN_EOF, NULL, 0);
		if (i % 4)
			sleep_ms(i % 4 - 1);
		snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/attach", id, command);
		assert_int_equal(open_stream_at(&daemon, &second, path, body, head), 101);
		expect(&second, AGENT_STARTED);
		expect_output(&second, AGENT_STDOUT, 1, "bc");
		do
			assert_true(next_frame(&second));
		while (second.frame.type == AGENT_STDIN_CREDIT);
		assert_int_equal(second.frame.type, AGENT_EXIT);
		expect_end(&second);
		close_stream(&first);
	}
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

static void never(struct command *command, const struct error *error)
{
	(void)command;
	(void)error;
	fail();
}

/* Else others could hold what its creator, who leaves, destroys. */
static void test_what_is_not_written_yet_is_nobodys(void **state)
{
	struct command command = {.id = "cmd-1", .created = never};
	struct sandbox sandbox = {.id = "sb-1", .commands = &command};
	struct error error;
	json_t *list = commands_to_json(&sandbox);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(list, "commands")), 0);
	json_decref(list);
	assert_null(commands_find(&sandbox, "cmd-1", &error));
	assert_string_equal(error.message, "sandbox sb-1 has no command cmd-1");
	command.created = NULL;
	assert_ptr_equal(commands_find(&sandbox, "cmd-1", &error), &command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vm_that_dies_while_paused),
		cmocka_unit_test(test_deadline_across_a_pause),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_reattached_at_the_end),
		cmocka_unit_test(test_oldest_output),
		cmocka_unit_test(test_what_is_not_written_yet_is_nobodys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
