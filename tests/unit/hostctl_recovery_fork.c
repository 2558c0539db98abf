/* SPDX-License-Identifier: Apache-2.0 */
/* Forks that are asked for again, and ends of parent, client and daemon at any moment of one. */
#include "tests/unit/hostctl_fork_fixture.h"

enum { KILLS = 8, STEP_MS = 15 };

/* Who asks again gets the same children, of the next daemon too. */
static void test_asking_again(void **state)
{
	static const char key[] = "Idempotency-Key: fork-1\r\n";
	struct forked forked;
	struct daemon daemon;
	struct answer answers[3];
	char id[32], path[SANDBOX_PATH_MAX];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/fork", id);
	for (int i = 0; i < 3; i++) {
		int fd = client_open(&daemon);

		client_request(fd, "POST", path, key, "{\"count\":2}");
		client_answer(fd, &answers[i]);
		assert_int_equal(answers[i].status, 201);
		assert_string_equal(answers[i].body, answers[0].body);
		if (i == 1)
			start_again(&daemon);
	}
	await_state(&daemon, id, "ready");
	forked.answer = answers[2];
	read_fork(&forked);
	for (unsigned int i = 0; i < forked.made; i++) {
		await_state(&daemon, forked.ids[i], "ready");
		expect_lives(&daemon, forked.ids[i], 2);
	}
	delete_all(&daemon, &forked);
	answer_finish(&answers[0]);
	answer_finish(&answers[1]);
	finish(&daemon);
}

/* The parent runs on by itself, whatever the moment; half a child is none. */
static void test_kills(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_one(&daemon, "boot keep-slow:20 boot:20", "{}", id);
	for (int i = 0; i < KILLS; i++) {
		int fd = begin_fork(&daemon, id, "{\"count\":2}");
		json_t *sandbox;
		size_t n;

		sleep_ms(i * STEP_MS);
		start_again(&daemon);
		close(fd);
		await_state(&daemon, id, "ready");
		assert_false(sandbox_has_file(&daemon, id, "copying"));
		assert_int_equal(count_folders(&daemon, "fk-"), 0);
		call(&daemon, "GET", "/v1/sandboxes", NULL, &answer);
		json_array_foreach(json_object_get(answer.json, "sandboxes"), n, sandbox)
		{
			const char *one = json_string_value(json_object_get(sandbox, "id"));
			struct answer ran;

			await_state(&daemon, one, "ready");
			call_sandbox(&daemon, "POST", one, "/run", "{\"argv\":[\"lives\"]}", &ran);
			assert_int_equal(ran.status, 200);
			answer_finish(&ran);
			if (strcmp(one, id) != 0)
				delete_sandbox(&daemon, one);
		}
		answer_finish(&answer);
		/* Of what is not listed nothing is left. */
		assert_true(count_folders(&daemon, "sb-") <= 1);
		await_pool(&daemon, "busy", 1);
	}
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_ends_in_its_midst(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], message[256];
	int fd;

	(void)state;
	/* The parent is deleted, */
	start_one(&daemon, "boot keep-slow:1500", "{}", id);
	fd = begin_fork(&daemon, id, "{\"count\":2}");
	await_state(&daemon, id, "copying");
	snprintf(message, sizeof message, "sandbox %s is copying, and cannot be paused yet", id);
	expect_refusal_of(&daemon, "POST", id, "/pause", NULL, 503, "not_ready", message);
	snprintf(message, sizeof message, "sandbox %s is copying, and cannot be copied yet", id);
	expect_refusal_of(&daemon, "POST", id, "/fork", NULL, 503, "not_ready", message);
	delete_sandbox(&daemon, id);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 409);
	assert_string_equal(error_member(&answer, "code"), "conflict");
	answer_finish(&answer);
	assert_int_equal(count_folders(&daemon, ""), 0);
	/* a command waits for its end, */
	create_sandbox(&daemon, "{}", id);
	expect_lives(&daemon, id, 1);
	fd = begin_fork(&daemon, id, "{\"count\":2}");
	await_state(&daemon, id, "copying");
	expect_lives(&daemon, id, 2);
	/* the client leaves, */
	close(fd);
	await_pool(&daemon, "busy", 1);
	fd = begin_fork(&daemon, id, "{\"count\":2}");
	await_state(&daemon, id, "copying");
	close(fd);
	await_state(&daemon, id, "ready");
	await_pool(&daemon, "busy", 1);
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	/* and the daemon is told to stop. */
	fd = begin_fork(&daemon, id, "{\"count\":2}");
	await_state(&daemon, id, "copying");
	terminate(&daemon);
	close(fd);
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "failed");
	delete_sandbox(&daemon, id);
	assert_int_equal(count_folders(&daemon, ""), 0);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_asking_again),
		cmocka_unit_test(test_kills),
		cmocka_unit_test(test_ends_in_its_midst),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
