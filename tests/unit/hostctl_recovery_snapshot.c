/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots that are asked for again, and ends of sandbox, client and daemon at any moment of one. */
#include "tests/unit/hostctl_snapshot_fixture.h"

enum { KILLS = 10, STEP_MS = 20 };

/* Who asks again gets the same answer, of the next daemon too, and there is one template. */
static void test_asking_again(void **state)
{
	static const char key[] = "Idempotency-Key: snapshot-1\r\n";
	struct daemon daemon;
	struct answer answers[3], other;
	char id[32], path[SANDBOX_PATH_MAX];
	int fd;

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/snapshot", id);
	for (int i = 0; i < 3; i++) {
		fd = client_open(&daemon);
		client_request(fd, "POST", path, key, frozen);
		client_answer(fd, &answers[i]);
		expect_made(&answers[i], "frozen");
		assert_string_equal(answers[i].body, answers[0].body);
		if (i == 1)
			start_again(&daemon);
	}
	fd = client_open(&daemon);
	client_request(fd, "POST", path, key, "{\"name\":\"other\"}");
	client_answer(fd, &other);
	assert_int_equal(other.status, 409);
	answer_finish(&other);
	for (int i = 0; i < 3; i++)
		answer_finish(&answers[i]);
	await_state(&daemon, id, "ready");
	expect_lives(&daemon, id, 2);
	expect_clone(&daemon, 2);
	remove_frozen(&daemon);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* One that was begun, and whose daemon was killed, has no known answer. */
static void test_a_key_whose_daemon_was_killed(void **state)
{
	static const char key[] = "Idempotency-Key: snapshot-2\r\n";
	struct daemon daemon;
	struct answer answer;
	char id[32], path[SANDBOX_PATH_MAX];
	int fd;

	(void)state;
	start_one(&daemon, "boot keep-slow:1500", "{}", id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/snapshot", id);
	fd = client_open(&daemon);
	client_request(fd, "POST", path, key, frozen);
	await_state(&daemon, id, "copying");
	start_again(&daemon);
	close(fd);
	await_state(&daemon, id, "ready");
	fd = client_open(&daemon);
	client_request(fd, "POST", path, key, frozen);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 502);
	assert_string_equal(error_member(&answer, "code"), "incomplete");
	answer_finish(&answer);
	expect_none_made(&daemon);
	/* With another key it may. */
	snapshot(&daemon, id, "frozen");
	remove_frozen(&daemon);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static bool is_there(const struct daemon *daemon)
{
	struct answer answer;
	bool there;

	call(daemon, "GET", frozen_path, NULL, &answer);
	there = answer.status == 200;
	if (there)
		assert_string_equal(json_string_value(json_object_get(answer.json, "state")), "stored");
	answer_finish(&answer);
	return there;
}

/* The sandbox runs on by itself, whatever the moment; half a template is none. */
static void test_kills(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_one(&daemon, "boot keep-slow:20 boot:20", "{}", id);
	for (int i = 0; i < KILLS; i++) {
		int fd = begin_snapshot(&daemon, id, frozen);

		sleep_ms(i * STEP_MS);
		start_again(&daemon);
		close(fd);
		await_state(&daemon, id, "ready");
		assert_false(sandbox_has_file(&daemon, id, "copying"));
		assert_int_equal(count_folders(&daemon, "fk-"), 0);
		assert_int_equal(count_templates(&daemon, ".building-"), 0);
		call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"lives\"]}", &answer);
		assert_int_equal(answer.status, 200);
		answer_finish(&answer);
		if (is_there(&daemon)) {
			char clone[32];

			create_sandbox(&daemon, of_frozen, clone);
			expect_noted(&daemon, clone, true);
			delete_sandbox(&daemon, clone);
			remove_frozen(&daemon);
		} else {
			expect_none_made(&daemon);
		}
	}
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_ends_while_it_is_copied(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], message[160];
	int fd;

	(void)state;
	/* The sandbox is deleted, */
	start_one(&daemon, "boot keep-slow:1500", "{}", id);
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	snprintf(message, sizeof message, "sandbox %s is copying, and cannot be paused yet", id);
	expect_refusal_of(&daemon, "POST", id, "/pause", NULL, 503, "not_ready", message);
	delete_sandbox(&daemon, id);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 409);
	assert_string_equal(error_member(&answer, "code"), "conflict");
	answer_finish(&answer);
	expect_none_made(&daemon);
	/* the client leaves, */
	create_sandbox(&daemon, "{}", id);
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	close(fd);
	await_state(&daemon, id, "ready");
	expect_none_made(&daemon);
	/* and the daemon is told to stop. */
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	terminate(&daemon);
	close(fd);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "failed");
	expect_none_made(&daemon);
	delete_sandbox(&daemon, id);
	assert_int_equal(count_folders(&daemon, ""), 0);
	finish(&daemon);
}

static void await_none_made(const struct daemon *daemon)
{
	for (int waited = 0; waited < WAIT_MS &&
			     (count_folders(daemon, "fk-") > 0 || count_templates(daemon, ".building-") > 0);
		waited += POLL_MS)
		sleep_ms(POLL_MS);
	expect_none_made(daemon);
}

/* Its clones take a while to be there: so long it is a template's, and no more the sandbox's. */
static void test_ends_while_it_is_made(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];
	int fd;

	(void)state;
	/* The sandbox may go, */
	start_one(&daemon, "boot boot:1000 keep-slow:200", "{}", id);
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	await_state(&daemon, id, "ready");
	delete_sandbox(&daemon, id);
	client_answer(fd, &answer);
	expect_made(&answer, "frozen");
	answer_finish(&answer);
	expect_clone(&daemon, 2);
	remove_frozen(&daemon);
	/* a client that leaves has none, */
	create_sandbox(&daemon, "{}", id);
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	await_state(&daemon, id, "ready");
	close(fd);
	await_none_made(&daemon);
	expect_lives(&daemon, id, 2);
	/* and who stops the daemon has none. */
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	await_state(&daemon, id, "ready");
	terminate(&daemon);
	close(fd);
	daemon_launch(&daemon, "", pool_of_one, true);
	expect_none_made(&daemon);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_asking_again),
		cmocka_unit_test(test_a_key_whose_daemon_was_killed),
		cmocka_unit_test(test_kills),
		cmocka_unit_test(test_ends_while_it_is_copied),
		cmocka_unit_test(test_ends_while_it_is_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
