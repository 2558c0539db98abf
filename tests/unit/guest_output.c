/* SPDX-License-Identifier: Apache-2.0 */
/* What goes in and out of a command: order, backpressure, readers that come and go. */
#include "guest_fixture.h"

/* The n-th byte of the stream that the tests send. */
static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset ^ (offset >> 8) * 31 ^ (offset >> 16));
}

struct transfer {
	uint64_t total, sent, credit, received;
	bool eof_sent;
};

static void send_some(struct fixture *f, struct client *client, struct transfer *t)
{
	static uint8_t bytes[AGENT_DATA_MAX];

	while (t->sent < t->total && t->credit > 0) {
		size_t length = sizeof(bytes);

		length = t->credit < length ? (size_t)t->credit : length;
		length = t->total - t->sent < length ? (size_t)(t->total - t->sent) : length;
		for (size_t i = 0; i < length; i++)
			bytes[i] = byte_at(t->sent + i);
		client_send(f, client, AGENT_STDIN, bytes, length);
		t->sent += length;
		t->credit -= length;
	}
	if (t->sent == t->total && !t->eof_sent) {
		client_send(f, client, AGENT_STDIN_EOF, NULL, 0);
		t->eof_sent = true;
	}
}

static void check_bytes(struct transfer *t, const struct frame *frame)
{
	struct agent_output output;

	memcpy(&output, frame->payload, sizeof(output));
	assert_in_range(frame->length, sizeof(output) + 1, sizeof(output) + AGENT_DATA_MAX);
	assert_int_equal(output.offset, t->received);
	for (size_t i = sizeof(output); i < frame->length; i++)
		if (frame->payload[i] != byte_at(t->received++))
			fail_msg("byte %llu differs", (unsigned long long)t->received - 1);
}

/* stdin → cat → stdout. pause_every: after so many bytes the reader does nothing for some rounds of the loop.
 */
static struct agent_exit transfer(struct fixture *f, uint64_t total, uint64_t pause_every)
{
	struct command command = {.argv = ARGV("/bin/cat"), .flags = AGENT_NEW_STDIN};
	struct transfer t = {.total = total};
	uint64_t next_pause = pause_every;
	struct agent_started started;
	struct agent_credit credit;
	struct agent_exit exit;
	struct client client;
	struct frame frame;

	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect(f, &client, AGENT_STARTED, &frame);
	memcpy(&started, frame.payload, sizeof(started));
	assert_int_equal(started.stdin_credit, AGENT_STDIN_WINDOW);
	assert_int_equal(started.stdin_offset, 0);
	t.credit = started.stdin_credit;
	for (;;) {
		send_some(f, &client, &t);
		assert_int_equal(client_next(f, &client, &frame), 1);
		if (frame.type == AGENT_STDIN_CREDIT) {
			memcpy(&credit, frame.payload, sizeof(credit));
			assert_in_range(credit.bytes, 1, AGENT_STDIN_WINDOW);
			t.credit += credit.bytes;
			assert_in_range(t.credit, 1, AGENT_STDIN_WINDOW);
		} else if (frame.type == AGENT_STDOUT) {
			check_bytes(&t, &frame);
		} else {
			break;
		}
		if (pause_every && t.received >= next_pause) {
			next_pause += pause_every;
			for (int i = 0; i < 20; i++)
				loop_turn(f->loop, 1);
		}
	}
	assert_int_equal(frame.type, AGENT_EXIT);
	memcpy(&exit, frame.payload, sizeof(exit));
	assert_int_equal(t.received, total);
	client_expect_end(f, &client);
	client_close(&client);
	return exit;
}

static void bytes_come_back_identical(void **state)
{
	struct fixture *f = *state;
	struct agent_exit exit;

	give_identity(f);
	exit = transfer(f, 24 << 20, 0);
	assert_int_equal(exit.kind, AGENT_EXITED);
	assert_int_equal(exit.code, 0);
	assert_int_equal(exit.stdout_bytes, 24 << 20);
}

static void a_slow_reader_loses_nothing(void **state)
{
	struct fixture *f = *state;
	struct agent_exit exit;

	give_identity(f);
	exit = transfer(f, 3 << 20, 200000);
	assert_int_equal(exit.kind, AGENT_EXITED);
	assert_int_equal(exit.stdout_bytes, 3 << 20);
}

static void nothing_in_nothing_out(void **state)
{
	struct fixture *f = *state;

	give_identity(f);
	assert_int_equal(transfer(f, 0, 0).stdout_bytes, 0);
}

static void a_slow_reader_blocks_only_itself(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = ARGV("/usr/bin/head", "-c", "8388608", "/dev/zero"), .id = 1};
	struct outcome slow_outcome = {0}, outcome;
	struct client slow;

	give_identity(f);
	client_open(f, &slow);
	client_new(f, &slow, &command);
	for (uint64_t id = 2; id < 12; id++) {
		command = (struct command){.argv = SHELL("echo x"), .id = id};
		run_command(f, &command, &outcome);
		assert_int_equal(outcome.exit.kind, AGENT_EXITED);
		assert_string_equal(outcome.out, "x\n");
	}
	client_finish(f, &slow, &slow_outcome);
	assert_int_equal(slow_outcome.exit.kind, AGENT_EXITED);
	assert_int_equal(slow_outcome.out_total, 8388608);
}

static void two_outputs_at_once(void **state)
{
	struct fixture *f = *state;
	struct command command = {
		.argv = SHELL("head -c 2000000 /dev/zero & head -c 3000000 /dev/zero >&2; wait")};
	struct outcome outcome;

	give_identity(f);
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	assert_int_equal(outcome.out_total, 2000000);
	assert_int_equal(outcome.err_total, 3000000);
}

static void may_close_its_outputs_early(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("echo x; exec >&- 2>&-; sleep 0.1; exit 4")};
	struct outcome outcome;

	give_identity(f);
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	assert_int_equal(outcome.exit.code, 4);
	assert_string_equal(outcome.out, "x\n");
}

static void a_background_child_does_not_hold_the_exit(void **state)
{
	struct fixture *f = *state;
	struct command command = {
		.argv = SHELL("d=$(mktemp -d); (echo y; : >$d/begun; while :; do echo y; done) & "
			      "until [ -e $d/begun ]; do sleep 0.01; done; rm -r $d; echo last >&2")};
	uint64_t begin = test_now_ms();
	struct outcome outcome;

	give_identity(f);
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	assert_string_equal(outcome.err, "last\n");
	assert_true(outcome.out_total > 0);
	command = (struct command){.argv = SHELL("sleep 1000 & exit 5"), .id = 2};
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.code, 5);
	assert_in_range(test_now_ms() - begin, 0, WAIT_MS / 2);
}

/* A child that reads none of its stdin, and one that is gone: neither stalls nor fails the host. */
static void stdin_that_nobody_reads(void **state)
{
	static uint8_t zeros[AGENT_DATA_MAX];
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("exec <&-; echo; sleep 1000"), .flags = AGENT_NEW_STDIN};
	struct agent_credit credit;
	struct outcome outcome = {.out_total = 1};
	struct client client;
	struct frame frame;
	uint64_t credits = AGENT_STDIN_WINDOW;

	give_identity(f);
	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect(f, &client, AGENT_STARTED, &frame);
	client_expect(f, &client, AGENT_STDOUT, &frame);
	for (int i = 0; i < 32; i++) {
		while (credits < sizeof(zeros)) {
			client_expect(f, &client, AGENT_STDIN_CREDIT, &frame);
			memcpy(&credit, frame.payload, sizeof(credit));
			credits += credit.bytes;
		}
		client_send(f, &client, AGENT_STDIN, zeros, sizeof(zeros));
		credits -= sizeof(zeros);
	}
	client_send(f, &client, AGENT_KILL, NULL, 0);
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_KILLED);
	/* true may have ended before the bytes come, or not: the host sees one EXIT either way. */
	command = (struct command){.argv = ARGV("/bin/true"), .flags = AGENT_NEW_STDIN, .id = 2};
	outcome = (struct outcome){0};
	client_open(f, &client);
	client_new(f, &client, &command);
	for (int i = 0; i < 4; i++)
		client_send(f, &client, AGENT_STDIN, zeros, sizeof(zeros));
	client_send(f, &client, AGENT_STDIN_EOF, NULL, 0);
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	assert_int_equal(outcome.exit.code, 0);
}

/* ---- ATTACH ---- */

static void client_attach(struct fixture *f, struct client *client, uint64_t id, uint64_t out, uint64_t err)
{
	struct agent_attach attach = {.session = id, .stdout_offset = out, .stderr_offset = err};

	client_open(f, client);
	client_send(f, client, AGENT_ATTACH, &attach, sizeof(attach));
}

static void an_ended_session_can_be_read_again(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("printf 0123456789; printf abc >&2; exit 9"), .id = 77};
	static const uint64_t offsets[][2] = {{0, 0}, {3, 1}, {10, 3}, {9, 2}};
	struct outcome outcome;
	struct client client;

	give_identity(f);
	run_command(f, &command, &outcome);
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		outcome = (struct outcome){.out_total = offsets[i][0], .err_total = offsets[i][1]};
		client_attach(f, &client, 77, offsets[i][0], offsets[i][1]);
		client_finish(f, &client, &outcome);
		assert_true(outcome.started);
		assert_string_equal(outcome.out, &"0123456789"[offsets[i][0]]);
		assert_string_equal(outcome.err, &"abc"[offsets[i][1]]);
		assert_int_equal(outcome.exit.kind, AGENT_EXITED);
		assert_int_equal(outcome.exit.code, 9);
	}
	client_attach(f, &client, 77, 11, 0);
	client_expect_error(f, &client, EINVAL, "ATTACH: output at this offset is not yet written");
	client_close(&client);
	client_attach(f, &client, 77, 0, 4);
	client_expect_error(f, &client, EINVAL, "ATTACH: output at this offset is not yet written");
	client_close(&client);
	client_attach(f, &client, 78, 0, 0);
	client_expect_error(f, &client, ENOENT, "ATTACH: no such session");
	client_close(&client);
	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect_error(f, &client, EEXIST, "NEW: a session with this id is held");
	client_close(&client);
}

static void one_that_failed_to_start_too(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = ARGV("/does/not/exist"), .id = 5};
	struct outcome outcome;
	struct client client;

	give_identity(f);
	run_command(f, &command, &outcome);
	outcome = (struct outcome){0};
	client_attach(f, &client, 5, 0, 0);
	client_finish(f, &client, &outcome);
	assert_false(outcome.started);
	assert_int_equal(outcome.exit.kind, AGENT_FAILED_TO_START);
	assert_int_equal(outcome.exit.code, ENOENT);
}

/* Waits, without a reader, until a session has written and ended. */
static void wait_until_over(struct fixture *f, pid_t pid)
{
	uint64_t end = test_now_ms() + WAIT_MS;

	while (kill(pid, 0) == 0 && test_now_ms() < end)
		loop_turn(f->loop, TURN_MS);
	assert_int_equal(kill(pid, 0), -1);
}

static pid_t start_and_leave(struct fixture *f, const struct command *command)
{
	struct agent_started started;
	struct client client;
	struct frame frame;

	client_open(f, &client);
	client_new(f, &client, command);
	client_expect(f, &client, AGENT_STARTED, &frame);
	memcpy(&started, frame.payload, sizeof(started));
	assert_int_equal(started.session, command->id);
	client_close(&client);
	return (pid_t)started.pid;
}

static void output_without_a_reader_is_bounded_and_told(void **state)
{
	struct fixture *f = *state;
	/* Closing the stream comes first: the shell waits, so that no output is lost in it. */
	struct command command = {
		.argv = SHELL("sleep 0.1; head -c 1000000 /dev/zero | tr '\\0' a; printf end"), .id = 3};
	struct agent_output output;
	struct outcome outcome = {0};
	struct client client;
	struct frame frame;

	give_identity(f);
	wait_until_over(f, start_and_leave(f, &command));
	client_attach(f, &client, 3, 0, 0);
	client_expect_error(f, &client, ENODATA, "ATTACH: output at this offset is no longer held");
	client_close(&client);
	client_attach(f, &client, 3, 1000003 - AGENT_OUTPUT_BUFFER - 1, 0);
	client_expect_error(f, &client, ENODATA, "ATTACH: output at this offset is no longer held");
	client_close(&client);
	client_attach(f, &client, 3, 1000003 - AGENT_OUTPUT_BUFFER, 0);
	outcome.out_total = 1000003 - AGENT_OUTPUT_BUFFER;
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.exit.stdout_bytes, 1000003);
	client_attach(f, &client, 3, AGENT_OFFSET_OLDEST, AGENT_OFFSET_OLDEST);
	client_expect(f, &client, AGENT_STARTED, &frame);
	client_expect(f, &client, AGENT_STDOUT, &frame);
	memcpy(&output, frame.payload, sizeof(output));
	assert_int_equal(output.offset, 1000003 - AGENT_OUTPUT_BUFFER);
	assert_int_equal(frame.payload[sizeof(output)], 'a');
	client_close(&client);
	client_attach(f, &client, 3, 1000000, 0);
	outcome = (struct outcome){.out_total = 1000000};
	client_finish(f, &client, &outcome);
	assert_string_equal(outcome.out, "end");
}

static void a_session_outlives_its_stream(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = ARGV("/bin/cat"), .flags = AGENT_NEW_STDIN, .id = 4};
	struct agent_started started;
	struct outcome outcome = {0};
	struct client client, other;
	struct frame frame;

	give_identity(f);
	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect(f, &client, AGENT_STARTED, &frame);
	client_send(f, &client, AGENT_STDIN, "first ", 6);
	client_expect(f, &client, AGENT_STDOUT, &frame);
	/* A second reader takes over; the first one's stream ends. */
	client_attach(f, &other, 4, 0, 0);
	client_expect(f, &other, AGENT_STARTED, &frame);
	memcpy(&started, frame.payload, sizeof(started));
	assert_int_equal(started.stdin_offset, 6);
	assert_int_equal(started.stdin_credit, AGENT_STDIN_WINDOW);
	client_expect_end(f, &client);
	client_close(&client);
	client_send(f, &other, AGENT_STDIN, "second", 6);
	client_send(f, &other, AGENT_STDIN_EOF, NULL, 0);
	client_finish(f, &other, &outcome);
	assert_string_equal(outcome.out, "first second");
	client_attach(f, &other, 4, 12, 0);
	client_expect(f, &other, AGENT_STARTED, &frame);
	memcpy(&started, frame.payload, sizeof(started));
	assert_int_equal(started.stdin_offset, 12);
	assert_int_equal(started.stdin_credit, 0);
	client_expect(f, &other, AGENT_EXIT, &frame);
	client_close(&other);
}

/* While nobody takes the output, a full ring holds the command, and a reader that leaves lets it go on. */
static void a_reader_that_leaves_unblocks_it(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("exec head -c 4000000 /dev/zero"), .id = 6};
	struct agent_started started;
	struct outcome outcome = {.out_total = 4000000};
	struct client client;
	struct frame frame;

	give_identity(f);
	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect(f, &client, AGENT_STARTED, &frame);
	memcpy(&started, frame.payload, sizeof(started));
	for (int i = 0; i < 50; i++)
		loop_turn(f->loop, 10);
	assert_int_equal(kill((pid_t)started.pid, 0), 0);
	client_close(&client);
	wait_until_over(f, (pid_t)started.pid);
	client_attach(f, &client, 6, 4000000, 0);
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(bytes_come_back_identical),
		CASE(a_slow_reader_loses_nothing),
		CASE(nothing_in_nothing_out),
		CASE(a_slow_reader_blocks_only_itself),
		CASE(two_outputs_at_once),
		CASE(may_close_its_outputs_early),
		CASE(a_background_child_does_not_hold_the_exit),
		CASE(stdin_that_nobody_reads),
		CASE(an_ended_session_can_be_read_again),
		CASE(one_that_failed_to_start_too),
		CASE(output_without_a_reader_is_bounded_and_told),
		CASE(a_session_outlives_its_stream),
		CASE(a_reader_that_leaves_unblocks_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
