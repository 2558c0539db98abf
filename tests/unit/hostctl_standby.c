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
		cmocka_unit_test(test_a_killed_daemon_leaves_no_standby),
		cmocka_unit_test(test_a_clone_needs_no_standby),
		cmocka_unit_test(test_what_standby_cannot_restore_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
