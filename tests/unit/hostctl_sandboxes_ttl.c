/* SPDX-License-Identifier: Apache-2.0 */
/* A ttl that does not remove its sandbox: when it comes, what begins anew, and daemons meanwhile. */
#include "tests/unit/hostctl_fork_fixture.h"

enum { BRIEF_MS = 1500, LONG_MS = 6000, MANY = 40 };

static long long number(const struct daemon *daemon, const char *id, const char *name)
{
	return strtoll(field(daemon, id, name), NULL, 10);
}

/* The time that it has is counted from its return on. */
static void expect_renewed(const struct daemon *daemon, const char *id, long long before)
{
	assert_true(number(daemon, id, "expires_ms") > before);
	assert_string_equal(field(daemon, id, "reason"), "null");
}

/* It stands, and nobody asked for it; by each way back to ready it has all of its time again. */
static void test_pause(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32];
	long long expires;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{\"ttl_ms\":1500,\"ttl_action\":\"pause\"}", id);
	create_sandbox(&daemon, "{\"ttl_ms\":3600000}", other);
	assert_string_equal(field(&daemon, id, "ttl_action"), "\"pause\"");
	assert_string_equal(field(&daemon, other, "ttl_action"), "\"kill\"");
	expires = number(&daemon, id, "expires_ms");
	assert_true(expires == number(&daemon, id, "created_ms") + BRIEF_MS);
	await_state(&daemon, id, "paused");
	assert_true(number(&daemon, id, "expires_ms") == expires);
	ask_sandbox(&daemon, id, "resume", "ready");
	expect_renewed(&daemon, id, expires);
	expires = number(&daemon, id, "expires_ms");
	await_state(&daemon, id, "paused");
	call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"exit\",\"0\"]}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	expect_renewed(&daemon, id, expires);
	await_state(&daemon, id, "paused");
	assert_string_equal(field(&daemon, other, "state"), "\"ready\"");
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

static void test_suspend(void **state)
{
	struct daemon daemon;
	char id[32];
	long long expires;

	(void)state;
	start_one(&daemon, "boot", "{\"ttl_ms\":1500,\"ttl_action\":\"suspend\"}", id);
	expires = number(&daemon, id, "expires_ms");
	await_state(&daemon, id, "suspended");
	expect_saved(&daemon, id, 5);
	wake(&daemon, id);
	expect_renewed(&daemon, id, expires);
	/* One that stands by then is put there too. */
	ask_sandbox(&daemon, id, "pause", "paused");
	await_state(&daemon, id, "suspended");
	wake(&daemon, id);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* What is at rest by then stays as it is: its time is over all the same. */
static void test_one_that_is_at_rest(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char stopped[32], paused[32], early[32];
	long long expires, kept;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{\"ttl_ms\":1500,\"ttl_action\":\"suspend\"}", stopped);
	create_sandbox(&daemon, "{\"ttl_ms\":1500,\"ttl_action\":\"pause\"}", paused);
	create_sandbox(&daemon, "{\"ttl_ms\":60000,\"ttl_action\":\"pause\"}", early);
	call_sandbox(&daemon, "POST", stopped, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	ask_sandbox(&daemon, paused, "pause", "paused");
	ask_sandbox(&daemon, early, "pause", "paused");
	expires = number(&daemon, stopped, "expires_ms");
	kept = number(&daemon, early, "expires_ms");
	sleep_ms(BRIEF_MS + 500);
	assert_string_equal(field(&daemon, stopped, "state"), "\"stopped\"");
	assert_string_equal(field(&daemon, paused, "state"), "\"paused\"");
	ask_sandbox(&daemon, stopped, "start", "ready");
	expect_renewed(&daemon, stopped, expires);
	/* One that is resumed before it is over has what is left of it. */
	ask_sandbox(&daemon, early, "resume", "ready");
	assert_true(number(&daemon, early, "expires_ms") == kept);
	delete_sandbox(&daemon, stopped);
	daemon_stop(&daemon);
}

/* It is told of by its row: what is over under no daemon, and what began anew under the one before. */
static void test_across_daemons(void **state)
{
	struct daemon daemon;
	char brief[32], renewed[32];
	long long expires;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{\"ttl_ms\":6000,\"ttl_action\":\"pause\"}", renewed);
	create_sandbox(&daemon, "{\"ttl_ms\":1500,\"ttl_action\":\"pause\"}", brief);
	kill_daemon(&daemon);
	sleep_ms(BRIEF_MS);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	await_state(&daemon, brief, "paused");
	await_state(&daemon, renewed, "paused");
	ask_sandbox(&daemon, renewed, "resume", "ready");
	expires = number(&daemon, renewed, "expires_ms");
	flush_rows(&daemon, renewed);
	kill_daemon(&daemon);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	await_state(&daemon, renewed, "ready");
	assert_true(number(&daemon, renewed, "expires_ms") == expires);
	await_state(&daemon, brief, "paused");
	await_state(&daemon, renewed, "paused");
	daemon_stop(&daemon);
}

/* Another boot of the host: only the wall's time tells when it began anew. */
static void test_across_boots(void **state)
{
	struct daemon daemon;
	char id[32];
	long long expires;

	(void)state;
	start_one(&daemon, "boot", "{\"ttl_ms\":6000,\"ttl_action\":\"suspend\"}", id);
	await_state(&daemon, id, "suspended");
	wake(&daemon, id);
	expires = number(&daemon, id, "expires_ms");
	suspend(&daemon, id);
	kill_daemon(&daemon);
	change_journal(&daemon, "UPDATE sandboxes SET boot = 'another', created_ms = created_ms - 3600000,"
				" spec = json_set(spec, '$.created_ns', 9000000000000000000)");
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "", pool_of_one, true);
	wake(&daemon, id);
	/* It goes on: it began at the wake before, not an hour ago. */
	assert_true(number(&daemon, id, "expires_ms") == expires);
	assert_string_equal(field(&daemon, id, "state"), "\"ready\"");
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* What fails is asked again, but not at once; and it is not over before. */
static void test_a_suspension_that_fails(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];
	long long expires;

	(void)state;
	start_one(&daemon, "boot keep-slow:1000 keep-refused", "{\"ttl_ms\":1500,\"ttl_action\":\"suspend\"}",
		id);
	expires = number(&daemon, id, "expires_ms");
	await_state(&daemon, id, "suspending");
	await_state(&daemon, id, "ready");
	for (int waited = 0; waited < 1500; waited += 50) {
		assert_string_equal(field(&daemon, id, "state"), "\"ready\"");
		sleep_ms(50);
	}
	assert_true(number(&daemon, id, "expires_ms") == expires);
	/* Who moves it meanwhile does not put it off. */
	for (int waited = 0; strcmp(field(&daemon, id, "state"), "\"suspending\"") != 0; waited += 200) {
		assert_true(waited < WAIT_MS);
		for (size_t i = 0; i < 2; i++) {
			call_sandbox(&daemon, "POST", id, i ? "/resume" : "/pause", NULL, &answer);
			answer_finish(&answer);
		}
		sleep_ms(200);
	}
	await_state(&daemon, id, "ready");
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* The next daemon, until it listens. */
static void launch_another(struct daemon *daemon)
{
	int ready[2], fd;

	kill_daemon(daemon);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	fflush(NULL);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (!daemon->pid) {
		close(ready[0]);
		daemon_child(daemon, ready[1], pool_of_one);
	}
	close(ready[0]);
	close(ready[1]);
	for (int waited = 0; (fd = unix_connect(daemon->socket, SOCK_STREAM)) < 0; waited++) {
		assert_true(waited < WAIT_MS);
		sleep_ms(1);
	}
	close(fd);
}

/* One that is at rest when its ttl is over is not put there again by a daemon that has just begun. */
static void test_woken_at_once(void **state)
{
	static char ids[MANY][32];
	struct daemon daemon;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	for (int i = 0; i < MANY; i++) {
		create_sandbox(&daemon, "{\"ttl_ms\":6000,\"ttl_action\":\"suspend\"}", ids[i]);
		suspend(&daemon, ids[i]);
	}
	sleep_ms(LONG_MS);
	launch_another(&daemon);
	wake(&daemon, ids[MANY - 1]);
	expect_stays(&daemon, ids[MANY - 1], "\"ready\"", 1000);
	assert_true(number(&daemon, ids[MANY - 1], "expires_ms") >= (long long)time(NULL) * 1000);
	for (int i = 0; i < MANY; i++)
		delete_sandbox(&daemon, ids[i]);
	finish(&daemon);
}

static void test_forks(void **state)
{
	struct forked forked, other;
	struct daemon daemon;
	char id[32];

	(void)state;
	start_one(&daemon, "boot", "{\"ttl_ms\":6000,\"ttl_action\":\"pause\"}", id);
	fork_sandbox(&daemon, id, NULL, &forked);
	assert_string_equal(field(&daemon, forked.ids[0], "ttl_action"), "\"pause\"");
	assert_true(number(&daemon, forked.ids[0], "expires_ms") ==
		    number(&daemon, forked.ids[0], "created_ms") + LONG_MS);
	fork_sandbox(&daemon, id, "{\"ttl_ms\":1500,\"ttl_action\":\"suspend\"}", &other);
	await_state(&daemon, other.ids[0], "suspended");
	await_state(&daemon, forked.ids[0], "paused");
	delete_all(&daemon, &forked);
	delete_all(&daemon, &other);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pause),
		cmocka_unit_test(test_suspend),
		cmocka_unit_test(test_one_that_is_at_rest),
		cmocka_unit_test(test_across_daemons),
		cmocka_unit_test(test_across_boots),
		cmocka_unit_test(test_a_suspension_that_fails),
		cmocka_unit_test(test_woken_at_once),
		cmocka_unit_test(test_forks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
