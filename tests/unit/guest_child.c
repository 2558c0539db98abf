/* SPDX-License-Identifier: Apache-2.0 */
/* What the clone of a guest with commands, as a fork's child is one, makes of these. */
#include "guest_fixture.h"

enum { A_WHILE_MS = 200, DEADLINE_MS = 400, MUCH = 4 * AGENT_OUTPUT_BUFFER };

static pid_t start(struct fixture *f, struct client *client, const struct command *command)
{
	struct agent_started started;
	struct frame frame;

	client_open(f, client);
	client_new(f, client, command);
	client_expect(f, client, AGENT_STARTED, &frame);
	memcpy(&started, frame.payload, sizeof(started));
	return (pid_t)started.pid;
}

/* It has ended, and the agent has reaped it. */
static void await_end(struct fixture *f, pid_t pid)
{
	uint64_t end = test_now_ms() + WAIT_MS;

	while (kill(pid, 0) == 0) {
		assert_true(test_now_ms() < end);
		loop_turn(f->loop, TURN_MS);
	}
}

static void expect_no_session(struct fixture *f, uint64_t id)
{
	struct agent_attach attach = {.session = id};
	struct client client;

	client_open(f, &client);
	client_send(f, &client, AGENT_ATTACH, &attach, sizeof(attach));
	client_expect_error(f, &client, ENOENT, "ATTACH: no such session");
	client_close(&client);
}

static void what_runs_goes_on_and_its_session_is_gone(void **state)
{
	struct command command = {.argv = ARGV("/bin/sleep", "1000"), .id = 7};
	struct fixture *f = *state;
	struct client reader;
	pid_t pid;

	give_identity_of(f, 1);
	pid = start(f, &reader, &command);
	give_identity_of(f, 2);
	client_expect_end(f, &reader);
	client_close(&reader);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(kill(pid, 0), 0);
	expect_no_session(f, 7);
	expect_runs(f, 7); /* the number is free, and means another one now */
	assert_int_equal(kill(pid, 0), 0);
	/* Its child is another machine again. */
	give_identity_of(f, 3);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(kill(pid, 0), 0);
	expect_no_session(f, 7);
}

static void what_ended_is_gone(void **state)
{
	struct fixture *f = *state;

	give_identity_of(f, 1);
	expect_runs(f, 7);
	give_identity_of(f, 2);
	expect_no_session(f, 7);
}

/* One that waits for a slow reader of the parent's waits for nobody here. */
static void output_is_thrown_away(void **state)
{
	char script[96];
	struct command command = {.argv = SHELL(script), .id = 7};
	struct fixture *f = *state;
	struct client reader;
	pid_t pid;

	snprintf(script, sizeof(script), "head -c %d /dev/zero; head -c %d /dev/zero >&2", MUCH, MUCH);
	give_identity_of(f, 1);
	pid = start(f, &reader, &command);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(kill(pid, 0), 0);
	give_identity_of(f, 2);
	await_end(f, pid);
	client_close(&reader);
	expect_no_session(f, 7);
}

static void stdin_stays_open(void **state)
{
	struct command command = {.argv = ARGV("/bin/cat"), .id = 7, .flags = AGENT_NEW_STDIN};
	struct fixture *f = *state;
	struct client reader;
	pid_t pid;

	give_identity_of(f, 1);
	pid = start(f, &reader, &command);
	give_identity_of(f, 2);
	client_close(&reader);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(kill(pid, 0), 0);
}

static void a_terminal_is_not_hung_up(void **state)
{
	struct command command = {
		.argv = ARGV("/bin/cat"), .id = 7, .flags = AGENT_NEW_STDIN | AGENT_NEW_TTY};
	struct fixture *f = *state;
	struct client reader;
	pid_t pid;

	give_identity_of(f, 1);
	pid = start(f, &reader, &command);
	give_identity_of(f, 2);
	client_close(&reader);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(kill(pid, 0), 0);
}

static void a_deadline_holds(void **state)
{
	struct command command = {.argv = ARGV("/bin/sleep", "1000"), .id = 7, .deadline_ms = DEADLINE_MS};
	struct fixture *f = *state;
	struct client reader;
	pid_t pid;

	give_identity_of(f, 1);
	pid = start(f, &reader, &command);
	give_identity_of(f, 2);
	client_close(&reader);
	await_end(f, pid);
	expect_runs(f, 7);
}

/* They would die of a pipe that nobody reads. */
static void children_that_were_kept_write_on(void **state)
{
	char file[] = "/tmp/tinderbox-child-XXXXXX", script[160];
	struct command command = {.argv = SHELL(script), .id = 7, .flags = AGENT_NEW_KEEP_CHILDREN};
	uint64_t end = test_now_ms() + WAIT_MS;
	struct stat status = {.st_size = 0};
	struct fixture *f = *state;
	struct outcome outcome;
	int fd = mkstemp(file);

	assert_true(fd >= 0);
	snprintf(script, sizeof(script), "(sleep 0.3; echo a; echo b; echo c > %s) & exit 0", file);
	give_identity_of(f, 1);
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	give_identity_of(f, 2);
	expect_no_session(f, 7);
	while (status.st_size == 0) {
		assert_true(test_now_ms() < end);
		loop_turn(f->loop, TURN_MS);
		assert_int_equal(fstat(fd, &status), 0);
	}
	unlink(file);
	close(fd);
}

static void slots_are_free_again_when_what_was_forgotten_ends(void **state)
{
	struct command command = {.argv = ARGV("/bin/sleep", "1000")};
	struct fixture *f = *state;
	struct client reader;
	pid_t pid = 0;

	give_identity_of(f, 1);
	for (int i = 1; i <= AGENT_SESSIONS_MAX; i++) {
		command.id = (uint64_t)i;
		pid = start(f, &reader, &command);
		client_close(&reader);
	}
	give_identity_of(f, 2);
	client_open(f, &reader);
	command.id = 1;
	client_new(f, &reader, &command);
	client_expect_error(f, &reader, EAGAIN, "NEW: every session slot is in use");
	client_close(&reader);
	assert_int_equal(kill(pid, SIGKILL), 0);
	await_end(f, pid);
	for (uint64_t id = 1; id <= 3; id++)
		expect_runs(f, id);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_runs_goes_on_and_its_session_is_gone),
		CASE(what_ended_is_gone),
		CASE(output_is_thrown_away),
		CASE(stdin_stays_open),
		CASE(a_terminal_is_not_hung_up),
		CASE(a_deadline_holds),
		CASE(children_that_were_kept_write_on),
		CASE(slots_are_free_again_when_what_was_forgotten_ends),
		cmocka_unit_test_setup_teardown(
			what_runs_goes_on_and_its_session_is_gone, setup_without_cgroups, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
