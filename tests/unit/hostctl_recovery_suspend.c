/* SPDX-License-Identifier: Apache-2.0 */
/* Suspended sandboxes of an earlier daemon, however it ended, and of templates and folders that are no more.
 */
#include "tests/unit/hostctl_suspend_fixture.h"

enum { KILLS = 6, STEP_MS = 12 };

/* It is found as it was, over any number of daemons. */
static void test_suspended_stays_so(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{\"name\":\"web\"}", id);
	for (int i = 1; i < 4; i++) {
		suspend(&daemon, id);
		start_again(&daemon);
		await_state(&daemon, "web", "suspended");
		terminate(&daemon);
		daemon_launch(&daemon, "", pool_of_one, true);
		await_state(&daemon, id, "suspended");
		expect_saved(&daemon, id, 5);
		wake(&daemon, id);
		expect_lives(&daemon, id, i + 1);
		/* Taken back, it is saved again as any other. */
		start_again(&daemon);
		await_state(&daemon, id, "ready");
		expect_lives(&daemon, id, i + 1);
	}
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* At any moment of a suspend it lives, or is suspended; and what is saved is what it was. */
static void test_kills_while_it_is_suspended(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];
	int lives = 1;

	(void)state;
	start_with_templates_and(&daemon, "boot keep-slow:20", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	for (int i = 0; i < KILLS; i++) {
		char now[32] = "";

		call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
		assert_int_equal(answer.status, 202);
		answer_finish(&answer);
		sleep_ms(i * STEP_MS);
		start_again(&daemon);
		for (int waited = 0; waited < WAIT_MS && strcmp(now, "\"suspended\"") != 0 &&
				     strcmp(now, "\"paused\"") != 0 && strcmp(now, "\"ready\"") != 0;
			waited += POLL_MS) {
			snprintf(now, sizeof now, "%.30s", field(&daemon, id, "state"));
			sleep_ms(POLL_MS);
		}
		if (strcmp(now, "\"suspended\"") != 0)
			expect_none_saved(&daemon, id);
		ask_sandbox(&daemon, id, "wake", "ready");
		expect_none_saved(&daemon, id);
		/* A save that was written and is not told counts for the guest as well. */
		call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"lives\"]}", &answer);
		assert_int_equal(answer.status, 200);
		assert_true(atoi(json_string_value(json_object_get(
				    json_object_get(answer.json, "stdout"), "data"))) >= lives);
		lives = atoi(
			json_string_value(json_object_get(json_object_get(answer.json, "stdout"), "data")));
		answer_finish(&answer);
	}
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* A vmm that writes answers to nobody, for longer than one has time that only is to say how it stands. */
static void test_a_save_goes_on_over_a_kill(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot keep-slow:12500", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	for (int waited = 0; !sandbox_has_file(&daemon, id, "state.new"); waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	/* Until its vmm has begun. */
	sleep_ms(300);
	start_again(&daemon);
	await_state(&daemon, id, "paused");
	expect_none_saved(&daemon, id);
	ask_sandbox(&daemon, id, "resume", "ready");
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* At any moment of a wake it is suspended still, or lives. */
static void test_kills_while_it_wakes(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot boot:20", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	for (int i = 0; i < KILLS; i++) {
		suspend(&daemon, id);
		call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
		assert_int_equal(answer.status, 202);
		answer_finish(&answer);
		sleep_ms(i * STEP_MS);
		start_again(&daemon);
		ask_sandbox(&daemon, id, "wake", "ready");
		expect_none_saved(&daemon, id);
		expect_lives(&daemon, id, i + 2);
	}
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* A daemon that is told to stop ends its VMs; what is suspended is not among them. */
static void test_stops(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], wakes[32];

	(void)state;
	start_with_templates_and(&daemon, "boot boot:1000", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	create_sandbox(&daemon, "{}", wakes);
	suspend(&daemon, id);
	suspend(&daemon, wakes);
	call_sandbox(&daemon, "POST", wakes, "/wake?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	await_state(&daemon, wakes, "waking");
	sleep_ms(100);
	assert_string_equal(field(&daemon, wakes, "state"), "\"waking\"");
	terminate(&daemon);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "suspended");
	await_state(&daemon, wakes, "suspended");
	wake(&daemon, wakes);
	expect_lives(&daemon, wakes, 2);
	delete_sandbox(&daemon, id);
	delete_sandbox(&daemon, wakes);
	finish(&daemon);
}

/* Its template may be built anew, or be gone. */
static void test_templates_that_are_others(void **state)
{
	struct daemon daemon;
	char id[32], lives[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	create_sandbox(&daemon, "{\"template\":\"tools\"}", lives);
	suspend(&daemon, id);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	suspend(&daemon, id);
	/* What it was made of has no name any more: it is copied, */
	suspend(&daemon, lives);
	expect_saved(&daemon, lives, 5);
	wake(&daemon, lives);
	expect_lives(&daemon, lives, 2);
	delete_sandbox(&daemon, lives);
	/* or, to the next daemon, not known: all of its memory is saved. */
	create_sandbox(&daemon, "{\"template\":\"tools\"}", lives);
	start_again(&daemon);
	await_state(&daemon, lives, "ready");
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	suspend(&daemon, lives);
	expect_saved(&daemon, lives, 4);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	wake(&daemon, lives);
	expect_lives(&daemon, lives, 3);
	wake(&daemon, id);
	expect_lives(&daemon, id, 3);
	suspend(&daemon, lives);
	expect_saved(&daemon, lives, 5);
	delete_sandbox(&daemon, id);
	delete_sandbox(&daemon, lives);
	finish(&daemon);
}

/* It goes where its state folder goes. */
static void test_a_folder_that_is_moved(void **state)
{
	struct daemon daemon;
	char id[32], before[96];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	terminate(&daemon);
	snprintf(before, sizeof before, "%s", daemon.state);
	snprintf(daemon.state, sizeof daemon.state, "%.80s.moved", before);
	assert_int_equal(rename(before, daemon.state), 0);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "suspended");
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* With its files on a disk, that goes on where it was. */
static void test_with_a_disk(void **state)
{
	static const char on_it[] = "{\"template\":\"tools\"}";
	struct daemon daemon;
	struct stat upper;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	create_sandbox(&daemon, on_it, id);
	upper = sandbox_file_status(&daemon, id, "upper");
	for (int i = 1; i < 4; i++) {
		suspend(&daemon, id);
		/* upper, lower and boot.json besides. */
		expect_saved(&daemon, id, 8);
		start_again(&daemon);
		await_state(&daemon, id, "suspended");
		assert_true(sandbox_file_status(&daemon, id, "upper").st_ino == upper.st_ino);
		wake(&daemon, id);
		expect_lives(&daemon, id, i + 1);
	}
	/* Stopped, it boots from its disk; then all of its memory is new. */
	ask_sandbox(&daemon, id, "stop", "stopped");
	ask_sandbox(&daemon, id, "wake", "ready");
	suspend(&daemon, id);
	expect_saved(&daemon, id, 7);
	wake(&daemon, id);
	delete_sandbox(&daemon, id);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

/* What was saved of its memory cannot be used, or is not wanted: its files are there still. */
static void test_with_a_disk_it_may_be_stopped(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stat upper;
	char id[32], path[192];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	upper = sandbox_file_status(&daemon, id, "upper");
	for (int damaged = 0; damaged < 2; damaged++) {
		suspend(&daemon, id);
		sandbox_file(&daemon, id, damaged ? "memory" : "saved.json", path);
		assert_int_equal(unlink(path), 0);
		call_sandbox(&daemon, "POST", id, "/wake", NULL, &answer);
		assert_int_equal(answer.status, 500);
		answer_finish(&answer);
		await_state(&daemon, id, "suspended");
		ask_sandbox(&daemon, id, "stop", "stopped");
		expect_reason(&daemon, id, "it was stopped");
		expect_none_saved(&daemon, id);
		start_again(&daemon);
		await_state(&daemon, id, "stopped");
		ask_sandbox(&daemon, id, "start", "ready");
		assert_true(sandbox_file_status(&daemon, id, "upper").st_ino == upper.st_ino);
	}
	/* Without its files nothing is left. */
	suspend(&daemon, id);
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	assert_false(sandbox_has_file(&daemon, id, ""));
	delete_sandbox(&daemon, id);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

/* No number is taken for another one that it looks like where fewer bits are kept of it. */
static void test_what_is_told_of_it_is_damaged(void **state)
{
	static const struct {
		const char *field;
		json_int_t value;
	} wrong[] = {{"cpus", 0}, {"cpus", ((json_int_t)1 << 32) + 1}, {"cid", ((json_int_t)1 << 32) + 3},
		{"cid", 2}, {"memory_bytes", -1}, {"format", 99}};
	struct daemon daemon;
	struct answer answer;
	char id[32], path[192];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	sandbox_file(&daemon, id, "saved.json", path);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		json_t *about = json_load_file(path, 0, NULL), *changed = json_copy(about);

		assert_non_null(json_object_get(about, wrong[i].field));
		json_object_set_new(changed, wrong[i].field, json_integer(wrong[i].value));
		assert_int_equal(json_dump_file(changed, path, 0), 0);
		call_sandbox(&daemon, "POST", id, "/wake", NULL, &answer);
		assert_int_equal(answer.status, 500);
		assert_non_null(strstr(error_member(&answer, "message"),
			strcmp(wrong[i].field, "format") ? "damaged" : "another version"));
		answer_finish(&answer);
		await_state(&daemon, id, "suspended");
		assert_int_equal(json_dump_file(about, path, 0), 0);
		json_decref(changed);
		json_decref(about);
	}
	wake(&daemon, id);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* A guest that dies as soon as it runs again has its disk, and no more what was saved. */
static void test_with_a_disk_that_went_on(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot wake-panic", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	suspend(&daemon, id);
	call_sandbox(&daemon, "POST", id, "/wake", NULL, &answer);
	assert_int_equal(answer.status, 502);
	answer_finish(&answer);
	await_state(&daemon, id, "stopped");
	start_again(&daemon);
	await_state(&daemon, id, "stopped");
	expect_none_saved(&daemon, id);
	delete_sandbox(&daemon, id);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_suspended_stays_so),
		cmocka_unit_test(test_kills_while_it_is_suspended),
		cmocka_unit_test(test_a_save_goes_on_over_a_kill),
		cmocka_unit_test(test_kills_while_it_wakes),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_templates_that_are_others),
		cmocka_unit_test(test_a_folder_that_is_moved),
		cmocka_unit_test(test_with_a_disk),
		cmocka_unit_test(test_what_is_told_of_it_is_damaged),
		cmocka_unit_test(test_with_a_disk_it_may_be_stopped),
		cmocka_unit_test(test_with_a_disk_that_went_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
