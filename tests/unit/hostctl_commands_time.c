/* SPDX-License-Identifier: Apache-2.0 */
/* How long commands that have ended are known: --keep-commands-ms. */
#include "host-ctl/support/clock.h"
#include "tests/unit/hostctl_recovery_fixture.h"

enum { KEEP_MS = 1500, LONG_MS = 6000, SOON_MS = 3000, FLOOD = 1000000 };

static char *const brief[] = {"--pool", "1", "--keep-commands-ms", "1500", NULL};
static char *const longer[] = {"--pool", "1", "--keep-commands-ms", "6000", NULL};

static void run_one(const struct daemon *daemon, const char *id, const char *body, char command[32])
{
	struct answer answer;

	run_in(daemon, id, body, &answer);
	assert_int_equal(answer.status, 200);
	snprintf(command, 32, "%s", json_string_value(json_object_get(answer.json, "command")));
	answer_finish(&answer);
}

static bool is_known(const struct daemon *daemon, const char *id, const char *command)
{
	struct answer answer;
	bool known;

	call_command(daemon, "GET", id, command, "/output", NULL, &answer);
	/* Also while it is taken back from the daemon before. */
	known = answer.status == 200 || !strcmp(error_member(&answer, "code"), "not_ready");
	if (!known)
		assert_string_equal(error_member(&answer, "code"), "not_found");
	answer_finish(&answer);
	return known;
}

static void await_forgotten_within(
	const struct daemon *daemon, const char *id, const char *command, uint64_t milliseconds)
{
	const uint64_t until_ns = clock_now() + milliseconds * CLOCK_NS_PER_MS;

	while (is_known(daemon, id, command)) {
		assert_true(clock_now() < until_ns);
		sleep_ms(POLL_MS);
	}
}

static void await_forgotten(const struct daemon *daemon, const char *id, const char *command)
{
	await_forgotten_within(daemon, id, command, WAIT_MS);
}

/* Of a daemon that has ended. */
static int count_rows(const struct daemon *daemon, const char *command)
{
	sqlite3 *db = open_journal(daemon);
	sqlite3_stmt *row = NULL;
	int count;

	assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM commands WHERE id = ?", -1, &row, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_bind_text(row, 1, command, -1, SQLITE_STATIC), SQLITE_OK);
	assert_int_equal(sqlite3_step(row), SQLITE_ROW);
	count = sqlite3_column_int(row, 0);
	sqlite3_finalize(row);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return count;
}

/* From its end on, not from its start; one that runs is not. */
static void test_they_are_forgotten(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], first[32], second[32], lasting[32];

	(void)state;
	start_sandbox(&daemon, "boot", brief, id);
	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", lasting);
	run_one(&daemon, id, "{\"argv\":[\"echo\",\"x\"]}", first);
	sleep_ms(KEEP_MS / 2);
	run_one(&daemon, id, "{\"argv\":[\"echo\",\"x\"]}", second);
	assert_true(is_known(&daemon, id, second));
	await_forgotten(&daemon, id, first);
	await_forgotten(&daemon, id, second);
	expect_field(&daemon, id, lasting, "state", "\"running\"");
	call_command(&daemon, "POST", id, lasting, "/kill", NULL, &answer);
	answer_finish(&answer);
	await_forgotten(&daemon, id, lasting);
	call_sandbox(&daemon, "GET", id, "/commands", NULL, &answer);
	assert_string_equal(member(&answer, "commands"), "[]");
	answer_finish(&answer);
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
}

/* Each has its own time: what came first goes first. */
static void test_one_after_the_other(void **state)
{
	struct daemon daemon;
	char id[32], first[32], second[32];
	bool alone = false;

	(void)state;
	start_sandbox(&daemon, "boot", brief, id);
	run_one(&daemon, id, "{\"argv\":[\"echo\",\"x\"]}", first);
	sleep_ms(KEEP_MS - 300);
	run_one(&daemon, id, "{\"argv\":[\"echo\",\"x\"]}", second);
	for (int waited = 0; !alone && waited < WAIT_MS; waited += POLL_MS) {
		alone = !is_known(&daemon, id, first);
		sleep_ms(alone ? 0 : POLL_MS);
	}
	assert_true(alone);
	assert_true(is_known(&daemon, id, second));
	await_forgotten(&daemon, id, second);
	daemon_stop(&daemon);
}

/* Without the option nothing goes for its time. */
static void test_without_a_time(void **state)
{
	char *const always[] = {"--pool", "1", NULL};
	struct daemon daemon;
	char id[32], command[32];

	(void)state;
	start_sandbox(&daemon, "boot", always, id);
	run_one(&daemon, id, "{\"argv\":[\"echo\",\"x\"]}", command);
	sleep_ms(KEEP_MS + 500);
	assert_true(is_known(&daemon, id, command));
	daemon_stop(&daemon);
}

/* Who reads one when its time comes has all of it. */
static void test_one_that_is_read(void **state)
{
	struct command command;
	struct daemon daemon;
	struct stream stream;
	char id[32];
	uint64_t got = 0;

	(void)state;
	start_sandbox(&daemon, "boot", longer, id);
	run_one(&daemon, id, "{\"argv\":[\"flood\",\"1000000\"]}", command.id);
	renew_token(&daemon, id, &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	expect(&stream, AGENT_STARTED);
	sleep_ms(LONG_MS + 500);
	assert_true(is_known(&daemon, id, command.id));
	while (got < FLOOD) {
		expect(&stream, AGENT_STDOUT);
		got += stream.frame.length - sizeof(struct agent_output);
	}
	expect_exit(&stream, AGENT_EXITED, 0);
	close_stream(&stream);
	await_forgotten_within(&daemon, id, command.id, SOON_MS);
	daemon_stop(&daemon);
}

/* Its time goes on while there is no daemon, and what was forgotten stays so: it has no row any more. */
static void test_the_next_daemon(void **state)
{
	struct daemon daemon;
	char id[32], old[32], young[32];

	(void)state;
	start_sandbox(&daemon, "boot", longer, id);
	run_one(&daemon, id, "{\"argv\":[\"echo\",\"x\"]}", old);
	flush_rows(&daemon, id);
	kill_daemon(&daemon);
	assert_int_equal(count_rows(&daemon, old), 1);
	sleep_ms(LONG_MS);
	daemon_launch(&daemon, "boot", longer, true);
	await_state(&daemon, id, "ready");
	await_forgotten_within(&daemon, id, old, SOON_MS);
	run_one(&daemon, id, "{\"argv\":[\"echo\",\"x\"]}", young);
	flush_rows(&daemon, id);
	kill_daemon(&daemon);
	assert_int_equal(count_rows(&daemon, old), 0);
	assert_int_equal(count_rows(&daemon, young), 1);
	daemon_launch(&daemon, "boot", longer, true);
	await_state(&daemon, id, "ready");
	assert_false(is_known(&daemon, id, old));
	await_forgotten(&daemon, id, young);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_they_are_forgotten),
		cmocka_unit_test(test_one_after_the_other),
		cmocka_unit_test(test_without_a_time),
		cmocka_unit_test(test_one_that_is_read),
		cmocka_unit_test(test_the_next_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
