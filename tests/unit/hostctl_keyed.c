/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with an Idempotency-Key: done once, whoever asks again. */
#include "tests/unit/hostctl_keyed_fixture.h"

#include <grp.h>

enum { CLIENTS = 24, KEYS = 6 };

static void test_repeated_request_is_done_once(void **state)
{
	struct daemon daemon;
	struct keyed_answer first, other;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_keyed(&daemon, "a key, with spaces", echo_body, &first);
	assert_int_equal(first.answer.status, 200);
	assert_false(first.replayed);
	assert_string_equal(member(&first.answer, "stdout"), "{\"data\":\"a\\n\",\"bytes\":2,\"dropped\":0}");
	expect_replay(&daemon, "a key, with spaces", echo_body, &first);
	expect_replay(&daemon, "a key, with spaces", echo_body, &first);
	assert_int_equal(exited(&daemon), 1);
	assert_int_equal(metric(&daemon, "tinderbox_replays_total "), 2);
	run_keyed(&daemon, "another key", echo_body, &other);
	assert_false(other.replayed);
	assert_string_not_equal(member(&other.answer, "vm"), "");
	assert_true(strcmp(first.answer.body, other.answer.body) != 0);
	assert_int_equal(exited(&daemon), 2);
	finish(&other);
	finish(&first);
	daemon_stop(&daemon);
}

/* As nobody, in the daemon's group. */
static void expect_conflict_as_another_user(const struct daemon *daemon)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		chmod(daemon->folder, 0755);
		if (setgroups(0, NULL) || setgid(getegid()) || setuid(65534))
			_exit(2);
		expect_error(daemon, "k", echo_body, 409, "conflict", CONFLICT("k"));
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void test_other_request_is_a_conflict(void **state)
{
	struct daemon daemon;
	struct keyed_answer first;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_keyed(&daemon, "k", echo_body, &first);
	expect_error(&daemon, "k", "{\"argv\":[\"echo\",\"b\"]}", 409, "conflict", CONFLICT("k"));
	/* Bytes count, not what they mean. */
	expect_error(&daemon, "k", "{\"argv\": [\"echo\",\"a\"]}", 409, "conflict", CONFLICT("k"));
	expect_error_at(&daemon, "/v1/templates", "k", echo_body, 409, "conflict", CONFLICT("k"));
	expect_error_at(&daemon, "/v1/sandboxes?wait=true&wait=false", "twice", "{}", 400, "invalid",
		"the parameter wait is there twice");
	expect_conflict_as_another_user(&daemon);
	expect_replay(&daemon, "k", echo_body, &first);
	assert_int_equal(exited(&daemon), 1);
	finish(&first);
	daemon_stop(&daemon);
}

static void test_malformed_keys(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char key[130];
	struct keyed_answer got;
	int fd;

	(void)state;
	/* Refused before the body, which is not sent. */
	daemon_start(&daemon, "boot", pool_of_one);
	memset(key, 'k', sizeof key - 1);
	key[129] = '\0';
	expect_error(&daemon, "", NULL, 400, "invalid", "Idempotency-Key has 0 characters, not 1 to 128");
	expect_error(&daemon, key, NULL, 400, "invalid", "Idempotency-Key has 129 characters, not 1 to 128");
	expect_error(&daemon, "caf\xc3\xa9", NULL, 400, "invalid",
		"Idempotency-Key has a character that is not printable ASCII at 3");
	expect_error(&daemon, "a\tb", NULL, 400, "invalid",
		"Idempotency-Key has a character that is not printable ASCII at 1");
	expect_error(&daemon, "a\r\nidempotency-key: b", NULL, 400, "invalid",
		"there are 2 headers Idempotency-Key");
	expect_error(&daemon, "a\r\nConnection: Upgrade\r\nUpgrade: tinderbox-frames", NULL, 400, "invalid",
		"Idempotency-Key is for the plain form, whose answer can be kept: leave out the key or the "
		"upgrade");
	assert_int_equal(exited(&daemon), 0);
	key[128] = '\0';
	run_keyed(&daemon, key, echo_body, &got);
	assert_int_equal(got.answer.status, 200);
	finish(&got);
	/* What may be repeated anyway does not look at it. */
	fd = client_open(&daemon);
	client_request(fd, "GET", "/v1/pool", "Idempotency-Key: \x01\r\nIdempotency-Key: b\r\n", NULL);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	close(fd);
	daemon_stop(&daemon);
}

static void test_refusal_is_not_kept(void **state)
{
	static char *const options[] = {"--pool", "1", "--max-vms", "1", "--queue-max", "0", NULL};
	struct daemon daemon;
	struct keyed_answer got;
	int busy;

	(void)state;
	daemon_start(&daemon, "boot", options);
	expect_error(&daemon, "k", "{\"argv\":[]}", 400, "invalid", "argv is empty: name the command to run");
	busy = send_keyed(&daemon, "/v1/run", "busy", long_body);
	await_pool(&daemon, "busy", 1);
	run_keyed(&daemon, "k", echo_body, &got);
	assert_int_equal(got.answer.status, 429);
	assert_false(got.replayed);
	finish(&got);
	assert_true(read_keyed(busy, &got));
	assert_int_equal(got.answer.status, 200);
	finish(&got);
	await_pool(&daemon, "warm", 1);
	run_keyed(&daemon, "k", echo_body, &got);
	assert_int_equal(got.answer.status, 200);
	assert_false(got.replayed);
	finish(&got);
	daemon_stop(&daemon);
}

static void test_failed_run_is_kept(void **state)
{
	static const char body[] = "{\"argv\":[\"panic\"]}";
	struct daemon daemon;
	struct keyed_answer first;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_keyed(&daemon, "k", body, &first);
	assert_int_equal(first.answer.status, 502);
	assert_string_equal(error_member(&first.answer, "code"), "guest_lost");
	expect_replay(&daemon, "k", body, &first);
	assert_int_equal(metric(&daemon, "tinderbox_errors_total{code=\"guest_lost\"} "), 1);
	finish(&first);
	daemon_stop(&daemon);
}

static void test_same_request_meanwhile_waits(void **state)
{
	struct daemon daemon;
	struct keyed_answer first, second;
	int fds[2];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	fds[0] = send_keyed(&daemon, "/v1/run", "k", long_body);
	await_pool(&daemon, "busy", 1);
	fds[1] = send_keyed(&daemon, "/v1/run", "k", long_body);
	expect_error(&daemon, "k", echo_body, 409, "conflict", CONFLICT("k"));
	assert_true(read_keyed(fds[0], &first));
	assert_true(read_keyed(fds[1], &second));
	assert_string_equal(member(&first.answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	assert_false(first.replayed);
	assert_true(second.replayed);
	assert_string_equal(first.answer.body, second.answer.body);
	assert_int_equal(metric(&daemon, "tinderbox_runs_total{result=\"timed_out\"} "), 1);
	finish(&second);
	finish(&first);
	daemon_stop(&daemon);
}

static void test_client_that_left_finds_its_run_again(void **state)
{
	struct daemon daemon;
	struct keyed_answer got;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (int i = 0; i < 3; i++) {
		send_and_leave(&daemon, "k", long_body);
	}
	run_keyed(&daemon, "k", long_body, &got);
	assert_string_equal(member(&got.answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	assert_true(got.replayed);
	expect_replay(&daemon, "k", long_body, &got);
	finish(&got);
	assert_int_equal(metric(&daemon, "tinderbox_runs_total{result=\"timed_out\"} "), 1);
	/* It goes on to its end without anybody, too. */
	send_and_leave(&daemon, "l", long_body);
	await_pool(&daemon, "busy", 0);
	run_keyed(&daemon, "l", long_body, &got);
	assert_string_equal(member(&got.answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	assert_int_equal(metric(&daemon, "tinderbox_runs_total{result=\"timed_out\"} "), 2);
	finish(&got);
	daemon_stop(&daemon);
}

static void test_nobody_comes_back(void **state)
{
	static char *const options[] = {"--pool", "1", "--key-grace-ms", "100", NULL};
	static const char body[] = "{\"argv\":[\"started-sleep\"]}";
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", options);
	send_and_leave(&daemon, "k", body);
	await_pool(&daemon, "busy", 0);
	expect_error(&daemon, "k", body, 502, "incomplete",
		"the request with the Idempotency-Key k was ended: its client had left, and nobody asked for "
		"it again "
		"within 100 ms (--key-grace-ms)");
	assert_int_equal(metric(&daemon, "tinderbox_replays_total "), 1);
	daemon_stop(&daemon);
}

static void test_many_clients_at_once(void **state)
{
	static char *const options[] = {"--pool", "2", NULL};
	struct daemon daemon;
	struct keyed_answer got[CLIENTS];
	int fds[CLIENTS], own = 0;
	char key[16];

	(void)state;
	daemon_start(&daemon, "boot", options);
	for (int i = 0; i < CLIENTS; i++) {
		snprintf(key, sizeof key, "k%d", i % KEYS);
		fds[i] = send_keyed(&daemon, "/v1/run", key, echo_body);
	}
	for (int i = 0; i < CLIENTS; i++) {
		assert_true(read_keyed(fds[i], &got[i]));
		assert_int_equal(got[i].answer.status, 200);
		assert_string_equal(got[i].answer.body, got[i % KEYS].answer.body);
		own += !got[i].replayed;
	}
	assert_int_equal(own, KEYS);
	assert_int_equal(exited(&daemon), KEYS);
	for (int i = 0; i < CLIENTS; i++)
		finish(&got[i]);
	daemon_stop(&daemon);
}

static void test_build_is_done_once(void **state)
{
	static const char body[] = "{\"name\":\"x\",\"run\":[\"echo built\"]}";
	struct daemon daemon;
	struct keyed_answer first, again;
	struct answer answer;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	assert_true(read_keyed(send_keyed(&daemon, "/v1/templates", "k", body), &first));
	assert_int_equal(first.answer.status, 200);
	assert_string_equal(
		member(&first.answer, "stdout"), "{\"data\":\"built\\n\",\"bytes\":6,\"dropped\":0}");
	call(&daemon, "DELETE", "/v1/templates/x", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	assert_true(read_keyed(send_keyed(&daemon, "/v1/templates", "k", body), &again));
	assert_true(again.replayed);
	assert_string_equal(again.answer.body, first.answer.body);
	call(&daemon, "GET", "/v1/templates/x", NULL, &answer);
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	finish(&first);
	finish(&again);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_repeated_request_is_done_once),
		cmocka_unit_test(test_other_request_is_a_conflict),
		cmocka_unit_test(test_malformed_keys),
		cmocka_unit_test(test_refusal_is_not_kept),
		cmocka_unit_test(test_failed_run_is_kept),
		cmocka_unit_test(test_same_request_meanwhile_waits),
		cmocka_unit_test(test_client_that_left_finds_its_run_again),
		cmocka_unit_test(test_nobody_comes_back),
		cmocka_unit_test(test_many_clients_at_once),
		cmocka_unit_test(test_build_is_done_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
