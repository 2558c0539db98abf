/* SPDX-License-Identifier: Apache-2.0 */
/* The output of commands across the end of the daemon: each byte once, or said to be lost. */
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
	start_sandbox(&daemon, "boot", pool_of_two, id);
	start_attached(&daemon, id, "{\"argv\":[\"count\",\"100000\",\"2\"]}", &command, &stream);
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
		expect_field(&daemon, id, command.id, "state", "\"running\"");
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
	start_attached(&daemon, id, "{\"argv\":[\"exit\",\"4\"]}", &command, &stream);
	expect_exit(&stream, AGENT_EXITED, 4);
	daemon_stop(&daemon);
}

/* All of stdout, once it is to be had; the answer is the caller's. */
static void read_output(const struct daemon *daemon, const char *id, const char *command, const char *query,
	struct answer *answer)
{
	char rest[64];

	snprintf(rest, sizeof rest, "/output?wait=true%s", query);
	call_command(daemon, "GET", id, command, rest, NULL, answer);
	assert_int_equal(answer->status, 200);
}

/* Its result was known, its output is the guest's to give; any number of daemons later. */
static void test_output_of_what_had_ended(void **state)
{
	static const char whole[] = "{\"bytes\":4,\"held\":4,\"lost\":0,\"oldest\":0}";
	struct daemon daemon;
	struct answer answer;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_left(&daemon, "boot", "{\"argv\":[\"both\"]}", id, &command);
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	flush_rows(&daemon, id);
	for (int kills = 0; kills < 2; kills++) {
		restart(&daemon);
		read_output(&daemon, id, command.id, "", &answer);
		assert_string_equal(answer.body,
			"{\"data\":\"out\\n\",\"offset\":0,\"next_offset\":4,\"bytes\":4,\"ended\":true}\n");
		answer_finish(&answer);
		read_output(&daemon, id, command.id, "&stream=stderr&offset=2", &answer);
		assert_string_equal(json_string_value(json_object_get(answer.json, "data")), "r\n");
		answer_finish(&answer);
		expect_field(&daemon, id, command.id, "stdout", whole);
		expect_field(&daemon, id, command.id, "stderr", whole);
	}
	renew_token(&daemon, id, &command);
	assert_int_equal(attach(&daemon, id, &command, ",\"stdout_offset\":1", &stream), 101);
	expect(&stream, AGENT_STARTED);
	expect_output(&stream, AGENT_STDOUT, 1, "ut\n");
	expect_output(&stream, AGENT_STDERR, 0, "err\n");
	expect_exit(&stream, AGENT_EXITED, 0);
	/* It takes no part of the sandbox's idleness, nor of what runs. */
	assert_int_equal(metric(&daemon, "tinderbox_commands_running "), 0);
	daemon_stop(&daemon);
}

/* More than a guest holds, and less than that is asked to be kept; and each of many. */
static void test_how_much_is_fetched(void **state)
{
	enum { MANY = 40, WRITTEN = 300000 };
	struct daemon daemon;
	struct answer answer;
	char id[32], large[32], little[32], many[MANY][32], body[64];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_two, id);
	run_in(&daemon, id, "{\"argv\":[\"flood\",\"300000\"]}", &answer);
	snprintf(large, sizeof large, "%s", json_string_value(json_object_get(answer.json, "command")));
	answer_finish(&answer);
	run_in(&daemon, id, "{\"argv\":[\"flood\",\"300000\"],\"output_max\":4096}", &answer);
	snprintf(little, sizeof little, "%s", json_string_value(json_object_get(answer.json, "command")));
	answer_finish(&answer);
	for (int i = 0; i < MANY; i++) {
		snprintf(body, sizeof body, "{\"argv\":[\"echo\",\"%d\"]}", i);
		run_in(&daemon, id, body, &answer);
		snprintf(many[i], sizeof many[i], "%s",
			json_string_value(json_object_get(answer.json, "command")));
		answer_finish(&answer);
	}
	flush_rows(&daemon, id);
	restart(&daemon);
	for (int i = 0; i < MANY; i++) {
		read_output(&daemon, id, many[i], "", &answer);
		assert_int_equal(atoi(json_string_value(json_object_get(answer.json, "data"))), i);
		answer_finish(&answer);
	}
	snprintf(body, sizeof body, "{\"bytes\":%d,\"held\":%d,\"lost\":%d,\"oldest\":%d}", WRITTEN, HELD,
		WRITTEN - HELD, WRITTEN - HELD);
	await_field(&daemon, id, large, "stdout", body);
	await_field(&daemon, id, little, "stdout",
		"{\"bytes\":300000,\"held\":4096,\"lost\":295904,\"oldest\":297952}");
	daemon_stop(&daemon);
}

/* A guest that does not know the session, says nothing, or breaks the protocol; and one that is gone. */
static void test_output_that_is_lost(void **state)
{
	static const struct {
		const char *script, *reason;
	} cases[] = {
		{"boot attach-gone", NULL},
		{"boot attach-nothing", NULL},
		{"boot attach-garbage", "its guest broke the agent protocol: a frame before STARTED"},
	};
	static const char lost[] = "{\"bytes\":4,\"held\":0,\"lost\":4,\"oldest\":4}";
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32], rest[SANDBOX_PATH_MAX], vm[32];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		start_left(&daemon, cases[i].script, "{\"argv\":[\"both\"]}", id, &command);
		await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
		flush_rows(&daemon, id);
		restart(&daemon);
		await_field(&daemon, id, command.id, "stdout", lost);
		expect_field(&daemon, id, command.id, "stderr", lost);
		await_state(&daemon, id, cases[i].reason ? "failed" : "ready");
		if (cases[i].reason)
			expect_reason(&daemon, id, cases[i].reason);
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
	start_left(&daemon, "boot", "{\"argv\":[\"both\"]}", id, &command);
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	flush_rows(&daemon, id);
	vm_of(&daemon, id, vm);
	kill((pid_t)pid_of_vm(&daemon, vm), SIGKILL);
	await_state(&daemon, id, "failed");
	restart(&daemon);
	expect_field(&daemon, id, command.id, "stdout", lost);
	daemon_stop(&daemon);
}

/* What stands gives nothing; what is still to come is not lost, and who waits for it gets it. */
static void test_fetched_after_a_pause(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command;
	char id[32], path[SANDBOX_PATH_MAX], rest[64], message[128];
	int fd;

	(void)state;
	start_left(&daemon, "boot", "{\"argv\":[\"both\"]}", id, &command);
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	flush_rows(&daemon, id);
	ask_sandbox(&daemon, id, "pause", "paused");
	restart(&daemon);
	await_state(&daemon, id, "paused");
	expect_field(&daemon, id, command.id, "state", "\"ended\"");
	expect_field(&daemon, id, command.id, "stdout", "{\"bytes\":4,\"held\":0,\"lost\":0,\"oldest\":4}");
	snprintf(message, sizeof message,
		"the output of command %s is still in its guest: try again when its sandbox is ready",
		command.id);
	snprintf(rest, sizeof rest, "/commands/%s/output", command.id);
	expect_refusal_of(&daemon, "GET", id, rest, NULL, 503, "not_ready", message);
	renew_token(&daemon, id, &command);
	expect_no_attach(&daemon, id, &command, "", 503, "not_ready", message);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/output?wait=true", id, command.id);
	fd = client_open(&daemon);
	client_request(fd, "GET", path, "", NULL);
	ask_sandbox(&daemon, id, "resume", "ready");
	client_answer(fd, &answer);
	close(fd);
	assert_string_equal(member(&answer, "data"), "\"out\\n\"");
	answer_finish(&answer);
	/* One that is removed before it came is nobody's loss. */
	ask_sandbox(&daemon, id, "pause", "paused");
	restart(&daemon);
	await_state(&daemon, id, "paused");
	call_command(&daemon, "DELETE", id, command.id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	ask_sandbox(&daemon, id, "resume", "ready");
	delete_sandbox(&daemon, id);
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
	start_left(&daemon, "boot", "{\"argv\":[\"count\",\"40\",\"5\"]}", id, &command);
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
	start_sandbox(&daemon, "boot", pool_of_two, id);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_running_command_goes_on),
		cmocka_unit_test(test_output_of_what_had_ended),
		cmocka_unit_test(test_how_much_is_fetched),
		cmocka_unit_test(test_output_that_is_lost),
		cmocka_unit_test(test_fetched_after_a_pause),
		cmocka_unit_test(test_what_ends_without_a_daemon),
		cmocka_unit_test(test_output_that_was_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
