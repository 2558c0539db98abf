/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes across the end of the daemon: taken back or removed, and never anything else. */
#include "tests/unit/hostctl_recovery_fixture.h"

#include "host-ctl/support/process.h"

#include <sys/mman.h>

/* That it was is known for a while, or it is known no more. */
static void expect_deleted(const struct daemon *daemon, const char *id)
{
	struct answer answer;

	call_sandbox(daemon, "GET", id, "", NULL, &answer);
	if (answer.status != 404)
		assert_string_equal(member(&answer, "state"), "\"gone\"");
	answer_finish(&answer);
}

static void test_sandbox_is_taken_back(void **state)
{
	static const char body[] = "{\"name\":\"mine\",\"metadata\":{\"a\":\"b\"},\"env\":{\"N\":\"v\"}}";
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32], quoted[40];
	long pid;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, body, id);
	vm_of(&daemon, id, vm);
	pid = pid_of_vm(&daemon, vm);
	assert_true(pid > 0);
	snprintf(quoted, sizeof quoted, "\"%s\"", id);
	for (int i = 0; i < 3; i++) {
		restart(&daemon);
		await_state(&daemon, id, "ready");
		assert_string_equal(field(&daemon, "mine", "id"), quoted);
		assert_string_equal(field(&daemon, id, "metadata"), "{\"a\":\"b\"}");
		assert_string_equal(field(&daemon, id, "env"), "[\"N\"]");
		assert_int_equal(pid_of_vm(&daemon, vm), pid);
		assert_int_equal(count_entries(daemon.cgroups, "vm-"), 3);
	}
	/* It is as it was to whoever asks something of it. */
	call_sandbox(&daemon, "POST", id, "/pause", "", &answer);
	assert_string_equal(member(&answer, "state"), "\"paused\"");
	answer_finish(&answer);
	restart(&daemon);
	await_state(&daemon, id, "paused");
	call_sandbox(&daemon, "POST", id, "/resume", "", &answer);
	assert_string_equal(member(&answer, "state"), "\"ready\"");
	answer_finish(&answer);
	delete_sandbox(&daemon, id);
	assert_string_equal(field(&daemon, id, "reason"), "\"it was deleted\"");
	restart(&daemon);
	expect_deleted(&daemon, id);
	daemon_stop(&daemon);
}

/* Nor does a program of the guest that is there first get its identity from the next daemon. */
static void test_program_that_poses_as_agent(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot impostor", pool_of_two, id);
	for (int i = 0; i < 2; i++) {
		restart(&daemon);
		await_state(&daemon, id, "ready");
		flush_rows(&daemon, id);
	}
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

/* No two VMs have one. */
static void expect_own_uids(const struct daemon *daemon)
{
	struct answer answer;
	unsigned int uids[8], count = 0;
	const json_t *one;
	size_t i;

	call(daemon, "GET", "/v1/pool", NULL, &answer);
	json_array_foreach(json_object_get(answer.json, "vms"), i, one)
	{
		char path[64];
		struct stat about;

		snprintf(path, sizeof path, "/proc/%lld",
			(long long)json_integer_value(json_object_get(one, "pid")));
		assert_int_equal(stat(path, &about), 0);
		for (unsigned int j = 0; j < count; j++)
			assert_int_not_equal(uids[j], about.st_uid);
		assert_true(count < sizeof uids / sizeof *uids);
		uids[count++] = about.st_uid;
	}
	assert_true(count >= 3);
	answer_finish(&answer);
}

static void test_vm_that_ended_meanwhile(void **state)
{
	struct daemon daemon;
	char id[32], vm[32];
	long pid;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	vm_of(&daemon, id, vm);
	pid = pid_of_vm(&daemon, vm);
	kill_daemon(&daemon);
	kill((pid_t)pid, SIGKILL);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_string_equal(field(&daemon, id, "state"), "\"failed\"");
	assert_string_equal(field(&daemon, id, "reason"), "\"the daemon and its VM ended\"");
	/* That stays so. */
	restart(&daemon);
	assert_string_equal(field(&daemon, id, "state"), "\"failed\"");
	assert_string_equal(field(&daemon, id, "reason"), "\"the daemon and its VM ended\"");
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 2);
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

static void test_vm_that_ends_later(void **state)
{
	struct daemon daemon;
	char id[32], vm[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	vm_of(&daemon, id, vm);
	restart(&daemon);
	await_state(&daemon, id, "ready");
	kill((pid_t)pid_of_vm(&daemon, vm), SIGKILL);
	await_state(&daemon, id, "failed");
	assert_string_equal(field(&daemon, id, "reason"),
		"\"its VM ended: the vmm ended, and an earlier daemon had started it\"");
	daemon_stop(&daemon);
}

static void test_stopped_daemon_ends_them(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{}", id);
	kill(daemon.pid, SIGTERM);
	assert_int_equal(daemon_wait(&daemon), 0);
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 0);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_string_equal(field(&daemon, id, "state"), "\"failed\"");
	assert_string_equal(field(&daemon, id, "reason"), "\"its VM ended: the daemon is stopping\"");
	daemon_stop(&daemon);
}

/* Its uid is that of its seat in standby, which no other VM may have meanwhile. */
static void test_clone_out_of_standby(void **state)
{
	struct daemon daemon;
	char id[32], vm[32];
	long pid;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon.standby = "2";
	daemon_launch(&daemon, "boot", pool_of_two, true);
	await_pool(&daemon, "warm", 2);
	create_sandbox(&daemon, "{}", id);
	vm_of(&daemon, id, vm);
	pid = pid_of_vm(&daemon, vm);
	for (int i = 0; i < 2; i++) {
		restart(&daemon);
		await_state(&daemon, id, "ready");
		assert_int_equal(pid_of_vm(&daemon, vm), pid);
		await_pool(&daemon, "warm", 2);
		expect_own_uids(&daemon);
	}
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* Its template is in use, though nothing of this daemon's is of it; and is not loaded for that. */
static void test_template_of_one_taken_back(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_two);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	await_vms(&daemon, "tools", 1);
	kill_daemon(&daemon);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "boot", pool_of_two, true);
	await_state(&daemon, id, "ready");
	await_vms(&daemon, "tools", 1);
	assert_int_equal(pool_number(&daemon, "busy"), 0);
	call(&daemon, "GET", "/v1/pool?template=tools", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "busy"), "1");
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/templates/tools", NULL, &answer);
	assert_string_equal(member(&answer, "loaded"), "false");
	answer_finish(&answer);
	call(&daemon, "DELETE", "/v1/templates/tools", NULL, &answer);
	expect_error_answer(&answer, 409, "conflict",
		"template tools is in use: its pool has the target 0, 1 VMs are of it, 1 of these of "
		"sandboxes, 0 "
		"runs wait: set the target to 0, delete its sandboxes (GET /v1/sandboxes?template=tools), "
		"and let "
		"the runs end");
	/* Another of it is loaded for, and both are counted. */
	run_command(&daemon, "{\"argv\":[\"echo\"],\"template\":\"tools\"}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_vms(&daemon, "tools", 1);
	delete_sandbox(&daemon, id);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* What is wrong with it since does not touch the VM that is there. */
static void test_damaged_template_of_one_taken_back(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], path[192];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_two);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	kill_daemon(&daemon);
	templates_path(&daemon, "tools/state", path);
	assert_int_equal(unlink(path), 0);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "boot", pool_of_two, true);
	await_state(&daemon, id, "ready");
	run_command(&daemon, "{\"argv\":[\"echo\"],\"template\":\"tools\"}", &answer);
	assert_string_equal(error_member(&answer, "code"), "build_failed");
	answer_finish(&answer);
	call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"paused\"");
	answer_finish(&answer);
	delete_sandbox(&daemon, id);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_ttl_goes_on(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{\"ttl_ms\":4000}", id);
	restart(&daemon);
	await_state(&daemon, id, "gone");
	assert_string_equal(field(&daemon, id, "reason"), "\"its ttl_ms is over\"");
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 2);
	daemon_stop(&daemon);
}

static void test_a_process_is_known_by_its_start(void **state)
{
	uint64_t first, again;
	siginfo_t info;
	pid_t child;

	(void)state;
	assert_int_equal(process_start_time(getpid(), &first), 0);
	assert_int_equal(process_start_time(getpid(), &again), 0);
	assert_int_equal(first, again);
	prctl(PR_SET_NAME, ") Z 1 2 3");
	assert_int_equal(process_start_time(getpid(), &again), 0);
	assert_int_equal(first, again);
	child = fork();
	if (child == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(process_start_time(child, &again), -ESRCH);
	waitpid(child, NULL, 0);
	assert_int_equal(process_start_time(child, &again), -ESRCH);
}

/* It is the time of the start, in ticks since the boot, and the same however the process grows. */
static void test_start_time(void **state)
{
	enum { GROWTH = 64 * 1024 * 1024, SECONDS_LATE = 20 };
	const uint64_t ticks_a_second = (uint64_t)sysconf(_SC_CLK_TCK);
	struct timespec now;
	uint64_t ticks, again, seconds;
	void *growth;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		pause();
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(process_start_time(pid, &ticks), 0);
	assert_int_equal(clock_gettime(CLOCK_BOOTTIME, &now), 0);
	seconds = (uint64_t)now.tv_sec;
	assert_in_range(ticks / ticks_a_second, seconds > SECONDS_LATE ? seconds - SECONDS_LATE : 0, seconds);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(process_start_time(pid, &ticks), -ESRCH);

	assert_int_equal(process_start_time(getpid(), &ticks), 0);
	growth = mmap(NULL, GROWTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(growth != MAP_FAILED);
	assert_int_equal(process_start_time(getpid(), &again), 0);
	assert_int_equal(munmap(growth, GROWTH), 0);
	assert_true(again == ticks);
}

/* CLOCK_MONOTONIC has begun anew since, so that it says less than at its creation. */
static void test_a_ttl_goes_on_across_boots(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], over[32], statement[128];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	create_sandbox(&daemon, "{\"ttl_ms\":3600000}", id);
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	create_sandbox(&daemon, "{\"ttl_ms\":3600000}", over);
	call_sandbox(&daemon, "POST", over, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	kill_daemon(&daemon);
	change_journal(&daemon, "UPDATE sandboxes SET boot = 'another',"
				" spec = json_set(spec, '$.created_ns', 9000000000000000000)");
	snprintf(statement, sizeof statement,
		"UPDATE sandboxes SET created_ms = created_ms - 3600001 WHERE id = '%s'", over);
	change_journal(&daemon, statement);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	await_state(&daemon, over, "gone");
	await_state(&daemon, id, "stopped");
	daemon_stop(&daemon);
}

/* A smaller --max-vms: those that are there stay, and no other starts before there are fewer. */
static void test_more_are_taken_back_than_there_may_be(void **state)
{
	static char *const fewer[] = {"--pool", "1", "--max-vms", "2", NULL};
	struct daemon daemon;
	char ids[3][32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_two, ids[0]);
	create_sandbox(&daemon, "{}", ids[1]);
	create_sandbox(&daemon, "{}", ids[2]);
	kill_daemon(&daemon);
	daemon_launch(&daemon, "boot", fewer, false);
	for (int i = 0; i < 3; i++)
		await_state(&daemon, ids[i], "ready");
	for (int i = 0; i < 2; i++) {
		sleep_ms(300);
		assert_int_equal(pool_number(&daemon, "starting") + pool_number(&daemon, "warm"), 0);
		assert_int_equal(metric(&daemon, "tinderbox_vm_starts_total{template=\"base\"} "), 0);
		if (!i)
			delete_sandbox(&daemon, ids[i]);
	}
	delete_sandbox(&daemon, ids[1]);
	await_pool(&daemon, "warm", 1);
	delete_sandbox(&daemon, ids[2]);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start_time),
		cmocka_unit_test(test_a_process_is_known_by_its_start),
		cmocka_unit_test(test_sandbox_is_taken_back),
		cmocka_unit_test(test_program_that_poses_as_agent),
		cmocka_unit_test(test_vm_that_ended_meanwhile),
		cmocka_unit_test(test_vm_that_ends_later),
		cmocka_unit_test(test_stopped_daemon_ends_them),
		cmocka_unit_test(test_clone_out_of_standby),
		cmocka_unit_test(test_template_of_one_taken_back),
		cmocka_unit_test(test_damaged_template_of_one_taken_back),
		cmocka_unit_test(test_ttl_goes_on),
		cmocka_unit_test(test_a_ttl_goes_on_across_boots),
		cmocka_unit_test(test_more_are_taken_back_than_there_may_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
