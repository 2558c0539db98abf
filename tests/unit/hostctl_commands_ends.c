/* SPDX-License-Identifier: Apache-2.0 */
/* How commands end: by themselves, by their guests and sandboxes, by clients that leave; and clients that
 * come at that moment. */
#include "tests/unit/hostctl_attach_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

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
	start_sandbox(&daemon, "boot", pool_of_one, id);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect_run(&daemon, id, cases[i].body, cases[i].result);
	run_in(&daemon, id, "{\"argv\":[\"refuse\"]}", &answer);
	expect_error_answer(&answer, 502, "attach_failed", "the guest refused the command: not now");
	await_state(&daemon, id, "ready");
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
			snprintf(message, sizeof message, "no result: sandbox %s has failed: %s", id,
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
	start_sandbox(&daemon, "boot", pool_of_one, id);
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
	start_sandbox(&daemon, "boot later-refused", pool_of_one, id);
	expect_run(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", "{\"kind\":\"exited\",\"code\":0}");
	run_in(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &answer);
	expect_error_answer(
		&answer, 502, "attach_failed", "no stream to the guest's agent: Connection refused");
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
	start_sandbox(&daemon, "boot later-nothing", pool_of_one, id);
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
	start_sandbox(&daemon, "boot", pool_of_one, id);
	run_in(&daemon, id, "{\"argv\":[\"sleep\"]}", &answer);
	expect_error_answer(&answer, 502, "incomplete",
		"the guest did not answer the command within 10 s; its VM was destroyed. The command may "
		"have run");
	await_state(&daemon, id, "failed");
	expect_reason(&daemon, id, "its agent did not answer a command");
	daemon_stop(&daemon);
}

/* Waits until the command of that number runs, of all that there were. */
static void await_running(const struct daemon *daemon, const char *id, size_t number)
{
	bool runs = false;

	for (int waited = 0; waited < WAIT_MS && !runs; waited += POLL_MS) {
		struct answer answer;
		const json_t *state;

		call_sandbox(daemon, "GET", id, "/commands", NULL, &answer);
		state = json_object_get(
			json_array_get(json_object_get(answer.json, "commands"), number), "state");
		runs = state && !strcmp(json_string_value(state), "running");
		answer_finish(&answer);
		sleep_ms(runs ? 0 : POLL_MS);
	}
	assert_true(runs);
}

/* Who leaves a run has it killed, unless it is to be kept; the sandbox stays. */
static void test_clients_that_leave(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], path[SANDBOX_PATH_MAX];
	int fd;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	fd = client_open(&daemon);
	client_request(fd, "POST", path, "", "{\"argv\":[\"started-sleep\"]}");
	await_running(&daemon, id, 0);
	close(fd);
	fd = client_open(&daemon);
	client_request(fd, "POST", path, "", "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}");
	await_running(&daemon, id, 1);
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

static void test_vm_that_dies_while_paused(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stream stream;
	char id[32], command[32], message[256];

	(void)state;
	start_sandbox(&daemon, "boot pause-panic", pool_of_one, id);
	start_followed(&daemon, &stream, id, "{\"argv\":[\"started-sleep\"]}", command);
	call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
	answer_finish(&answer);
	snprintf(message, sizeof message,
		"no result: sandbox %s has failed: its VM ended: the guest's kernel panicked: while paused",
		id);
	expect_error(&stream, "guest_lost", message);
	expect_field(&daemon, id, command, "state", "\"ended\"");
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
	start_sandbox(&daemon, "boot", pool_of_one, id);
	start_followed(&daemon, &stream, id,
		"{\"argv\":[\"started-sleep\"],\"timeout_ms\":1,\"on_detach\":\"keep\"}", command);
	close_stream(&stream);
	ask_sandbox(&daemon, id, "pause", "paused");
	sleep_ms(PAUSED_MS);
	expect_field(&daemon, id, command, "state", "\"running\"");
	clock_gettime(CLOCK_MONOTONIC, &before);
	ask_sandbox(&daemon, id, "resume", "ready");
	call_command(&daemon, "GET", id, command, "/output?wait=true", NULL, &answer);
	assert_string_equal(member(&answer, "ended"), "true");
	answer_finish(&answer);
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >=
		    GRACE_MS - 1);
	call_command(&daemon, "GET", id, command, "", NULL, &answer);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static void make_token(const struct daemon *daemon, const char *id, const char *command, char body[160])
{
	struct answer answer;

	call_command(daemon, "POST", id, command, "/token", NULL, &answer);
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
	start_sandbox(&daemon, "boot", pool_of_one, id);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends_of_a_command),
		cmocka_unit_test(test_guests_that_misbehave),
		cmocka_unit_test(test_a_stream_that_ends),
		cmocka_unit_test(test_no_stream_to_the_agent),
		cmocka_unit_test(test_an_agent_that_says_nothing),
		cmocka_unit_test(test_clients_that_leave),
		cmocka_unit_test(test_vm_that_dies_while_paused),
		cmocka_unit_test(test_deadline_across_a_pause),
		cmocka_unit_test(test_reattached_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
