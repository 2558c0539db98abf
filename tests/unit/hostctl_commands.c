/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in the sandboxes of a whole daemon with a vmm that plays its guests: the plain form. */
#include "tests/unit/hostctl_sandboxes_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static void run_in(const struct daemon *daemon, const char *id, const char *body, struct answer *answer)
{
	call_sandbox(daemon, "POST", id, "/run", body, answer);
}

static void expect_run(const struct daemon *daemon, const char *id, const char *body, const char *result)
{
	struct answer answer;

	run_in(daemon, id, body, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "result"), result);
	assert_string_equal(json_string_value(json_object_get(answer.json, "sandbox")), id);
	answer_finish(&answer);
}

/* One that was created but not started: its id, and its token unless NULL. */
static void create_command(
	const struct daemon *daemon, const char *id, const char *body, char command[32], char token[80])
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/commands", body, &answer);
	assert_int_equal(answer.status, 201);
	snprintf(command, 32, "%s", json_string_value(json_object_get(answer.json, "id")));
	if (token)
		snprintf(token, 80, "%s", json_string_value(json_object_get(answer.json, "attach_token")));
	answer_finish(&answer);
}

static void call_command(const struct daemon *daemon, const char *method, const char *id, const char *command,
	const char *rest, const char *body, struct answer *answer)
{
	char path[SANDBOX_PATH_MAX];

	snprintf(path, sizeof path, "/commands/%s%s", command, rest);
	call_sandbox(daemon, method, id, path, body, answer);
}

static void test_many_runs_in_one_vm(void **state)
{
	enum { RUNS = 200 };
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
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

static void test_ends_of_a_command(void **state)
{
	static const struct {
		const char *body, *result;
	} cases[] = {
		{"{\"argv\":[\"signal\",\"9\"]}", "{\"kind\":\"signalled\",\"signal\":9,\"core\":false}"},
		{"{\"argv\":[\"oom\"]}", "{\"kind\":\"out_of_memory\"}"},
		{"{\"argv\":[\"timeout\"],\"timeout_ms\":1000}", "{\"kind\":\"timed_out\",\"by\":\"guest\"}"},
		{"{\"argv\":[\"no-such-command\"]}",
			"{\"kind\":\"failed_to_start\",\"errno\":2,\"error\":\"No such file or directory\","
			"\"step\":\"exec\"}"},
		/* The guest does not keep the deadline, but ends the session when it is told to. */
		{"{\"argv\":[\"started-sleep\"],\"timeout_ms\":1}",
			"{\"kind\":\"timed_out\",\"by\":\"host\"}"},
	};
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect_run(&daemon, id, cases[i].body, cases[i].result);
	run_in(&daemon, id, "{\"argv\":[\"refuse\"]}", &answer);
	expect_error_answer(&answer, 502, "attach_failed", "the guest refused the command: not now");
	await_state(&daemon, id, "ready");
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

/* Each ends the sandbox, with the reason; the command is told what it is told in a run. */
static void test_guests_that_misbehave(void **state)
{
	static const struct {
		const char *body, *code, *message, *reason;
	} cases[] = {
		{"{\"argv\":[\"bad-offset\"]}", "incomplete",
			"no result: the guest broke the agent protocol (output at a wrong offset); its VM "
			"was destroyed",
			"its guest broke the agent protocol: output at a wrong offset"},
		{"{\"argv\":[\"bad-type\"]}", "incomplete",
			"no result: the guest broke the agent protocol (a frame of a type that has no place "
			"in a session); its VM was destroyed",
			"its guest broke the agent protocol: a frame of a type that has no place in a "
			"session"},
		{"{\"argv\":[\"bad-started\"]}", "incomplete",
			"no result: the guest broke the agent protocol (STARTED of another session); its VM "
			"was destroyed",
			"its guest broke the agent protocol: STARTED of another session"},
		{"{\"argv\":[\"panic\"]}", "guest_lost", NULL,
			"its VM ended: the guest's kernel panicked: pvpanic"},
		{"{\"argv\":[\"die\",\"5\"]}", "guest_lost", NULL,
			"its VM ended: the guest's processor gave up"},
		/* A guest that answers nothing at all; at its deadline, the host ends it. */
		{"{\"argv\":[\"bad-hang\"],\"timeout_ms\":1}", NULL, NULL,
			"its agent did not end a command that was killed"},
	};
	struct daemon daemon;
	struct answer answer;
	char id[32], message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		create_sandbox(&daemon, "{}", id);
		run_in(&daemon, id, cases[i].body, &answer);
		if (cases[i].code) {
			snprintf(message, sizeof message, "no result: sandbox %s is failed: %s", id,
				cases[i].reason);
			expect_error_answer(
				&answer, 502, cases[i].code, cases[i].message ? cases[i].message : message);
		} else {
			assert_string_equal(
				member(&answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
			answer_finish(&answer);
		}
		await_state(&daemon, id, "failed");
		expect_reason(&daemon, id, cases[i].reason);
		snprintf(message, sizeof message,
			"sandbox %s is failed (%s), and cannot be given commands: delete it, and create "
			"another",
			id, cases[i].reason);
		expect_refusal_of(
			&daemon, "POST", id, "/run", "{\"argv\":[\"x\"]}", 409, "conflict", message);
		delete_sandbox(&daemon, id);
	}
	await_pool(&daemon, "busy", 0);
	daemon_stop(&daemon);
}

/* The stream ends, the VM does not: the command has no result, the sandbox goes on. */
static void test_a_stream_that_ends(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	run_in(&daemon, id, "{\"argv\":[\"close\"]}", &answer);
	expect_error_answer(
		&answer, 502, "incomplete", "no result: the guest ended the session's stream without one");
	expect_run(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", "{\"kind\":\"exited\",\"code\":0}");
	daemon_stop(&daemon);
}

static void test_no_stream_to_the_agent(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot later-refused", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	expect_run(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", "{\"kind\":\"exited\",\"code\":0}");
	run_in(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &answer);
	expect_error_answer(
		&answer, 502, "attach_failed", "no stream to the guest's agent: Connection refused");
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
	daemon_start(&daemon, "boot later-nothing", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	expect_run(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", "{\"kind\":\"exited\",\"code\":0}");
	run_in(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &answer);
	expect_error_answer(&answer, 502, "attach_failed", "the guest's agent took no stream within 10 s");
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
}

static void test_an_agent_that_says_nothing(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	run_in(&daemon, id, "{\"argv\":[\"sleep\"]}", &answer);
	expect_error_answer(&answer, 502, "incomplete",
		"the guest did not answer the command within 10 s; its VM was destroyed. The command may "
		"have run");
	await_state(&daemon, id, "failed");
	expect_reason(&daemon, id, "its agent did not answer a command");
	daemon_stop(&daemon);
}

static void test_wake(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
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
	daemon_start(&daemon, "boot resume-refused", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
	answer_finish(&answer);
	run_in(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &answer);
	snprintf(message, sizeof message, "the vmm could not resume sandbox %s: Input/output error", id);
	expect_error_answer(&answer, 500, "internal", message);
	daemon_stop(&daemon);
}

/* Who leaves a run has it killed, unless it is to be kept; the sandbox stays. */
static void test_clients_that_leave(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], path[SANDBOX_PATH_MAX];
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	fd = client_open(&daemon);
	client_request(fd, "POST", path, "", "{\"argv\":[\"started-sleep\"]}");
	sleep_ms(100);
	close(fd);
	fd = client_open(&daemon);
	client_request(fd, "POST", path, "", "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}");
	sleep_ms(100);
	close(fd);
	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		const json_t *list;

		call_sandbox(&daemon, "GET", id, "/commands", NULL, &answer);
		list = json_object_get(answer.json, "commands");
		assert_int_equal(json_array_size(list), 2);
		if (json_is_object(json_object_get(json_array_get(list, 0), "result")) &&
			json_is_false(json_object_get(json_array_get(list, 1), "attached")) &&
			!strcmp(json_string_value(json_object_get(json_array_get(list, 1), "state")),
				"running"))
			break;
		answer_finish(&answer);
		sleep_ms(POLL_MS);
	}
	assert_string_equal(
		json_string_value(json_object_get(
			json_object_get(
				json_array_get(json_object_get(answer.json, "commands"), 0), "result"),
			"kind")),
		"killed");
	assert_string_equal(json_string_value(json_object_get(
				    json_array_get(json_object_get(answer.json, "commands"), 1), "state")),
		"running");
	answer_finish(&answer);
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
}

static void await_command(
	const struct daemon *daemon, const char *id, const char *command, const char *wanted)
{
	char last[32] = "";

	for (int waited = 0; waited < WAIT_MS && strcmp(last, wanted) != 0; waited += POLL_MS) {
		struct answer answer;

		call_command(daemon, "GET", id, command, "", NULL, &answer);
		snprintf(last, sizeof last, "%s", json_string_value(json_object_get(answer.json, "state")));
		answer_finish(&answer);
		sleep_ms(strcmp(last, wanted) ? POLL_MS : 0);
	}
	assert_string_equal(last, wanted);
}

/* Starts one without a client that stays. */
static void start_detached(const struct daemon *daemon, const char *id, const char *body, char command[32])
{
	struct stream stream;
	char path[SANDBOX_PATH_MAX], head[2048];

	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	assert_int_equal(open_stream_at(daemon, &stream, path, body, head), 101);
	snprintf(command, 32, "%.20s", strstr(head, "Tinderbox-Command: ") + strlen("Tinderbox-Command: "));
	expect(&stream, AGENT_STARTED);
	close_stream(&stream);
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
	char id[32], command[32], created[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	call_command(&daemon, "POST", id, command, "/signal", "{\"signal\":15}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_command(&daemon, id, command, "ended");
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
	await_command(&daemon, id, command, "ended");
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
	await_command(&daemon, id, command, "ended");
	expect_no_stdin(&daemon, id, command, "ended", empty, sizeof empty / sizeof empty[0]);
	create_command(&daemon, id, "{\"argv\":[\"x\"],\"stdin_stream\":true}", created, NULL);
	expect_no_stdin(&daemon, id, created, "created", empty, sizeof empty / sizeof empty[0]);
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
	char id[32], command[32], path[SANDBOX_PATH_MAX], head[2048];
	int first, second, left, other;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	assert_int_equal(open_stream_at(&daemon, &stream, path, cat, head), 101);
	snprintf(command, sizeof command, "%.20s",
		strstr(head, "Tinderbox-Command: ") + strlen("Tinderbox-Command: "));
	expect(&stream, AGENT_STARTED);
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
	create_command(&daemon, id, "{\"argv\":[\"x\"]}", command, NULL);
	first = ask_for_output(&daemon, id, command, "");
	assert_int_equal(metric(&daemon, "tinderbox_commands_running "), 0);
	call_command(&daemon, "POST", id, command, "/kill", NULL, &answer);
	answer_finish(&answer);
	expect_body(first, "{\"data\":\"\",\"offset\":0,\"next_offset\":0,\"bytes\":0,\"ended\":true}\n");
	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	first = ask_for_output(&daemon, id, command, "");
	await_command(&daemon, id, command, "running");
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
	char id[32], command[32], path[SANDBOX_PATH_MAX], head[2048];
	uint64_t got = 0;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	run_in(&daemon, id, body, &answer);
	output = json_object_get(answer.json, "stdout");
	assert_int_equal(json_string_length(json_object_get(output, "data")), ANSWERED);
	assert_int_equal(json_integer_value(json_object_get(output, "bytes")), WRITTEN);
	assert_int_equal(json_integer_value(json_object_get(output, "dropped")), WRITTEN - ANSWERED);
	assert_int_equal(json_integer_value(json_object_get(output, "head_bytes")), ANSWERED / 2);
	snprintf(command, sizeof command, "%s", json_string_value(json_object_get(answer.json, "command")));
	answer_finish(&answer);
	await_held(&daemon, id, command, 4096);

	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	assert_int_equal(open_stream_at(&daemon, &stream, path, body, head), 101);
	snprintf(command, sizeof command, "%.20s",
		strstr(head, "Tinderbox-Command: ") + strlen("Tinderbox-Command: "));
	expect(&stream, AGENT_STARTED);
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
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
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
	char id[32], command[32], message[128];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	for (int i = 0; i < KNOWN; i++)
		create_command(&daemon, id, "{\"argv\":[\"x\"]}", command, NULL);
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
	create_command(&daemon, last, "{\"argv\":[\"x\"]}", command, NULL);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_runs_in_one_vm),
		cmocka_unit_test(test_ends_of_a_command),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_guests_that_misbehave),
		cmocka_unit_test(test_a_stream_that_ends),
		cmocka_unit_test(test_no_stream_to_the_agent),
		cmocka_unit_test(test_an_agent_that_says_nothing),
		cmocka_unit_test(test_wake),
		cmocka_unit_test(test_clients_that_leave),
		cmocka_unit_test(test_kill_signal_stdin_output),
		cmocka_unit_test(test_waiting_for_output),
		cmocka_unit_test(test_less_output_is_kept),
		cmocka_unit_test(test_output_of_a_deleted_sandbox),
		cmocka_unit_test(test_requests_that_are_refused),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_bounds_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
