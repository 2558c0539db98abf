/* SPDX-License-Identifier: Apache-2.0 */
/* Commands across the end of the daemon: attached to again, or told as they ended. */
#include "tests/unit/hostctl_full_disk_fixture.h"
#include "tests/unit/hostctl_recovery_fixture.h"

#include "host-ctl/journal/journal_commands.h"

/* Of one that ended with an error. */
static void expect_command_error(const struct daemon *daemon, const char *id, const struct command *command,
	const char *code, const char *message)
{
	struct answer answer;
	bool ended = false;

	for (int waited = 0; !ended && waited < WAIT_MS; waited += POLL_MS) {
		get_command(daemon, id, command->id, &answer);
		ended = !strcmp(member(&answer, "state"), "\"ended\"");
		if (ended) {
			const json_t *error = json_object_get(answer.json, "error");

			assert_string_equal(json_string_value(json_object_get(error, "code")), code);
			assert_string_equal(json_string_value(json_object_get(error, "message")), message);
		}
		answer_finish(&answer);
		sleep_ms(ended ? 0 : POLL_MS);
	}
	assert_true(ended);
}

/* All of a command but its output, as text; the caller's. */
static char *describe(const struct daemon *daemon, const char *id, const struct command *command)
{
	struct answer answer;
	char *text;

	get_command(daemon, id, command->id, &answer);
	json_object_del(answer.json, "stdout");
	json_object_del(answer.json, "stderr");
	text = json_dumps(answer.json, JSON_COMPACT);
	answer_finish(&answer);
	return text;
}

static void test_results_are_known(void **state)
{
	static const struct {
		const char *body, *result;
	} cases[] = {
		{"{\"argv\":[\"exit\",\"3\"]}", "{\"kind\":\"exited\",\"code\":3}"},
		{"{\"argv\":[\"signal\",\"9\"]}", "{\"kind\":\"signalled\",\"signal\":9,\"core\":false}"},
		{"{\"argv\":[\"oom\"]}", "{\"kind\":\"out_of_memory\"}"},
		{"{\"argv\":[\"no-such-command\"]}",
			"{\"kind\":\"failed_to_start\",\"errno\":2,\"error\":\"No such file or directory\","
			"\"step\":\"exec\"}"},
		{"{\"argv\":[\"started-sleep\"],\"timeout_ms\":1}",
			"{\"kind\":\"timed_out\",\"by\":\"host\"}"},
		{"{\"argv\":[\"both\"]}", "{\"kind\":\"exited\",\"code\":0}"},
		{"{\"argv\":[\"refuse\"]}", "null"},
	};
	enum { COUNT = sizeof cases / sizeof cases[0] };
	struct daemon daemon;
	struct command commands[COUNT];
	struct stream stream;
	char id[32], *before[COUNT], *after;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_two, id);
	for (size_t i = 0; i < COUNT; i++) {
		create_command(&daemon, id, cases[i].body, &commands[i]);
		assert_int_equal(attach(&daemon, id, &commands[i], "", &stream), 101);
		while (next_frame(&stream))
			;
		close_stream(&stream);
		expect_field(&daemon, id, commands[i].id, "result", cases[i].result);
		before[i] = describe(&daemon, id, &commands[i]);
	}
	flush_rows(&daemon, id);
	for (int kills = 0; kills < 2; kills++) {
		restart(&daemon);
		for (size_t i = 0; i < COUNT; i++) {
			after = describe(&daemon, id, &commands[i]);
			assert_string_equal(after, before[i]);
			free(after);
		}
	}
	for (size_t i = 0; i < COUNT; i++)
		free(before[i]);
	daemon_stop(&daemon);
}

static void test_created_command_is_known(void **state)
{
	struct daemon daemon;
	struct command command, old;
	struct stream stream;
	char id[32], message[192];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_two, id);
	create_command(&daemon, id, "{\"argv\":[\"cat\"],\"stdin\":\"given before\",\"timeout_ms\":60000}",
		&command);
	restart(&daemon);
	expect_field(&daemon, id, command.id, "state", "\"created\"");
	expect_field(&daemon, id, command.id, "argv0", "\"cat\"");
	old = command;
	denial(id, command.id, "is not this command's, or is void since the daemon was started anew", message,
		sizeof message);
	expect_no_attach(&daemon, id, &old, "", 403, "denied", message);
	renew_token(&daemon, id, &command);
	restart(&daemon);
	renew_token(&daemon, id, &command);
	await_state(&daemon, id, "ready");
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect_output(&stream, AGENT_STDOUT, 0, "given before");
	expect(&stream, AGENT_STDIN_CREDIT);
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

static void test_stdin_goes_on(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_two, id);
	begin_dialogue(&daemon, id, &command, &stream);
	close_stream(&stream);
	restart(&daemon);
	take_up_dialogue(&daemon, id, &command, 2, &stream);
	end_dialogue(&stream, 5, "second");
	daemon_stop(&daemon);
}

/* The rest of what came with the request is handed over by the next daemon. */
static void test_stdin_of_the_request(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command;
	char id[32], rest[SANDBOX_PATH_MAX];

	(void)state;
	start_left(&daemon, "boot deaf:4", "{\"argv\":[\"cat\"],\"stdin\":\"0123456789\"}", id, &command);
	restart(&daemon);
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	snprintf(rest, sizeof rest, "/commands/%s/output", command.id);
	call_sandbox(&daemon, "GET", id, rest, NULL, &answer);
	assert_string_equal(json_string_value(json_object_get(answer.json, "data")), "0123456789");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static void test_guests_that_do_not_know_it(void **state)
{
	static const struct {
		const char *script, *message, *reason;
	} cases[] = {
		{"boot attach-gone",
			"no result: the daemon ended, and the guest does not hold the command any more; it "
			"may have run",
			NULL},
		{"boot attach-garbage",
			"no result: the guest broke the agent protocol (a frame before STARTED); its VM was "
			"destroyed",
			"its guest broke the agent protocol: a frame before STARTED"},
		{"boot attach-nothing",
			"the guest did not answer the command within 10 s; its VM was destroyed. The command "
			"may have run",
			"its agent did not answer a command"},
	};
	struct daemon daemon;
	struct command command;
	char id[32];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		start_left(&daemon, cases[i].script, "{\"argv\":[\"started-sleep\"]}", id, &command);
		restart(&daemon);
		expect_command_error(&daemon, id, &command, "incomplete", cases[i].message);
		await_state(&daemon, id, cases[i].reason ? "failed" : "ready");
		if (cases[i].reason)
			expect_reason(&daemon, id, cases[i].reason);
		daemon_stop(&daemon);
	}
}

/* Nobody knows how much there was, so whoever has read some gets the end, at whatever offset. */
static void expect_lost_output(
	const struct daemon *daemon, const char *id, struct command *command, const char *end)
{
	static const char *const offsets[] = {"", ",\"stdout_offset\":20", ",\"stderr_offset\":7"};
	char rest[SANDBOX_PATH_MAX], message[256];
	struct answer answer;
	struct stream stream;

	for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
		renew_token(daemon, id, command);
		assert_int_equal(attach(daemon, id, command, offsets[i], &stream), 101);
		expect_error(&stream, "guest_lost", end);
	}
	expect_field(
		daemon, id, command->id, "stdout", "{\"bytes\":0,\"held\":0,\"lost\":null,\"oldest\":0}");
	snprintf(message, sizeof message,
		"output at offset 20 is lost: how much command %s had written when its daemon ended is not "
		"known",
		command->id);
	snprintf(rest, sizeof rest, "/commands/%s/output?offset=20", command->id);
	expect_refusal_of(daemon, "GET", id, rest, NULL, 409, "conflict", message);
	snprintf(rest, sizeof rest, "/commands/%s/output", command->id);
	call_sandbox(daemon, "GET", id, rest, NULL, &answer);
	assert_string_equal(member(&answer, "ended"), "true");
	answer_finish(&answer);
}

static void test_vm_that_ended_with_the_daemon(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command, created;
	char id[32], vm[32], message[256];
	long pid;

	(void)state;
	start_left(&daemon, "boot", "{\"argv\":[\"started-sleep\"]}", id, &command);
	create_command(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &created);
	vm_of(&daemon, id, vm);
	pid = pid_of_vm(&daemon, vm);
	kill_daemon(&daemon);
	kill((pid_t)pid, SIGKILL);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	snprintf(
		message, sizeof message, "no result: sandbox %s has failed: the daemon and its VM ended", id);
	for (int kills = 0; kills < 2; kills++) {
		expect_command_error(&daemon, id, &command, "guest_lost", message);
		expect_lost_output(&daemon, id, &command, message);
		expect_field(&daemon, id, created.id, "state", "\"created\"");
		renew_token(&daemon, id, &created);
		snprintf(message, sizeof message,
			"sandbox %s is failed (the daemon and its VM ended), and cannot be given commands: "
			"delete it, and create another",
			id);
		expect_no_attach(&daemon, id, &created, "", 409, "conflict", message);
		snprintf(message, sizeof message,
			"no result: sandbox %s has failed: the daemon and its VM ended", id);
		restart(&daemon);
	}
	/* With the sandbox they are forgotten, also by the next daemon. */
	delete_sandbox(&daemon, id);
	restart(&daemon);
	call_sandbox(&daemon, "GET", id, "/commands", NULL, &answer);
	/* That it was may still be known. */
	if (answer.status != 404)
		assert_string_equal(member(&answer, "commands"), "[]");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* As the journal of a daemon that was killed has it; -1: there is no row. */
static int state_of(const struct daemon *daemon, const struct command *command)
{
	char query[128];
	sqlite3_stmt *statement;
	int value;
	sqlite3 *db = open_journal(daemon);

	snprintf(query, sizeof query, "SELECT state FROM commands WHERE id='%s'", command->id);
	assert_int_equal(sqlite3_prepare_v2(db, query, -1, &statement, NULL), SQLITE_OK);
	value = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int(statement, 0) : -1;
	sqlite3_finalize(statement);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return value;
}

static void remove_command(const struct daemon *daemon, const char *id, const struct command *command)
{
	char rest[64];
	struct answer answer;

	snprintf(rest, sizeof rest, "/commands/%s", command->id);
	call_sandbox(daemon, "DELETE", id, rest, NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
}

/* One that is started, and has its row. */
static void start_cat(
	const struct daemon *daemon, const char *id, struct command *command, struct stream *stream)
{
	start_attached(daemon, id, "{\"argv\":[\"cat\"],\"stdin_stream\":true}", command, stream);
}

static void end_cat(struct stream *stream)
{
	send_frame(stream, AGENT_STDIN_EOF, NULL, 0);
	while (next_frame(stream))
		;
	close_stream(stream);
}

/* Nor of what waited until then: it was tried before, or with this. */
static void expect_no_row(const struct daemon *daemon, const char *id)
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/commands", "{\"argv\":[\"exit\",\"0\"]}", &answer);
	assert_int_equal(answer.status, 429);
	answer_finish(&answer);
}

/* A disk that is full for a moment: what was told of a command then is known to the next daemon. */
static void test_ends_on_a_full_disk(void **state)
{
	struct command command, removed, created;
	struct stream stream;
	struct daemon daemon;
	char id[32];

	(void)state;
	mount_state(&daemon, "size=600k");
	daemon_launch(&daemon, "boot", pool_of_two, true);
	create_sandbox(&daemon, "{}", id);
	start_cat(&daemon, id, &removed, &stream);
	end_cat(&stream);
	create_command(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &created);
	start_cat(&daemon, id, &command, &stream);
	flush_rows(&daemon, id);
	fill_disk(&daemon);
	end_cat(&stream);
	remove_command(&daemon, id, &removed);
	remove_command(&daemon, id, &created);
	expect_no_row(&daemon, id);
	clear_disk(&daemon);
	/* The first is taken, the second goes with what is asked for again. */
	flush_rows(&daemon, id);
	flush_rows(&daemon, id);
	kill_daemon(&daemon);
	assert_int_equal(state_of(&daemon, &command), JOURNAL_COMMAND_ENDED);
	assert_int_equal(state_of(&daemon, &removed), -1);
	assert_int_equal(state_of(&daemon, &created), -1);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	expect_field(&daemon, id, command.id, "result", "{\"kind\":\"exited\",\"code\":0}");
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

/* And one that was removed before that was written has no row, whatever comes after it. */
static void test_removal_of_what_ended_on_a_full_disk(void **state)
{
	struct command command;
	struct stream stream;
	struct daemon daemon;
	char id[32];

	(void)state;
	mount_state(&daemon, "size=600k");
	daemon_launch(&daemon, "boot", pool_of_two, true);
	create_sandbox(&daemon, "{}", id);
	start_cat(&daemon, id, &command, &stream);
	fill_disk(&daemon);
	end_cat(&stream);
	expect_no_row(&daemon, id);
	clear_disk(&daemon);
	remove_command(&daemon, id, &command);
	for (int i = 0; i < 3; i++)
		flush_rows(&daemon, id);
	kill_daemon(&daemon);
	assert_int_equal(state_of(&daemon, &command), -1);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

/* Its client was there until the daemon ended, and so has left. */
static void test_on_detach_kill(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_two, id);
	start_attached(
		&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"kill\"}", &command, &stream);
	restart(&daemon);
	close_stream(&stream);
	await_result(&daemon, id, command.id, "{\"kind\":\"killed\"}");
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
}

/* What is asked of one before its guest has it again is not lost. */
static void test_paused_sandbox(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command keeps, killed;
	struct stream stream;
	char id[32], rest[SANDBOX_PATH_MAX], message[128];

	(void)state;
	start_left(&daemon, "boot", "{\"argv\":[\"cat\"],\"stdin_stream\":true}", id, &keeps);
	start_attached(&daemon, id, "{\"argv\":[\"started-sleep\"]}", &killed, &stream);
	close_stream(&stream);
	call_sandbox(&daemon, "POST", id, "/pause", "", &answer);
	answer_finish(&answer);
	restart(&daemon);
	await_state(&daemon, id, "paused");
	expect_field(&daemon, id, keeps.id, "state", "\"running\"");
	snprintf(rest, sizeof rest, "/commands/%s/output", keeps.id);
	snprintf(message, sizeof message, "command %s is being taken back: try again", keeps.id);
	expect_refusal_of(&daemon, "GET", id, rest, NULL, 503, "not_ready", message);
	renew_token(&daemon, id, &keeps);
	assert_int_equal(attach(&daemon, id, &keeps, "", &stream), 101);
	snprintf(rest, sizeof rest, "/commands/%s/kill", killed.id);
	call_sandbox(&daemon, "POST", id, rest, "", &answer);
	assert_string_equal(member(&answer, "state"), "\"running\"");
	answer_finish(&answer);
	call_sandbox(&daemon, "POST", id, "/resume", "", &answer);
	assert_string_equal(member(&answer, "state"), "\"ready\"");
	answer_finish(&answer);
	await_result(&daemon, id, killed.id, "{\"kind\":\"killed\"}");
	expect(&stream, AGENT_STARTED);
	send_frame(&stream, AGENT_STDIN, "x", 1);
	expect_output(&stream, AGENT_STDOUT, 0, "x");
	expect(&stream, AGENT_STDIN_CREDIT);
	send_frame(&stream, AGENT_STDIN_EOF, NULL, 0);
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

/* The guest does not keep it; the host's is not forgotten. */
static void test_deadline_goes_on(void **state)
{
	struct daemon daemon;
	struct command command;
	char id[32];

	(void)state;
	start_left(&daemon, "boot", "{\"argv\":[\"started-sleep\"],\"timeout_ms\":60000}", id, &command);
	kill_daemon(&daemon);
	change_journal(&daemon, "UPDATE commands SET started_ms = started_ms - 90000");
	daemon_launch(&daemon, "boot", pool_of_two, true);
	expect_field(&daemon, id, command.id, "state", "\"running\"");
	await_result(&daemon, id, command.id, "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	daemon_stop(&daemon);
}

/* An agent that does not come back ends its sandbox, not the daemon. */
static void test_operations_are_forgotten(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], operation[64], path[128], message[128];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_two, id);
	call_sandbox(&daemon, "POST", id, "/pause?wait=false", "", &answer);
	snprintf(operation, sizeof operation, "%s",
		json_string_value(json_object_get(json_object_get(answer.json, "operation"), "id")));
	answer_finish(&answer);
	restart(&daemon);
	snprintf(path, sizeof path, "/v1/operations/%s", operation);
	snprintf(message, sizeof message, "there is no operation %s", operation);
	expect_refused(&daemon, "GET", path, NULL, "not_found", message);
	await_state(&daemon, id, "paused");
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_results_are_known),
		cmocka_unit_test(test_created_command_is_known),
		cmocka_unit_test(test_stdin_goes_on),
		cmocka_unit_test(test_stdin_of_the_request),
		cmocka_unit_test(test_guests_that_do_not_know_it),
		cmocka_unit_test(test_vm_that_ended_with_the_daemon),
		cmocka_unit_test(test_ends_on_a_full_disk),
		cmocka_unit_test(test_removal_of_what_ended_on_a_full_disk),
		cmocka_unit_test(test_on_detach_kill),
		cmocka_unit_test(test_paused_sandbox),
		cmocka_unit_test(test_deadline_goes_on),
		cmocka_unit_test(test_operations_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
