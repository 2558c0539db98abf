/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to commands of a whole daemon's sandboxes: tokens, offsets, readers slow and gone. */
#include "tests/unit/hostctl_attach_fixture.h"

#include "host-ctl/sandbox/command_token.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

/* The stream that a sandbox has from its start on; each later one is asked for. */
static void use_first_stream(const struct daemon *daemon, const char *id)
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/run", "{\"argv\":[\"exit\",\"0\"]}", &answer);
	answer_finish(&answer);
}

static void test_attach_starts_it(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command;
	struct stream stream;
	char id[32], rest[SANDBOX_PATH_MAX];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	create_command(&daemon, id, "{\"argv\":[\"both\"],\"tty\":{\"rows\":24,\"cols\":80}}", &command);
	snprintf(rest, sizeof rest, "/commands/%s", command.id);
	call_sandbox(&daemon, "GET", id, rest, NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"created\"");
	answer_finish(&answer);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect_output(&stream, AGENT_STDOUT, 0, "out\n");
	expect_output(&stream, AGENT_STDERR, 0, "err\n");
	expect_exit(&stream, AGENT_EXITED, 0);
	/* Again, as often as it is asked for; and from an offset. */
	renew_token(&daemon, id, &command);
	assert_int_equal(
		attach(&daemon, id, &command, ",\"stdout_offset\":2,\"stderr_offset\":4", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect_output(&stream, AGENT_STDOUT, 2, "t\n");
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

static void test_tokens(void **state)
{
	struct command_token token = {.used = false}, other = {.used = false};
	struct daemon daemon;
	struct command first, second, mixed;
	struct stream stream;
	char id[32], message[256];

	(void)state;
	/* Alone: time cannot be turned in a daemon. */
	assert_int_equal(command_token_check(&token, ""), TOKEN_WRONG);
	assert_int_equal(command_token_make(&token, 60000), 0);
	assert_int_equal(command_token_make(&other, 1), 0);
	assert_int_equal(command_token_check(&token, token.text), TOKEN_GOOD);
	assert_int_equal(command_token_check(&token, other.text), TOKEN_WRONG);
	assert_int_equal(command_token_check(&token, ""), TOKEN_WRONG);
	sleep_ms(5);
	assert_int_equal(command_token_check(&other, other.text), TOKEN_EXPIRED);
	token.used = true;
	assert_int_equal(command_token_check(&token, token.text), TOKEN_USED);
	other = token;
	assert_int_equal(command_token_make(&token, 60000), 0);
	assert_int_equal(command_token_check(&token, other.text), TOKEN_REPLACED);

	start_sandbox(&daemon, "boot", pool_of_one, id);
	create_command(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &first);
	create_command(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &second);
	mixed = first;
	memcpy(mixed.token, second.token, sizeof mixed.token);
	denial(id, first.id, "is that of another command", message, sizeof message);
	expect_no_attach(&daemon, id, &mixed, "", 403, "denied", message);
	memset(mixed.token, 'a', 64);
	denial(id, first.id, "is not this command's", message, sizeof message);
	expect_no_attach(&daemon, id, &mixed, "", 403, "denied", message);
	/* None of it has cost the command its start. */
	assert_int_equal(attach(&daemon, id, &first, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect_exit(&stream, AGENT_EXITED, 0);
	denial(id, first.id, "was used before", message, sizeof message);
	expect_no_attach(&daemon, id, &first, "", 403, "denied", message);
	mixed = second;
	renew_token(&daemon, id, &second);
	denial(id, second.id, "was replaced by one that was made since, which is good", message,
		sizeof message);
	expect_no_attach(&daemon, id, &mixed, "", 403, "denied", message);
	daemon_stop(&daemon);
}

static void test_attachments_that_are_refused(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command;
	char id[32], path[SANDBOX_PATH_MAX];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	create_command(&daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &command);
	snprintf(path, sizeof path, "/commands/%s/attach", command.id);
	call_sandbox(&daemon, "POST", id, path, "{}", &answer);
	expect_error_answer(
		&answer, 400, "invalid", "attach needs the upgraded form (Upgrade: tinderbox-frames)");
	expect_no_attach(
		&daemon, id, &command, ",\"x\":1", 400, "invalid", "unknown field \"x\" in the request");
	expect_no_attach(&daemon, id, &command, ",\"stdout_offset\":1", 400, "invalid",
		"stdout_offset is beyond the 0 bytes that were written");
	expect_no_attach(&daemon, id, &command, ",\"stderr_offset\":-1", 400, "invalid",
		"stderr_offset is not a whole number");
	daemon_stop(&daemon);
}

/* It goes on without a client; the next one gets on where that was, stdin too. */
static void test_reattach(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	begin_dialogue(&daemon, id, &command, &stream);
	expect(&stream, AGENT_STDIN_CREDIT);
	close_stream(&stream);
	take_up_dialogue(&daemon, id, &command, 3, &stream);
	end_dialogue(&stream, 5, " second");
	daemon_stop(&daemon);
}

static void test_the_last_one_wins(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream first, second;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	start_attached(
		&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"kill\"}", &command, &first);
	renew_token(&daemon, id, &command);
	assert_int_equal(attach(&daemon, id, &command, "", &second), 101);
	expect_error(&first, "conflict", "another client attached to the command");
	expect(&second, AGENT_STARTED);
	send_frame(&second, AGENT_KILL, NULL, 0);
	expect_exit(&second, AGENT_KILLED, 0);
	daemon_stop(&daemon);
}

/* Waits until it runs, has written, and for a while has written no more; how much that is. */
static json_int_t await_standing(const struct daemon *daemon, const char *id, const char *command)
{
	enum { STANDS_MS = 300 };
	json_int_t written = 0;
	int stood = 0;

	await_field(daemon, id, command, "state", "\"running\"");
	for (int waited = 0; waited < WAIT_MS && stood < STANDS_MS; waited += POLL_MS) {
		struct answer answer;
		json_int_t now;

		get_command(daemon, id, command, &answer);
		assert_string_equal(member(&answer, "state"), "\"running\"");
		now = json_integer_value(json_object_get(json_object_get(answer.json, "stdout"), "bytes"));
		answer_finish(&answer);
		stood = now > 0 && now == written ? stood + POLL_MS : 0;
		written = now;
		sleep_ms(POLL_MS);
	}
	assert_true(stood >= STANDS_MS);
	return written;
}

/* It holds up its own command and nothing else, and what it reads at last is all of it. */
static void test_a_slow_reader(void **state)
{
	enum { TOTAL = 8 * 1024 * 1024 };
	struct daemon daemon;
	struct answer answer;
	struct command command;
	struct stream stream;
	uint64_t got = 0;
	char id[32], rest[SANDBOX_PATH_MAX];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	create_command(&daemon, id, "{\"argv\":[\"flood\",\"8388608\"]}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	assert_true(await_standing(&daemon, id, command.id) < TOTAL / 4);
	call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"exit\",\"0\"]}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	expect(&stream, AGENT_STARTED);
	while (got < TOTAL) {
		struct agent_output output;

		expect(&stream, AGENT_STDOUT);
		memcpy(&output, stream.frame.payload, sizeof output);
		assert_true(output.offset == got);
		for (size_t i = sizeof output; i < stream.frame.length; i++, got++)
			assert_int_equal(stream.frame.payload[i], 'a' + (int)(got % (32 * 1024) % 26));
	}
	expect_exit(&stream, AGENT_EXITED, 0);
	/* Head and tail are kept; the middle is not to be had any more. */
	renew_token(&daemon, id, &command);
	expect_no_attach(&daemon, id, &command, ",\"stdout_offset\":1000000", 409, "conflict",
		"output at stdout_offset 1000000 is no longer held: all from 7864320 on is");
	snprintf(rest, sizeof rest, "/commands/%s/output?offset=1000000", command.id);
	expect_refusal_of(&daemon, "GET", id, rest, NULL, 409, "conflict",
		"output at offset 1000000 is no longer held: all from 7864320 on is");
	assert_int_equal(attach(&daemon, id, &command, ",\"stdout_offset\":8388600", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect(&stream, AGENT_STDOUT);
	assert_int_equal(stream.frame.length, 8 + 8);
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

/* Nobody reads: all of it is taken from the guest, head and tail are kept. */
static void test_a_reader_that_leaves_a_flood(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command;
	struct stream stream;
	char id[32], rest[SANDBOX_PATH_MAX];
	bool ended = false;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	create_command(&daemon, id, "{\"argv\":[\"flood\",\"8388608\"]}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	await_standing(&daemon, id, command.id);
	close_stream(&stream);
	snprintf(rest, sizeof rest, "/commands/%s", command.id);
	for (int waited = 0; !ended && waited < WAIT_MS; waited += POLL_MS) {
		call_sandbox(&daemon, "GET", id, rest, NULL, &answer);
		ended = !strcmp(member(&answer, "state"), "\"ended\"");
		if (ended)
			assert_string_equal(member(&answer, "stdout"),
				"{\"bytes\":8388608,\"held\":1048576,\"lost\":7340032,\"oldest\":7864320}");
		answer_finish(&answer);
		sleep_ms(POLL_MS);
	}
	assert_true(ended);
	daemon_stop(&daemon);
}

/* on_detach kill, in each phase: while it is connected, while it starts, while it runs. */
static void test_clients_that_leave(void **state)
{
	static const struct {
		const char *script, *argv;
		bool started;
	} cases[] = {
		{"boot later-nothing", "started-sleep", false},
		{"boot", "started-sleep", true},
		{"boot", "cat", true},
	};
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32], body[128];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		start_sandbox(&daemon, cases[i].script, pool_of_one, id);
		/* The first takes the stream that is open already. */
		use_first_stream(&daemon, id);
		snprintf(body, sizeof body,
			"{\"argv\":[\"%s\"],\"on_detach\":\"kill\",\"stdin_stream\":true}", cases[i].argv);
		create_command(&daemon, id, body, &command);
		assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
		if (cases[i].started)
			expect(&stream, AGENT_STARTED);
		close_stream(&stream);
		await_result(&daemon, id, command.id, "{\"kind\":\"killed\"}");
		await_state(&daemon, id, "ready");
		daemon_stop(&daemon);
	}
}

/* A KILL before there is a stream to the agent ends it too; what it has written before waits. */
static void test_frames_before_it_runs(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot later-nothing", pool_of_one, id);
	use_first_stream(&daemon, id);
	create_command(&daemon, id, "{\"argv\":[\"cat\"],\"stdin_stream\":true}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	send_frame(&stream, AGENT_KILL, NULL, 0);
	expect_exit(&stream, AGENT_KILLED, 0);
	daemon_stop(&daemon);
}

static void test_clients_that_break_the_protocol(void **state)
{
	static const struct {
		int type;
		size_t length;
		const char *fault;
	} cases[] = {
		{AGENT_STDOUT, 9, "a frame of a type that a client does not send"},
		{AGENT_SIGNAL, 8, "SIGNAL with a number out of range"},
		{AGENT_STDIN, 1, "STDIN after the end of stdin, or in a run without stdin_stream"},
		{AGENT_RESIZE, 1, "RESIZE of a wrong length"},
	};
	static const uint8_t zeros[16];
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32], message[256];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		start_attached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"kill\"}", &command,
			&stream);
		send_frame(&stream, cases[i].type, zeros, cases[i].length);
		snprintf(message, sizeof message, "the client broke the frame protocol: %s", cases[i].fault);
		expect_error(&stream, "invalid", message);
		await_result(&daemon, id, command.id, "{\"kind\":\"killed\"}");
	}
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
}

/* The sandbox ends under an attached command. */
static void test_sandboxes_that_end(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32], message[256];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	start_attached(&daemon, id, "{\"argv\":[\"started-sleep\"]}", &command, &stream);
	delete_sandbox(&daemon, id);
	snprintf(message, sizeof message, "no result: sandbox %s has ended: it was deleted", id);
	expect_error(&stream, "incomplete", message);
	create_sandbox(&daemon, "{}", id);
	start_attached(&daemon, id, "{\"argv\":[\"started-sleep\"]}", &command, &stream);
	assert_int_equal(kill(daemon.pid, SIGTERM), 0);
	/* It has had an effect: nobody is to repeat it unasked. */
	snprintf(message, sizeof message,
		"no result: the daemon is stopping, and sandbox %s ends with it; the command may have run",
		id);
	expect_error(&stream, "incomplete", message);
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
	start_sandbox(&daemon, "boot", pool_of_one, id);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attach_starts_it),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_attachments_that_are_refused),
		cmocka_unit_test(test_reattach),
		cmocka_unit_test(test_the_last_one_wins),
		cmocka_unit_test(test_a_slow_reader),
		cmocka_unit_test(test_a_reader_that_leaves_a_flood),
		cmocka_unit_test(test_clients_that_leave),
		cmocka_unit_test(test_frames_before_it_runs),
		cmocka_unit_test(test_clients_that_break_the_protocol),
		cmocka_unit_test(test_sandboxes_that_end),
		cmocka_unit_test(test_resize),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
