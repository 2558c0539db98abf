/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be over, or noted in the journal, before a sandbox is told to be somewhere; and what the
 * daemon's loop, and its journal, do not wait for meanwhile. */
#include "tests/unit/hostctl_calls_fixture.h"

#include "host-ctl/support/clock.h"
#include "tests/unit/hostctl_fork_fixture.h"

/* All of it is on the disk, and its row is not: nothing is to be there when its guest runs on. */
static void test_a_suspension_that_is_not_noted(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_SUSPENDED);
	for (int i = 2; i < 4; i++) {
		expect_refusal_of(
			&daemon, "POST", id, "/suspend", NULL, 429, "exhausted", "no room for the row");
		assert_int_equal(atomic_load(&seen->refused), i - 1);
		await_state(&daemon, id, "ready");
		expect_none_saved(&daemon, id);
		expect_lives(&daemon, id, i);
	}
	/* One that stood stands. */
	ask_sandbox(&daemon, id, "pause", "paused");
	expect_refusal_of(&daemon, "POST", id, "/suspend", NULL, 429, "exhausted", "no room for the row");
	await_state(&daemon, id, "paused");
	expect_none_saved(&daemon, id);
	await_frees(1);
	assert_int_equal(atomic_load(&seen->frees_of_loop), 0);
	assert_int_equal(atomic_load(&seen->syncs_of_loop), 0);
	atomic_store(&seen->refuses, -1);
	suspend(&daemon, id);
	expect_saved(&daemon, id, 5);
	wake(&daemon, id);
	expect_lives(&daemon, id, 5);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* Its VM was not needed any more, and now it would be. */
static void test_nor_is_there_a_vm(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot keep-panic", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_SUSPENDED);
	call_sandbox(&daemon, "POST", id, "/suspend", NULL, &answer);
	/* Of which of the two it is told is the scheduler's. */
	assert_true(answer.status == 429 || answer.status == 502);
	answer_finish(&answer);
	await_state(&daemon, id, "failed");
	expect_none_saved(&daemon, id);
	assert_int_equal(atomic_load(&seen->syncs_of_loop), 0);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_deleted_meanwhile(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_SUSPENDED);
	for (int i = 0; i < 8; i++) {
		create_sandbox(&daemon, "{}", id);
		call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
		assert_int_equal(answer.status, 202);
		answer_finish(&answer);
		sleep_ms(3L * i);
		delete_sandbox(&daemon, id);
		assert_false(sandbox_has_file(&daemon, id, ""));
	}
	assert_int_equal(atomic_load(&seen->syncs_of_loop), 0);
	await_pool(&daemon, "busy", 0);
	finish(&daemon);
}

/* --- what is to be over, or noted --- */

static void expect_receipt_of(const struct daemon *daemon, const char *id, const char *vm)
{
	struct answer answer;

	call_sandbox(daemon, "DELETE", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "verified"), "true");
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(answer.json, "removed"), "vm")), vm);
	answer_finish(&answer);
}

/* One that is deleted on its way back is gone when its VM is. */
static void test_deleted_while_it_wakes(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32];

	(void)state;
	start_with_templates_and(&daemon, "boot wake-mute", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	await_vm(&daemon, id, vm);
	hold_group(&daemon, vm);
	call_sandbox(&daemon, "DELETE", id, "?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	expect_stays(&daemon, id, "\"deleting\"", 300);
	assert_true(sandbox_has_file(&daemon, id, "state"));
	release_group(&daemon, vm);
	await_state(&daemon, id, "gone");
	assert_false(sandbox_has_file(&daemon, id, ""));
	expect_receipt_of(&daemon, id, vm);
	finish(&daemon);
}

/* That it lives is not noted: nothing of it has run, and it is suspended still when its VM is gone. */
static void test_a_wake_that_is_not_noted(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32], same[32], code[64];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_LIVES);
	atomic_store(&seen->delays, JOURNAL_SANDBOX_LIVES);
	atomic_store(&seen->delay_ms, 500);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	await_vm(&daemon, id, vm);
	hold_group(&daemon, vm);
	for (int waited = 0; !atomic_load(&seen->refused); waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	expect_stays(&daemon, id, "\"waking\"", 300);
	release_group(&daemon, vm);
	await_operation(&daemon, &answer, "wake", "failed", same, code);
	assert_string_equal(code, "exhausted");
	await_state(&daemon, id, "suspended");
	assert_string_equal(field(&daemon, id, "vm"), "null");
	expect_saved(&daemon, id, 5);
	atomic_store(&seen->refuses, -1);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* What was saved cannot be removed, for want of a thread: it is good, and to be woken when it can be. */
static void test_a_wake_without_an_end(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32], same[32], code[64];

	(void)state;
	start_with_templates_and(&daemon, "boot boot:500", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	await_vm(&daemon, id, vm);
	atomic_store(&seen->no_workers, true);
	await_operation(&daemon, &answer, "wake", "failed", same, code);
	assert_string_equal(code, "internal");
	await_state(&daemon, id, "suspended");
	expect_saved(&daemon, id, 5);
	atomic_store(&seen->no_workers, false);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void kill_vm(const struct daemon *daemon, const char *id)
{
	char vm[32];
	long pid;

	vm_of(daemon, id, vm);
	pid = pid_of_vm(daemon, vm);
	assert_true(pid > 0);
	assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
}

/* Its VM ends by itself before that is noted; the next daemon is not to know it as one that lives. */
static void test_gone_is_what_is_noted(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	atomic_store(&seen->delays, JOURNAL_SANDBOX_DELETING);
	atomic_store(&seen->delay_ms, 700);
	call_sandbox(&daemon, "DELETE", id, "?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	kill_vm(&daemon, id);
	expect_stays(&daemon, id, "\"deleting\"", 400);
	await_state(&daemon, id, "gone");
	create_sandbox(&daemon, "{}", id);
	/* The same of a stop. */
	atomic_store(&seen->delays, JOURNAL_SANDBOX_STOPPED);
	call_sandbox(&daemon, "POST", id, "/stop?wait=false", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	kill_vm(&daemon, id);
	expect_stays(&daemon, id, "\"stopping\"", 400);
	await_state(&daemon, id, "stopped");
	atomic_store(&seen->delays, -1);
	ask_sandbox(&daemon, id, "start", "ready");
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* --- what others do not wait for --- */

/* The copy of a large disk takes its time to be brought to the disk, and the journal is everybody's. */
static void test_the_disk_of_a_child(void **state)
{
	struct forked forked;
	struct daemon daemon;
	char id[32], other[32];
	uint64_t began;
	int fd;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	await_pool(&daemon, "warm", 1);
	atomic_store(&seen->upper_ms, 2000);
	fd = begin_fork(&daemon, id, NULL);
	for (int waited = 0; !atomic_load(&seen->upper_syncs); waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	began = clock_now();
	create_sandbox(&daemon, "{}", other);
	assert_true(clock_now() - began < 1500 * CLOCK_NS_PER_MS);
	atomic_store(&seen->upper_ms, 0);
	client_answer(fd, &forked.answer);
	close(fd);
	read_fork(&forked);
	assert_int_equal(forked.made, 1);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, other);
	delete_sandbox(&daemon, id);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

/* What its guest has written, and not synced, is not brought to the disk by the row of a start, or of a wake.
 */
static void test_the_disk_of_one_that_starts(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	atomic_store(&seen->upper_ms, 1);
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	assert_int_equal(atomic_load(&seen->upper_syncs), 1);
	ask_sandbox(&daemon, id, "stop", "stopped");
	ask_sandbox(&daemon, id, "start", "ready");
	suspend(&daemon, id);
	wake(&daemon, id);
	assert_int_equal(atomic_load(&seen->upper_syncs), 1);
	delete_sandbox(&daemon, id);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_suspension_that_is_not_noted, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_nor_is_there_a_vm, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_deleted_meanwhile, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_deleted_while_it_wakes, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_a_wake_that_is_not_noted, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_a_wake_without_an_end, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_gone_is_what_is_noted, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_the_disk_of_a_child, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_the_disk_of_one_that_starts, begin_watch, end_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
