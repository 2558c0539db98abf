/* SPDX-License-Identifier: Apache-2.0 */
/* Commands across the end of the daemon: attached to again, or told as they ended. */
#include "tests/unit/hostctl_recovery_fixture.h"

enum { OUTPUT_MAX = 1024 * 1024, HELD = AGENT_OUTPUT_BUFFER };

/* What a client has read of stdout, over all its attachments. */
struct reading {
	char bytes[OUTPUT_MAX];
	size_t length;
};

/* The lines of `count`, from 0 on, so many bytes and the rest of a line. How many lines. */
static unsigned int fill_lines(char *text, size_t length)
{
	unsigned int lines = 0;

	for (size_t at = 0; at < length; lines++)
		at += (size_t)snprintf(text + at, 16, "%u\n", lines);
	return lines;
}

static void expect_frame(struct stream *stream)
{
	assert_true(next_frame(stream));
}

/* Takes the frame of output that came: it goes on where the reading is. */
static void take_output(const struct stream *stream, struct reading *reading)
{
	const size_t length = stream->frame.length - sizeof(struct agent_output);
	struct agent_output output;

	assert_int_equal(stream->frame.type, AGENT_STDOUT);
	memcpy(&output, stream->frame.payload, sizeof output);
	assert_int_equal(output.offset, reading->length);
	assert_true(reading->length + length <= sizeof reading->bytes);
	memcpy(reading->bytes + reading->length, stream->frame.payload + sizeof output, length);
	reading->length += length;
}

/* Attaches with a new token where the reading is, and reads STARTED. */
static void attach_again(const struct daemon *daemon, const char *id, struct command *command,
	const struct reading *reading, struct stream *stream)
{
	char more[64];

	renew_token(daemon, id, command);
	snprintf(more, sizeof more, ",\"stdout_offset\":%zu", reading->length);
	assert_int_equal(attach(daemon, id, command, more, stream), 101);
	expect(stream, AGENT_STARTED);
}

static void get_command(
	const struct daemon *daemon, const char *id, const char *command, struct answer *answer)
{
	char rest[SANDBOX_PATH_MAX];

	snprintf(rest, sizeof rest, "/commands/%s", command);
	call_sandbox(daemon, "GET", id, rest, NULL, answer);
	assert_int_equal(answer->status, 200);
}

static void expect_field(const struct daemon *daemon, const char *id, const struct command *command,
	const char *name, const char *value)
{
	struct answer answer;

	get_command(daemon, id, command->id, &answer);
	assert_string_equal(member(&answer, name), value);
	answer_finish(&answer);
}

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

/* An end is written some time later; but before what is promised after it. */
static void flush_rows(const struct daemon *daemon, const char *id)
{
	struct command command;

	create_command(daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &command);
}

/* A sandbox of a daemon that plays so, and a command in it that was started and whose client left. */
static void start_detached(
	struct daemon *daemon, const char *script, const char *body, char id[32], struct command *command)
{
	struct stream stream;

	daemon_start(daemon, script, pool_of_two);
	create_sandbox(daemon, "{}", id);
	create_command(daemon, id, body, command);
	assert_int_equal(attach(daemon, id, command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	close_stream(&stream);
}

static void test_running_command_goes_on(void **state)
{
	enum { KILLS = 3, AT_LEAST = 100 };
	static struct reading reading;
	static char lines[OUTPUT_MAX + 16];
	const struct agent_signal interrupt = {.signal = SIGINT};
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	reading.length = 0;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	create_command(&daemon, id, "{\"argv\":[\"count\",\"100000\",\"2\"]}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	for (int i = 1; i <= KILLS; i++) {
		for (size_t wanted = reading.length + AT_LEAST; reading.length < wanted;) {
			assert_true(next_frame(&stream));
			take_output(&stream, &reading);
		}
		kill_daemon(&daemon);
		/* What was on its way to the client still comes. */
		while (next_frame(&stream))
			take_output(&stream, &reading);
		close_stream(&stream);
		daemon_launch(&daemon, "boot", pool_of_two, true);
		expect_field(&daemon, id, &command, "state", "\"running\"");
		attach_again(&daemon, id, &command, &reading, &stream);
	}
	send_frame(&stream, AGENT_SIGNAL, &interrupt, sizeof interrupt);
	for (expect_frame(&stream); stream.frame.type == AGENT_STDOUT; expect_frame(&stream))
		take_output(&stream, &reading);
	assert_int_equal(stream.frame.type, AGENT_EXIT);
	expect_end(&stream);
	/* Each byte once, and to the end. */
	assert_int_equal(reading.bytes[reading.length - 1], '\n');
	fill_lines(lines, reading.length);
	assert_memory_equal(reading.bytes, lines, reading.length);
	/* Other commands work beside, in the same guest. */
	create_command(&daemon, id, "{\"argv\":[\"exit\",\"4\"]}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect_exit(&stream, AGENT_EXITED, 4);
	daemon_stop(&daemon);
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
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	for (size_t i = 0; i < COUNT; i++) {
		create_command(&daemon, id, cases[i].body, &commands[i]);
		assert_int_equal(attach(&daemon, id, &commands[i], "", &stream), 101);
		while (next_frame(&stream))
			;
		close_stream(&stream);
		expect_field(&daemon, id, &commands[i], "result", cases[i].result);
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

/* How much there was is known, and that it is not to be had. */
static void test_output_of_what_had_ended(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32], rest[SANDBOX_PATH_MAX];

	(void)state;
	start_detached(&daemon, "boot", "{\"argv\":[\"both\"]}", id, &command);
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	flush_rows(&daemon, id);
	restart(&daemon);
	expect_field(&daemon, id, &command, "stdout", "{\"bytes\":4,\"held\":0,\"oldest\":4}");
	expect_field(&daemon, id, &command, "stderr", "{\"bytes\":4,\"held\":0,\"oldest\":4}");
	snprintf(rest, sizeof rest, "/commands/%s/output?offset=0", command.id);
	expect_refusal_of(&daemon, "GET", id, rest, NULL, 409, "conflict",
		"output at offset 0 is no longer held: all from 4 on is");
	renew_token(&daemon, id, &command);
	expect_no_attach(&daemon, id, &command, ",\"stdout_offset\":1", 409, "conflict",
		"output at stdout_offset 1 is no longer held: all from 4 on is");
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

static void test_what_ends_without_a_daemon(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command;
	char id[32], lines[256], rest[SANDBOX_PATH_MAX];

	(void)state;
	assert_int_equal(fill_lines(lines, 110), 40);
	start_detached(&daemon, "boot", "{\"argv\":[\"count\",\"40\",\"5\"]}", id, &command);
	kill_daemon(&daemon);
	sleep_ms(500);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	snprintf(rest, sizeof rest, "/commands/%s/output?offset=0", command.id);
	call_sandbox(&daemon, "GET", id, rest, NULL, &answer);
	assert_string_equal(json_string_value(json_object_get(answer.json, "data")), lines);
	assert_string_equal(member(&answer, "ended"), "true");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* Of stdout, of which so much was written, and all from there on is held. */
static size_t find_oldest(
	const struct daemon *daemon, const char *id, const struct command *command, size_t length)
{
	struct answer answer;
	json_int_t bytes, held, oldest;

	get_command(daemon, id, command->id, &answer);
	assert_int_equal(json_unpack(answer.json, "{s:{s:I,s:I,s:I}}", "stdout", "bytes", &bytes, "held",
				 &held, "oldest", &oldest),
		0);
	answer_finish(&answer);
	assert_int_equal(bytes, length);
	assert_int_equal(held, bytes - oldest);
	return (size_t)oldest;
}

/* More than a guest holds: what is missing is said, not skipped. */
static void test_output_that_was_lost(void **state)
{
	static struct reading reading;
	static char lines[OUTPUT_MAX];
	const size_t length = 588890; /* of 100000 lines */
	size_t oldest;
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32], more[64], rest[SANDBOX_PATH_MAX], message[128];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	create_command(&daemon, id, "{\"argv\":[\"count\",\"100000\",\"0\"]}", &command);
	/* It waits for this reader, until there is none. */
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	kill_daemon(&daemon);
	close_stream(&stream);
	sleep_ms(1500);
	assert_int_equal(fill_lines(lines, length), 100000);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	/* At once, whether the guest has sent it again or not. */
	renew_token(&daemon, id, &command);
	if (attach(&daemon, id, &command, ",\"stdout_offset\":7", &stream) == 101) {
		expect(&stream, AGENT_STARTED);
		expect_error(&stream, "conflict", "output at the given offset is no longer held");
	} else {
		close_stream(&stream);
	}
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	oldest = find_oldest(&daemon, id, &command, length);
	/* What the guest held when it was attached to, and what it wrote after that. */
	assert_in_range(oldest, 8, length - HELD);
	renew_token(&daemon, id, &command);
	snprintf(message, sizeof message, "output at stdout_offset 7 is no longer held: all from %zu on is",
		oldest);
	expect_no_attach(&daemon, id, &command, ",\"stdout_offset\":7", 409, "conflict", message);
	snprintf(more, sizeof more, "stdout_offset is beyond the %zu bytes that were written", length);
	snprintf(rest, sizeof rest, ",\"stdout_offset\":%zu", length + 1);
	expect_no_attach(&daemon, id, &command, rest, 400, "invalid", more);
	reading.length = oldest;
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	while (reading.length < length) {
		assert_true(next_frame(&stream));
		take_output(&stream, &reading);
	}
	expect_exit(&stream, AGENT_EXITED, 0);
	assert_memory_equal(reading.bytes + oldest, lines + oldest, length - oldest);
	daemon_stop(&daemon);
}

static void test_created_command_is_known(void **state)
{
	struct daemon daemon;
	struct command command, old;
	struct stream stream;
	char id[32], message[128];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	create_command(&daemon, id, "{\"argv\":[\"cat\"],\"stdin\":\"given before\",\"timeout_ms\":60000}",
		&command);
	restart(&daemon);
	expect_field(&daemon, id, &command, "state", "\"created\"");
	expect_field(&daemon, id, &command, "argv0", "\"cat\"");
	old = command;
	snprintf(message, sizeof message, "the token is not that of command %s", command.id);
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
	struct agent_started started;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	create_command(&daemon, id, "{\"argv\":[\"cat\"],\"stdin_stream\":true}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	send_frame(&stream, AGENT_STDIN, "first", 5);
	expect_output(&stream, AGENT_STDOUT, 0, "first");
	close_stream(&stream);
	restart(&daemon);
	renew_token(&daemon, id, &command);
	assert_int_equal(attach(&daemon, id, &command, ",\"stdout_offset\":2", &stream), 101);
	expect(&stream, AGENT_STARTED);
	memcpy(&started, stream.frame.payload, sizeof started);
	assert_int_equal(started.stdin_offset, 5);
	assert_int_equal(started.stdin_credit, AGENT_STDIN_WINDOW);
	expect_output(&stream, AGENT_STDOUT, 2, "rst");
	send_frame(&stream, AGENT_STDIN, "second", 6);
	expect_output(&stream, AGENT_STDOUT, 5, "second");
	expect(&stream, AGENT_STDIN_CREDIT);
	send_frame(&stream, AGENT_STDIN_EOF, NULL, 0);
	expect_exit(&stream, AGENT_EXITED, 0);
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
	start_detached(&daemon, "boot deaf:4", "{\"argv\":[\"cat\"],\"stdin\":\"0123456789\"}", id, &command);
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
		start_detached(&daemon, cases[i].script, "{\"argv\":[\"started-sleep\"]}", id, &command);
		restart(&daemon);
		expect_command_error(&daemon, id, &command, "incomplete", cases[i].message);
		await_state(&daemon, id, cases[i].reason ? "failed" : "ready");
		if (cases[i].reason)
			expect_reason(&daemon, id, cases[i].reason);
		daemon_stop(&daemon);
	}
}

static void test_vm_that_ended_with_the_daemon(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command, created;
	char id[32], vm[32], message[256];
	long pid;

	(void)state;
	start_detached(&daemon, "boot", "{\"argv\":[\"started-sleep\"]}", id, &command);
	create_command(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &created);
	vm_of(&daemon, id, vm);
	pid = pid_of_vm(&daemon, vm);
	kill_daemon(&daemon);
	kill((pid_t)pid, SIGKILL);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	snprintf(message, sizeof message, "no result: sandbox %s is failed: the daemon and its VM ended", id);
	for (int kills = 0; kills < 2; kills++) {
		expect_command_error(&daemon, id, &command, "guest_lost", message);
		expect_field(&daemon, id, &created, "state", "\"created\"");
		renew_token(&daemon, id, &created);
		snprintf(message, sizeof message,
			"sandbox %s is failed (the daemon and its VM ended), and cannot be given commands: "
			"delete it, and create another",
			id);
		expect_no_attach(&daemon, id, &created, "", 409, "conflict", message);
		snprintf(message, sizeof message,
			"no result: sandbox %s is failed: the daemon and its VM ended", id);
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

/* Its client was there until the daemon ended, and so has left. */
static void test_on_detach_kill(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	create_command(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"kill\"}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
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
	start_detached(&daemon, "boot", "{\"argv\":[\"cat\"],\"stdin_stream\":true}", id, &keeps);
	create_command(&daemon, id, "{\"argv\":[\"started-sleep\"]}", &killed);
	assert_int_equal(attach(&daemon, id, &killed, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	close_stream(&stream);
	call_sandbox(&daemon, "POST", id, "/pause", "", &answer);
	answer_finish(&answer);
	restart(&daemon);
	await_state(&daemon, id, "paused");
	expect_field(&daemon, id, &keeps, "state", "\"running\"");
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
	start_detached(&daemon, "boot", "{\"argv\":[\"started-sleep\"],\"timeout_ms\":60000}", id, &command);
	kill_daemon(&daemon);
	change_journal(&daemon, "UPDATE commands SET started_ms = started_ms - 90000");
	daemon_launch(&daemon, "boot", pool_of_two, true);
	expect_field(&daemon, id, &command, "state", "\"running\"");
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
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
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
		cmocka_unit_test(test_running_command_goes_on),
		cmocka_unit_test(test_results_are_known),
		cmocka_unit_test(test_output_of_what_had_ended),
		cmocka_unit_test(test_what_ends_without_a_daemon),
		cmocka_unit_test(test_output_that_was_lost),
		cmocka_unit_test(test_created_command_is_known),
		cmocka_unit_test(test_stdin_goes_on),
		cmocka_unit_test(test_stdin_of_the_request),
		cmocka_unit_test(test_guests_that_do_not_know_it),
		cmocka_unit_test(test_vm_that_ended_with_the_daemon),
		cmocka_unit_test(test_on_detach_kill),
		cmocka_unit_test(test_paused_sandbox),
		cmocka_unit_test(test_deadline_goes_on),
		cmocka_unit_test(test_operations_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
