/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with an Idempotency-Key: what holds of them when the daemon ended, or its disk is full. */
#include "tests/unit/hostctl_full_disk_fixture.h"
#include "tests/unit/hostctl_keyed_fixture.h"

#include <sqlite3.h>

enum { KILLS = 20 };

static void test_answer_outlives_the_daemon(void **state)
{
	struct daemon daemon;
	struct keyed_answer first;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_keyed(&daemon, "k", echo_body, &first);
	kill_daemon(&daemon);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	expect_replay(&daemon, "k", echo_body, &first);
	end_daemon(&daemon);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	expect_replay(&daemon, "k", echo_body, &first);
	expect_error(&daemon, "k", long_body, 409, "conflict", CONFLICT("k"));
	assert_int_equal(exited(&daemon), 0);
	finish(&first);
	daemon_stop(&daemon);
}

static void test_unanswered_request_is_not_done_again(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	send_and_leave(&daemon, "k", long_body);
	kill_daemon(&daemon);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	expect_error(&daemon, "k", long_body, 502, "incomplete", NOT_KNOWN("k"));
	expect_error(&daemon, "k", long_body, 502, "incomplete", NOT_KNOWN("k"));
	expect_error(&daemon, "k", echo_body, 409, "conflict", CONFLICT("k"));
	assert_int_equal(metric(&daemon, "tinderbox_pool_hits_total{template=\"base\"} "), 0);
	daemon_stop(&daemon);
}

static void test_stopped_daemon_keeps_the_end_of_its_runs(void **state)
{
	struct daemon daemon;
	struct keyed_answer first;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	fd = send_keyed(&daemon, "/v1/run", "k", long_body);
	await_pool(&daemon, "busy", 1);
	end_daemon(&daemon);
	assert_true(read_keyed(fd, &first));
	assert_string_equal(error_member(&first.answer, "code"), "incomplete");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	expect_replay(&daemon, "k", long_body, &first);
	finish(&first);
	daemon_stop(&daemon);
}

static void execute(const struct daemon *daemon, const char *sql)
{
	char path[128];
	sqlite3 *db = NULL;

	snprintf(path, sizeof path, "%s/journal.db", daemon->state);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_answer_that_is_not_kept_any_more(void **state)
{
	struct daemon daemon;
	struct keyed_answer first;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_keyed(&daemon, "k", echo_body, &first);
	finish(&first);
	end_daemon(&daemon);
	execute(&daemon, "DELETE FROM answers");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	expect_error(&daemon, "k", echo_body, 502, "incomplete",
		"the request with the Idempotency-Key k was done, but its answer is not kept any more");
	end_daemon(&daemon);
	/* A day later: of another boot, and by the clock of the wall. */
	execute(&daemon, "UPDATE keys SET boot = 'another', wall_s = wall_s - 86400");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	run_keyed(&daemon, "k", echo_body, &first);
	assert_int_equal(first.answer.status, 200);
	assert_false(first.replayed);
	finish(&first);
	daemon_stop(&daemon);
}

static void test_newer_journal_ends_the_start(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	end_daemon(&daemon);
	execute(&daemon, "PRAGMA user_version=99");
	daemon.pid = fork();
	if (daemon.pid == 0) {
		char *const none[] = {NULL};

		daemon_child(&daemon, open("/dev/null", O_WRONLY | O_CLOEXEC), none);
	}
	assert_int_equal(daemon_wait(&daemon), 1);
	execute(&daemon, "PRAGMA user_version=4");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	daemon_stop(&daemon);
}

/* Keys under load, the daemon killed at any moment: what a client was told stays so, whatever else it is. */
static void test_kills_under_load(void **state)
{
	static char *const options[] = {"--pool", "2", NULL};
	struct keyed_answer told[KILLS], got;
	unsigned int kept = 0, lost = 0;
	struct daemon daemon;
	char key[16];

	(void)state;
	srand(2);
	daemon_start(&daemon, "boot", options);
	for (int i = 0; i < KILLS; i++) {
		int fd;

		snprintf(key, sizeof key, "k%d", i);
		fd = send_keyed(&daemon, "/v1/run", key, echo_body);
		sleep_ms(rand() % 12);
		kill_daemon(&daemon);
		if (!read_keyed(fd, &told[i]))
			told[i].answer.status = 0;
		daemon_launch(&daemon, "boot", options, true);
		for (int j = 0; j <= i; j++) {
			snprintf(key, sizeof key, "k%d", j);
			if (told[j].answer.status) {
				expect_replay(&daemon, key, echo_body, &told[j]);
				continue;
			}
			/* Never begun, or nobody knows: then that stays so. */
			run_keyed(&daemon, key, echo_body, &got);
			assert_true(got.answer.status == 200 || got.answer.status == 502);
			if (got.answer.status == 502)
				assert_string_equal(error_member(&got.answer, "code"), "incomplete");
			told[j] = got;
			if (got.answer.status == 502) {
				finish(&got);
				told[j] = (struct keyed_answer){.answer = {.status = 0}};
			}
			lost += got.answer.status == 502 && j == i;
		}
		kept += told[i].answer.status == 200;
	}
	print_message("%u answers, %u of which nobody knows\n", kept, lost);
	assert_int_equal(kept + lost, KILLS);
	for (int i = 0; i < KILLS; i++)
		if (told[i].answer.status)
			finish(&told[i]);
	daemon_stop(&daemon);
}

/* --- a disk of its own --- */

static void expect_no_room(const struct daemon *daemon, const char *key, const char *more)
{
	char wanted[256];

	snprintf(wanted, sizeof wanted, "no room for the journal %s/journal.db: free some on its disk%s",
		daemon->state, more);
	expect_error(daemon, key, echo_body, 429, "exhausted", wanted);
}

static void expect_well(const struct daemon *daemon)
{
	struct answer answer;

	call(daemon, "GET", "/v1/healthz", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "status"), "\"ok\"");
	answer_finish(&answer);
}

/* Runs are served all the same. */
static void expect_no_room_in_health(const struct daemon *daemon, const char *more)
{
	char wanted[256];

	snprintf(wanted, sizeof wanted, "no room for the journal %s/journal.db: free some on its disk%s",
		daemon->state, more);
	expect_health(daemon, 200, wanted);
}

static void test_full_disk(void **state)
{
	static const char body[] = "{\"argv\":[\"flood\",\"1000000\"]}";
	struct daemon daemon;
	struct keyed_answer got;

	(void)state;
	mount_state(&daemon, "size=600k");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	fill_disk(&daemon);
	expect_well(&daemon);
	expect_no_room(&daemon, "a", "");
	expect_no_room_in_health(&daemon, "");
	assert_int_equal(exited(&daemon), 0);
	expect_echo(&daemon);
	clear_disk(&daemon);
	run_keyed(&daemon, "a", echo_body, &got);
	assert_int_equal(got.answer.status, 200);
	assert_false(got.replayed);
	finish(&got);
	expect_well(&daemon);
	/* Room for the key, none for the answer: it is told, and not done again. */
	await_pool(&daemon, "warm", 1);
	run_keyed(&daemon, "b", body, &got);
	assert_int_equal(got.answer.status, 200);
	assert_true(strlen(got.answer.body) > 1000000);
	finish(&got);
	expect_error(&daemon, "b", body, 502, "incomplete", NOT_KNOWN("b"));
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

static void expect_no_sandbox(const struct daemon *daemon)
{
	struct answer answer;
	char wanted[256];

	snprintf(wanted, sizeof wanted,
		"no room for the journal %s/journal.db: free some on its disk, and start the daemon anew",
		daemon->state);
	call(daemon, "POST", "/v1/sandboxes", "{}", &answer);
	assert_int_equal(answer.status, 429);
	assert_string_equal(error_member(&answer, "message"), wanted);
	answer_finish(&answer);
	await_pool(daemon, "busy", 0);
	await_pool(daemon, "warm", 1);
}

static void test_no_room_at_the_start(void **state)
{
	struct daemon daemon;

	(void)state;
	mount_state(&daemon, "size=64k");
	fill_disk(&daemon);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	expect_no_room(&daemon, "a", ", and start the daemon anew");
	expect_no_sandbox(&daemon);
	expect_no_room_in_health(&daemon, ", and start the daemon anew");
	expect_echo(&daemon);
	clear_disk(&daemon);
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer_outlives_the_daemon),
		cmocka_unit_test(test_unanswered_request_is_not_done_again),
		cmocka_unit_test(test_stopped_daemon_keeps_the_end_of_its_runs),
		cmocka_unit_test(test_answer_that_is_not_kept_any_more),
		cmocka_unit_test(test_newer_journal_ends_the_start),
		cmocka_unit_test(test_kills_under_load),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_no_room_at_the_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
