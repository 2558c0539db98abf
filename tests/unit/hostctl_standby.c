/* SPDX-License-Identifier: Apache-2.0 */
/* Clones out of processes in standby, with a vmm that only plays. */
#include "hostctl_fixture.h"

static const char in_standby[] = "fd:4\0--standby";

/* Sockets of VMs: each has one, whoever it belongs to. */
static int count_sockets(const struct daemon *daemon)
{
	char path[96];

	snprintf(path, sizeof path, "%s/vm", daemon->folder);
	return count_entries(path, "vm-");
}

static void await_sockets(const struct daemon *daemon, int wanted)
{
	int found = 0;

	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		found = count_sockets(daemon);
		if (found == wanted)
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("%d sockets, wanted %d", found, wanted);
}

static void start_in_standby(
	struct daemon *daemon, const char *standby, const char *script, char *const *options)
{
	daemon_folder(daemon);
	daemon->templates = true;
	daemon->standby = standby;
	daemon_launch(daemon, script, options, true);
}

/* Clones are made of processes that were there before; the next ones take their places; none is left. */
static void test_clones_come_from_standby(void **state)
{
	static char *const options[] = {"--pool", "2", NULL};
	struct daemon daemon;

	(void)state;
	start_in_standby(&daemon, "3", "boot touch", options);
	/* Whoever is there, is ready some time later: of so many starts, one is made of such. */
	for (int i = 0; i < 8; i++) {
		await_sockets(&daemon, 5);
		expect_echo(&daemon);
		await_pool(&daemon, "warm", 2);
	}
	assert_true(count_vmms(&daemon, in_standby, sizeof in_standby) > 0);
	assert_int_equal(count_vmms(&daemon, in_standby, sizeof in_standby) + count_clones(&daemon), 2);
	await_sockets(&daemon, 5);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* How long a file a process may write. */
static rlim_t file_limit_of(pid_t pid)
{
	static const char name[] = "Max file size";
	char path[64], line[256], limits[2][32] = {"", ""};
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, name, strlen(name)) == 0)
			assert_int_equal(sscanf(line + strlen(name), "%31s %31s", limits[0], limits[1]), 2);
	fclose(file);
	assert_string_equal(limits[0], limits[1]);
	return strcmp(limits[0], "unlimited") == 0 ? RLIM_INFINITY : (rlim_t)strtoull(limits[0], NULL, 10);
}

/* The only vmm's. may_set: this process, and so the daemon, may give it another: it is of the same user, or
 * we have CAP_SYS_RESOURCE. */
static rlim_t file_limit(const struct daemon *daemon, bool *may_set)
{
	struct answer answer;
	struct rlimit ignored;
	const json_t *vms;
	pid_t pid;

	call(daemon, "GET", "/v1/pool", NULL, &answer);
	vms = json_object_get(answer.json, "vms");
	assert_int_equal(json_array_size(vms), 1);
	pid = (pid_t)json_integer_value(json_object_get(json_array_get(vms, 0), "pid"));
	answer_finish(&answer);
	*may_set = prlimit(pid, RLIMIT_FSIZE, NULL, &ignored) == 0;
	if (!*may_set)
		assert_int_equal(errno, EPERM);
	return file_limit_of(pid);
}

static rlim_t limit_of_clone(const char *standby, bool *was_there, bool *may_set)
{
	static char *const options[] = {"--pool", "1", NULL};
	struct daemon daemon;
	rlim_t limit;

	start_in_standby(&daemon, standby, "boot", options);
	/* The first may be started before any is ready: the next is not. */
	await_sockets(&daemon, 1 + atoi(standby));
	sleep_ms(200);
	expect_echo(&daemon);
	await_sockets(&daemon, 1 + atoi(standby));
	await_pool(&daemon, "warm", 1);
	*was_there = count_vmms(&daemon, in_standby, sizeof in_standby) > 0 && count_clones(&daemon) == 0;
	limit = file_limit(&daemon, may_set);
	daemon_stop(&daemon);
	remove_state(&daemon);
	return limit;
}

/* It may write no more for having been there before; or, where nobody may bound it any more, whatever file it
 * gets: without a disk it has none. */
static void test_it_may_write_as_much_as_any_clone(void **state)
{
	bool was_there = false, may_set, none;
	rlim_t cold, limit = 0;

	(void)state;
	cold = limit_of_clone("0", &none, &may_set);
	assert_false(none);
	assert_true(cold > 0 && cold < RLIM_INFINITY);
	for (int i = 0; i < 5 && !was_there; i++)
		limit = limit_of_clone("2", &was_there, &may_set);
	assert_true(was_there);
	assert_true(limit == (may_set ? cold : RLIM_INFINITY));
}

/* Those in standby have nobody to tell them what to be. */
static void test_a_killed_daemon_leaves_no_standby(void **state)
{
	static char *const options[] = {"--pool", "1", NULL};
	struct daemon daemon;

	(void)state;
	start_in_standby(&daemon, "4", "boot", options);
	await_sockets(&daemon, 5);
	/* Until the last one is executed it has the daemon's locks. */
	sleep_ms(300);
	assert_int_equal(kill(daemon.pid, SIGKILL), 0);
	assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "", options, true);
	await_sockets(&daemon, 5);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* One that ends by itself is replaced, and a clone that none is there for starts as any other. */
static void test_a_clone_needs_no_standby(void **state)
{
	static char *const options[] = {"--pool", "3", NULL};
	struct daemon daemon;

	(void)state;
	start_in_standby(&daemon, "1", "boot", options);
	assert_int_equal(count_clones(&daemon) + count_vmms(&daemon, in_standby, sizeof in_standby), 3);
	for (int i = 0; i < 8; i++)
		expect_echo(&daemon);
	await_pool(&daemon, "warm", 3);
	await_sockets(&daemon, 4);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_what_standby_cannot_restore_is_said(void **state)
{
	static char *const options[] = {"--pool", "1", NULL};
	struct daemon daemon;

	(void)state;
	start_in_standby(&daemon, "2", "boot restore-exit:1", options);
	expect_health(&daemon, 200,
		"template base could not be built: the VM could not be set up (vmm: fake vmm: told not to "
		"restore)");
	daemon_stop(&daemon);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clones_come_from_standby),
		cmocka_unit_test(test_it_may_write_as_much_as_any_clone),
		cmocka_unit_test(test_a_killed_daemon_leaves_no_standby),
		cmocka_unit_test(test_a_clone_needs_no_standby),
		cmocka_unit_test(test_what_standby_cannot_restore_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
