/* SPDX-License-Identifier: Apache-2.0 */
/* Templates and the pool on clones of them, with a vmm that only plays. */
#include "hostctl_fixture.h"

static char *const pool_of_two[] = {"--pool", "2", NULL};

static void templates_path(const struct daemon *daemon, const char *name, char path[160])
{
	snprintf(path, 160, "%s/templates%s%s", daemon->state, name[0] ? "/" : "", name);
}

/* Entries of the folder of templates; two of them are itself and its parent. */
static int count_templates(const struct daemon *daemon, const char *prefix)
{
	char path[160];

	templates_path(daemon, "", path);
	return count_entries(path, prefix);
}

static void remove_state(const struct daemon *daemon)
{
	char path[160];

	templates_path(daemon, "base", path);
	if (access(path, F_OK) == 0)
		remove_folder(path);
	templates_path(daemon, "", path);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(daemon->state), 0);
}

static void start_with_templates(struct daemon *daemon, const char *script)
{
	daemon_folder(daemon);
	daemon->templates = true;
	daemon_launch(daemon, script, pool_of_two, true);
}

static ino_t template_inode(const struct daemon *daemon)
{
	struct stat status;
	char path[160];

	templates_path(daemon, "base/state", path);
	assert_int_equal(stat(path, &status), 0);
	return status.st_ino;
}

/* How many warm VMs of the pool were restored, by their command lines. */
static int count_clones(const struct daemon *daemon)
{
	struct answer answer;
	char path[64], line[1024];
	const json_t *vm;
	size_t i;
	int count = 0;

	call(daemon, "GET", "/v1/pool", NULL, &answer);
	json_array_foreach(json_object_get(answer.json, "vms"), i, vm)
	{
		FILE *file;
		size_t length;

		snprintf(path, sizeof path, "/proc/%lld/cmdline",
			(long long)json_integer_value(json_object_get(vm, "pid")));
		file = fopen(path, "re");
		length = file ? fread(line, 1, sizeof line, file) : 0;
		if (file)
			fclose(file);
		count += memmem(line, length, "--restore\0fd:5,memory=fd:6", 26) != NULL;
	}
	answer_finish(&answer);
	return count;
}

static void expect_health(const struct daemon *daemon, int status, const char *reason)
{
	struct answer answer;

	call(daemon, "GET", "/v1/healthz", NULL, &answer);
	assert_int_equal(answer.status, status);
	if (reason)
		assert_string_equal(json_string_value(json_object_get(answer.json, "reason")), reason);
	answer_finish(&answer);
}

static void expect_echo(const struct daemon *daemon)
{
	struct answer answer;

	run_command(daemon, "{\"argv\":[\"echo\",\"a\"]}", &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"a\\n\",\"bytes\":2,\"dropped\":0}");
	answer_finish(&answer);
}

static void stop(struct daemon *daemon)
{
	assert_int_equal(kill(daemon->pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(daemon), 0);
}

static void test_the_pool_is_of_clones(void **state)
{
	struct daemon daemon;

	(void)state;
	start_with_templates(&daemon, "boot");
	assert_int_equal(count_clones(&daemon), 2);
	expect_health(&daemon, 200, NULL);
	for (int i = 0; i < 4; i++)
		expect_echo(&daemon);
	await_pool(&daemon, "warm", 2);
	assert_int_equal(count_clones(&daemon), 2);
	daemon_stop(&daemon);
	assert_int_equal(count_templates(&daemon, ""), 3);
	remove_state(&daemon);
}

/* The start writes the kernel anew each time; this one's time is set back to what it was. */
static void keep_kernel(const struct daemon *daemon, bool restore)
{
	static struct stat before;
	char path[96];

	snprintf(path, sizeof path, "%s/kernel", daemon->folder);
	if (restore) {
		const struct timespec times[2] = {before.st_atim, before.st_mtim};

		write_text(daemon->folder, "kernel", "\177ELF boot");
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	} else {
		assert_int_equal(stat(path, &before), 0);
	}
}

static void test_a_template_is_built_again_when_its_inputs_changed(void **state)
{
	static char *const more_memory[] = {"--pool", "2", "--mem", "64M", NULL};
	struct daemon daemon;
	ino_t first, second;

	(void)state;
	start_with_templates(&daemon, "boot");
	first = template_inode(&daemon);
	keep_kernel(&daemon, false);
	stop(&daemon);
	keep_kernel(&daemon, true);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_int_equal(count_clones(&daemon), 2);
	assert_true(template_inode(&daemon) == first);
	stop(&daemon);
	daemon_launch(&daemon, "boot", more_memory, true);
	second = template_inode(&daemon);
	assert_true(second != first);
	stop(&daemon);
	write_text(daemon.folder, "image", "another image");
	daemon_launch(&daemon, "boot", more_memory, true);
	assert_true(template_inode(&daemon) != second);
	assert_int_equal(count_clones(&daemon), 2);
	daemon_stop(&daemon);
	assert_int_equal(count_templates(&daemon, ""), 3);
	remove_state(&daemon);
}

static void test_one_that_cannot_be_loaded_is_built_again(void **state)
{
	struct daemon daemon;
	char path[160];
	ino_t first;

	(void)state;
	start_with_templates(&daemon, "boot");
	first = template_inode(&daemon);
	keep_kernel(&daemon, false);
	stop(&daemon);
	keep_kernel(&daemon, true);
	daemon.keep_kernel = true;
	/* As a vmm does on a CPU of another kind. */
	templates_path(&daemon, "base", path);
	write_text(path, "state", "\177ELF boot restore-exit:1");
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_true(template_inode(&daemon) != first);
	assert_int_equal(count_clones(&daemon), 2);
	expect_health(&daemon, 200, NULL);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_a_failed_build_leaves_nothing_and_the_pool_boots(void **state)
{
	static const struct {
		const char *script, *reason;
	} cases[] = {
		{"boot pause-refused", "template base could not be built: the guest could not be paused: "
				       "Operation already in progress"},
		{"boot save-refused",
			"template base could not be built: the guest could not be saved: no room for the "
			"memory"},
		{"boot restore-exit:1",
			"template base could not be built: the VM could not be set up (vmm: fake vmm: told "
			"not to "
			"restore)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct daemon daemon;

		start_with_templates(&daemon, cases[i].script);
		assert_int_equal(count_clones(&daemon), 0);
		expect_health(&daemon, 503, cases[i].reason);
		expect_echo(&daemon);
		daemon_stop(&daemon);
		assert_int_equal(count_templates(&daemon, ""), 2);
		remove_state(&daemon);
	}
}

static void await_building(const struct daemon *daemon)
{
	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		if (count_templates(daemon, ".building-base-") == 1)
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("no build began");
}

static void test_a_daemon_killed_during_a_build_leaves_nothing_for_long(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon_launch(&daemon, "boot save-slow:2000", pool_of_two, false);
	await_building(&daemon);
	sleep_ms(200);
	assert_int_equal(kill(daemon.pid, SIGKILL), 0);
	assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
	assert_int_equal(count_templates(&daemon, "base"), 0);
	assert_int_equal(count_templates(&daemon, ".building-base-"), 1);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_int_equal(count_templates(&daemon, ".building-base-"), 0);
	assert_int_equal(count_clones(&daemon), 2);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_a_stop_during_a_build_leaves_nothing(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon_launch(&daemon, "boot save-slow:2000", pool_of_two, false);
	await_building(&daemon);
	daemon_stop(&daemon);
	assert_int_equal(count_templates(&daemon, ""), 2);
	remove_state(&daemon);
}

/* Who comes while base is being built waits for a clone of it. */
static void test_runs_wait_for_the_build(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon_launch(&daemon, "boot save-slow:300", pool_of_two, false);
	expect_echo(&daemon);
	await_pool(&daemon, "warm", 2);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_pool_is_of_clones),
		cmocka_unit_test(test_a_template_is_built_again_when_its_inputs_changed),
		cmocka_unit_test(test_one_that_cannot_be_loaded_is_built_again),
		cmocka_unit_test(test_a_failed_build_leaves_nothing_and_the_pool_boots),
		cmocka_unit_test(test_a_daemon_killed_during_a_build_leaves_nothing_for_long),
		cmocka_unit_test(test_a_stop_during_a_build_leaves_nothing),
		cmocka_unit_test(test_runs_wait_for_the_build),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
