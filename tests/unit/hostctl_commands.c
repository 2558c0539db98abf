/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in the sandboxes of a whole daemon with a vmm that plays its guests: the plain form, what they are
 * told, and their bounds. */
#include "tests/unit/hostctl_attach_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static void test_many_runs_in_one_vm(void **state)
{
	enum { RUNS = 200 };
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	for (int i = 0; i < RUNS; i++)
		expect_run(&daemon, id, "{\"argv\":[\"exit\",\"3\"]}", "{\"kind\":\"exited\",\"code\":3}");
	run_in(&daemon, id, "{\"argv\":[\"echo\",\"a\",\"b\"]}", &answer);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"a b\\n\",\"bytes\":4,\"dropped\":0}");
	answer_finish(&answer);
	run_in(&daemon, id, "{\"argv\":[\"cat\"],\"stdin\":\"given\"}", &answer);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"given\",\"bytes\":5,\"dropped\":0}");
	answer_finish(&answer);
	call_sandbox(&daemon, "GET", id, "/commands", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "commands")), RUNS + 2);
	answer_finish(&answer);
	assert_int_equal(pool_number(&daemon, "busy"), 1);
	daemon_stop(&daemon);
}

/* The sandbox's limit of processes is that of each command, unless that has a smaller one. */
static void test_limits(void **state)
{
	static const struct {
		const char *sandbox, *command, *given;
	} cases[] = {
		{"{}", "{\"argv\":[\"limits\"]}", "0 0\n"},
		{"{}", "{\"argv\":[\"limits\"],\"pids_max\":7}", "0 7\n"},
		{"{\"pids_max\":40}", "{\"argv\":[\"limits\"]}", "0 40\n"},
		{"{\"pids_max\":40}", "{\"argv\":[\"limits\"],\"pids_max\":39,\"memory_max\":65536}",
			"65536 39\n"},
		{"{\"pids_max\":40}", "{\"argv\":[\"limits\"],\"pids_max\":41}", "0 40\n"},
	};
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const json_t *output;

		create_sandbox(&daemon, cases[i].sandbox, id);
		run_in(&daemon, id, cases[i].command, &answer);
		assert_int_equal(answer.status, 200);
		output = json_object_get(answer.json, "stdout");
		assert_string_equal(json_string_value(json_object_get(output, "data")), cases[i].given);
		answer_finish(&answer);
		delete_sandbox(&daemon, id);
	}
	daemon_stop(&daemon);
}

static void test_wake(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], message[256];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
	answer_finish(&answer);
	snprintf(message, sizeof message,
		"sandbox %s is paused, and the command does not wake it: resume it first", id);
	expect_refusal_of(&daemon, "POST", id, "/run", "{\"argv\":[\"exit\",\"0\"],\"wake\":false}", 409,
		"conflict", message);
	await_state(&daemon, id, "paused");
	expect_run(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", "{\"kind\":\"exited\",\"code\":0}");
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
	start_sandbox(&daemon, "boot resume-refused", pool_of_one, id);
	call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
	answer_finish(&answer);
	run_in(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &answer);
	snprintf(message, sizeof message, "the vmm could not resume sandbox %s: Input/output error", id);
	expect_error_answer(&answer, 500, "internal", message);
	daemon_stop(&daemon);
}

/* Nothing, of what does not run, is as much as something. */
static void expect_no_stdin(const struct daemon *daemon, const char *id, const char *command,
	const char *command_state, const char *const *bodies, size_t count)
{
	char rest[64], message[128];

	snprintf(rest, sizeof rest, "/commands/%s/stdin", command);
	snprintf(message, sizeof message, "command %s is %s: it does not run", command, command_state);
	for (size_t i = 0; i < count; i++)
		expect_refusal_of(daemon, "POST", id, rest, bodies[i], 409, "conflict", message);
	expect_refusal_of(daemon, "POST", id, rest, "{\"data\":\"x\"}", 409, "conflict", message);
	expect_refusal_of(daemon, "POST", id, rest, "{\"eof\":true}", 409, "conflict", message);
}

static void test_kill_signal_stdin_output(void **state)
{
	static const char *const empty[] = {
		"{}", "{\"data\":\"\"}", "{\"data_b64\":\"\"}", "{\"eof\":false}"};
	struct daemon daemon;
	struct answer answer;
	struct command created;
	char id[32], command[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	call_command(&daemon, "POST", id, command, "/signal", "{\"signal\":15}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_field(&daemon, id, command, "state", "\"ended\"");
	call_command(&daemon, "GET", id, command, "", NULL, &answer);
	assert_string_equal(
		member(&answer, "result"), "{\"kind\":\"signalled\",\"signal\":15,\"core\":false}");
	answer_finish(&answer);
	call_command(&daemon, "POST", id, command, "/signal", "{\"signal\":15}", &answer);
	assert_int_equal(answer.status, 409);
	answer_finish(&answer);

	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	call_command(&daemon, "DELETE", id, command, "", NULL, &answer);
	assert_int_equal(answer.status, 409);
	answer_finish(&answer);
	call_command(&daemon, "POST", id, command, "/kill", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_field(&daemon, id, command, "state", "\"ended\"");
	call_command(&daemon, "DELETE", id, command, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);

	start_detached(
		&daemon, id, "{\"argv\":[\"cat\"],\"stdin_stream\":true,\"on_detach\":\"keep\"}", command);
	for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
		call_command(&daemon, "POST", id, command, "/stdin", empty[i], &answer);
		assert_int_equal(answer.status, 200);
		answer_finish(&answer);
	}
	call_command(&daemon, "POST", id, command, "/stdin", "{\"data\":\"one \"}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	call_command(&daemon, "POST", id, command, "/stdin", "{\"data_b64\":\"dHdv\",\"eof\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_field(&daemon, id, command, "state", "\"ended\"");
	expect_no_stdin(&daemon, id, command, "ended", empty, sizeof empty / sizeof empty[0]);
	create_command(&daemon, id, "{\"argv\":[\"x\"],\"stdin_stream\":true}", &created);
	expect_no_stdin(&daemon, id, created.id, "created", empty, sizeof empty / sizeof empty[0]);
	call_command(&daemon, "GET", id, command, "/output?stream=stdout&offset=4", NULL, &answer);
	assert_string_equal(answer.body,
		"{\"data\":\"two\",\"offset\":4,\"next_offset\":7,\"bytes\":7,\"ended\":true}\n");
	answer_finish(&answer);
	call_command(&daemon, "GET", id, command, "/output?offset=8", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "offset 8 is beyond the 7 bytes that were written");
	call_command(&daemon, "GET", id, command, "/output?stream=x", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "stream is stdout or stderr, not \"x\"");
	call_command(&daemon, "GET", id, command, "/output?offset=-1", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "offset is not a whole number: \"-1\"");
	daemon_stop(&daemon);
}

static void test_requests_that_are_refused(void **state)
{
	static const struct {
		const char *body, *message;
	} cases[] = {
		{"{}", "argv is missing: name the command to run"},
		{"{\"argv\":[\"x\"],\"template\":\"base\"}", "unknown field \"template\" in the request"},
		{"{\"argv\":[\"x\"],\"tty\":1}", "tty is not an object of rows and cols"},
		{"{\"argv\":[\"x\"],\"tty\":{\"rows\":24}}", "cols is not a whole number from 1 to 65535"},
		{"{\"argv\":[\"x\"],\"tty\":{\"rows\":0,\"cols\":80}}",
			"rows is not a whole number from 1 to 65535"},
		{"{\"argv\":[\"x\"],\"wake\":1}", "wake is not true or false"},
		{"{\"argv\":[\"x\"],\"on_detach\":\"stop\"}", "on_detach is not \"keep\" or \"kill\""},
		{"{\"argv\":[\"x\"],\"env\":[]}", "env is not an object of strings"},
		{"{\"argv\":[\"x\"],\"output_max\":4095}",
			"output_max is not a whole number from 4096 to 1048576"},
		{"{\"argv\":[\"x\"],\"output_max\":1048577}",
			"output_max is not a whole number from 4096 to 1048576"},
		{"{\"argv\":[\"x\"],\"stdin_stream\":true}",
			"stdin_stream needs the upgraded form (Upgrade: tinderbox-frames)"},
	};
	struct daemon daemon;
	struct answer answer;
	char id[32], message[128];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{\"env\":{\"A\":\"1\"}}", id);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect_refusal_of(
			&daemon, "POST", id, "/run", cases[i].body, 400, "invalid", cases[i].message);
	call_sandbox(&daemon, "GET", id, "/commands", NULL, &answer);
	assert_string_equal(answer.body, "{\"commands\":[]}\n");
	answer_finish(&answer);
	snprintf(message, sizeof message, "sandbox %s has no command cmd-none", id);
	expect_refusal_of(&daemon, "GET", id, "/commands/cmd-none", NULL, 404, "not_found", message);
	daemon_stop(&daemon);
}

/* Created ones that nobody starts are bounded, and so is what runs. */
static void test_bounds(void **state)
{
	enum { KNOWN = 256, RUNNING = 32 };
	struct daemon daemon;
	struct answer answer;
	struct command created;
	char id[32], command[32], message[128];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	for (int i = 0; i < KNOWN; i++)
		create_command(&daemon, id, "{\"argv\":[\"x\"]}", &created);
	call_sandbox(&daemon, "POST", id, "/commands", "{\"argv\":[\"x\"]}", &answer);
	snprintf(message, sizeof message, "sandbox %s has %d commands that have not ended", id, KNOWN);
	expect_error_answer(&answer, 429, "exhausted", message);
	delete_sandbox(&daemon, id);
	create_sandbox(&daemon, "{}", id);
	for (int i = 0; i < RUNNING; i++)
		start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	run_in(&daemon, id, "{\"argv\":[\"x\"]}", &answer);
	snprintf(message, sizeof message, "%d commands run in sandbox %s: wait for some", RUNNING, id);
	expect_error_answer(&answer, 429, "exhausted", message);
	daemon_stop(&daemon);
}

/* So many, by several clients at once; the id of one of the last. */
static void create_commands(const struct daemon *daemon, const char *id, int count, char command[32])
{
	enum { CLIENTS = 32 };
	char path[SANDBOX_PATH_MAX];
	struct answer answer;
	int fds[CLIENTS];

	snprintf(path, sizeof path, "/v1/sandboxes/%s/commands", id);
	for (int left = count; left > 0; left -= CLIENTS) {
		for (int i = 0; i < CLIENTS; i++) {
			fds[i] = client_open(daemon);
			client_request(fds[i], "POST", path, "", "{\"argv\":[\"x\"]}");
		}
		for (int i = 0; i < CLIENTS; i++) {
			client_answer(fds[i], &answer);
			assert_int_equal(answer.status, 201);
			snprintf(command, 32, "%s", json_string_value(json_object_get(answer.json, "id")));
			answer_finish(&answer);
			close(fds[i]);
		}
	}
}

/* Of all sandboxes together. Those of one that is gone give way only when they have ended. */
static void test_bounds_of_all(void **state)
{
	enum { SANDBOXES = 16, EACH = 256 };
	struct daemon daemon;
	struct answer answer;
	struct command created;
	char ids[SANDBOXES][32], last[32], command[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (int i = 0; i < SANDBOXES; i++) {
		create_sandbox(&daemon, "{}", ids[i]);
		create_commands(&daemon, ids[i], EACH, command);
	}
	create_sandbox(&daemon, "{}", last);
	expect_refusal_of(&daemon, "POST", last, "/commands", "{\"argv\":[\"x\"]}", 429, "exhausted",
		"there are 4096 commands that have not ended");
	call_command(&daemon, "POST", ids[3], command, "/kill", NULL, &answer);
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	call_command(&daemon, "POST", ids[SANDBOXES - 1], command, "/kill", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	create_command(&daemon, last, "{\"argv\":[\"x\"]}", &created);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_runs_in_one_vm),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_wake),
		cmocka_unit_test(test_kill_signal_stdin_output),
		cmocka_unit_test(test_requests_that_are_refused),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_bounds_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
