/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes with a disk that are stopped, started and lost: their files stay. */
#include "tests/unit/hostctl_sandboxes_disks_fixture.h"

static void write_kernel(const struct daemon *daemon, const char *script)
{
	char kernel[128];

	snprintf(kernel, sizeof kernel, "\177ELF %s", script);
	write_text(daemon->folder, "kernel", kernel);
}

static void test_a_stop_keeps_them(void **state)
{
	struct daemon daemon;
	struct stat upper;
	char id[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	upper = sandbox_file_status(&daemon, id, "upper");
	for (int boots = 0; boots < 3; boots++) {
		expect_boots(&daemon, id, &upper, boots);
		stop_sandbox(&daemon, id, boots % 2 ? "{\"discard_files\":false}" : NULL, "it was stopped");
		/* Nothing of its VM is there, nor of any other of that template. */
		await_vms(&daemon, "tools", 0);
		ask_sandbox(&daemon, id, "start", "ready");
		expect_files(&daemon, id);
		expect_echo_in(&daemon, id);
	}
	/* From a pause as well. */
	ask_sandbox(&daemon, id, "pause", "paused");
	stop_sandbox(&daemon, id, "{}", "it was stopped");
	expect_receipt(&daemon, id, 4, bytes_of(&daemon, id));
	finish(&daemon);
}

/* Started again it has the template's files. */
static void test_a_stop_may_discard_them(void **state)
{
	static const char discard[] = "{\"discard_files\":true}";
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	stop_sandbox(&daemon, id, discard, "it was stopped, and its files are gone");
	assert_false(sandbox_has_file(&daemon, id, ""));
	ask_sandbox(&daemon, id, "start", "ready");
	expect_files(&daemon, id);
	/* Nor when the request is not sound. */
	call_sandbox(&daemon, "POST", id, "/stop?wait=maybe", discard, &answer);
	assert_int_equal(answer.status, 400);
	answer_finish(&answer);
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	expect_files(&daemon, id);
	/* That may be thought of later. */
	stop_sandbox(&daemon, id, discard, "it was stopped");
	assert_false(sandbox_has_file(&daemon, id, ""));
	ask_sandbox(&daemon, id, "start", "ready");
	expect_boots(&daemon, id,
		&(struct stat){.st_ino = sandbox_file_status(&daemon, id, "upper").st_ino,
			.st_dev = sandbox_file_status(&daemon, id, "upper").st_dev},
		0);
	expect_receipt(&daemon, id, 5, bytes_of(&daemon, id));
	finish(&daemon);
}

static void test_a_start_needs_no_template(void **state)
{
	struct daemon daemon;
	struct stat upper;
	char id[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	upper = sandbox_file_status(&daemon, id, "upper");
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"32M\"}");
	ask_sandbox(&daemon, id, "start", "ready");
	expect_boots(&daemon, id, &upper, 1);
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	ask_sandbox(&daemon, id, "start", "ready");
	expect_boots(&daemon, id, &upper, 2);
	expect_echo_in(&daemon, id);
	/* The lower has no other name now. */
	assert_int_equal(sandbox_file_status(&daemon, id, "lower").st_nlink, 1);
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* A start that does not come about leaves it stopped, with its files. */
static void test_starts_that_fail(void **state)
{
	static const struct {
		const char *script, *reason;
	} cases[] = {
		{"boot exit:2", "its VM ended: the vmm refused its command line (vmm: fake "
				"vmm: told to exit)"},
		{"boot identity-refused", NULL},
	};
	struct daemon daemon;
	struct answer answer;
	struct stat upper;
	char id[32], message[512], path[160];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	upper = sandbox_file_status(&daemon, id, "upper");
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		write_kernel(&daemon, cases[i].script);
		call_sandbox(&daemon, "POST", id, "/start", NULL, &answer);
		assert_int_equal(answer.status, 502);
		assert_string_equal(error_member(&answer, "code"), "guest_lost");
		if (cases[i].reason)
			assert_string_equal(error_member(&answer, "message"), cases[i].reason);
		answer_finish(&answer);
		await_state(&daemon, id, "stopped");
	}
	write_kernel(&daemon, "boot");
	write_image(&daemon, 'x');
	sandbox_file(&daemon, id, "image", path);
	snprintf(message, sizeof message,
		"the files of sandbox %s lie upon the image %s: it has changed since: put it back as it was; "
		"or stop the sandbox with \"discard_files\": true, and it starts without them",
		id, path);
	expect_refusal_of(&daemon, "POST", id, "/start", NULL, 409, "conflict", message);
	/* Where that could not be linked, it is the one of that path. */
	assert_int_equal(unlink(path), 0);
	snprintf(message, sizeof message,
		"the files of sandbox %s lie upon the image %s/image: it has changed since: put it back as "
		"it "
		"was; or stop the sandbox with \"discard_files\": true, and it starts without them",
		id, daemon.folder);
	expect_refusal_of(&daemon, "POST", id, "/start", NULL, 409, "conflict", message);
	sandbox_file(&daemon, id, "boot.json", path);
	assert_int_equal(truncate(path, 10), 0);
	call_sandbox(&daemon, "POST", id, "/start", NULL, &answer);
	assert_int_equal(answer.status, 500);
	assert_string_equal(error_member(&answer, "code"), "internal");
	answer_finish(&answer);
	await_state(&daemon, id, "stopped");
	/* Two of these had begun. */
	expect_boots(&daemon, id, &upper, 2);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* With all places taken, that of a warm VM is made free; without one it waits, and may be given up. */
static void test_a_start_wants_a_place(void **state)
{
	static char *const two[] = {"--pool", "1", "--max-vms", "2", "--queue-max", "1", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32], third[32], code[64];

	(void)state;
	start_with_templates_and(&daemon, "boot", two);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	create_sandbox(&daemon, on_it, id);
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	create_sandbox(&daemon, "{}", other);
	await_pool(&daemon, "warm", 1);
	ask_sandbox(&daemon, id, "start", "ready");
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	create_sandbox(&daemon, "{}", third);
	call_sandbox(&daemon, "POST", id, "/start?wait=false", "", &answer);
	await_state(&daemon, id, "starting");
	delete_sandbox(&daemon, other);
	await_operation(&daemon, &answer, "start", "done", other, code);
	expect_echo_in(&daemon, id);
	delete_sandbox(&daemon, id);
	delete_sandbox(&daemon, third);
	finish(&daemon);
}

/* Deleted while it boots: nothing is left of that, either. */
static void test_a_start_may_be_given_up(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], same[32], code[64];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	write_kernel(&daemon, "boot mute");
	call_sandbox(&daemon, "POST", id, "/start?wait=false", "", &answer);
	await_state(&daemon, id, "starting");
	await_pool(&daemon, "busy", 1);
	delete_sandbox(&daemon, id);
	await_operation(&daemon, &answer, "start", "failed", same, code);
	assert_string_equal(code, "conflict");
	assert_false(sandbox_has_file(&daemon, id, ""));
	await_pool(&daemon, "busy", 0);
	write_kernel(&daemon, "boot");
	finish(&daemon);
}

/* --- VMs that are lost --- */

static void kill_vm(const struct daemon *daemon, const char *id)
{
	char vm[32], path[256];
	FILE *file;
	int pid = 0;

	vm_of(daemon, id, vm);
	snprintf(path, sizeof path, "%s/%s/cgroup.procs", daemon->cgroups, vm);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &pid), 1);
	fclose(file);
	assert_int_equal(kill(pid, SIGKILL), 0);
}

/* All that a killed daemon has left. */
static void kill_all(const struct daemon *daemon)
{
	DIR *listing = opendir(daemon->cgroups);
	struct dirent *entry;

	assert_non_null(listing);
	while ((entry = readdir(listing))) {
		char path[208];

		snprintf(path, sizeof path, "%s/%.64s", daemon->cgroups, entry->d_name);
		if (!strncmp(entry->d_name, "vm-", 3))
			write_text(path, "cgroup.kill", "1");
	}
	closedir(listing);
}

static void expect_lost_command(const struct daemon *daemon, const char *id, const char *command)
{
	struct answer answer;
	char rest[64], message[256];

	snprintf(rest, sizeof rest, "/commands/%s", command);
	snprintf(message, sizeof message,
		"no result: sandbox %s stopped: its VM ended: the vmm was killed by signal 9 (Killed)", id);
	call_sandbox(daemon, "GET", id, rest, NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"ended\"");
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	assert_string_equal(error_member(&answer, "message"), message);
	answer_finish(&answer);
}

static void test_they_outlive_their_vm(void **state)
{
	struct daemon daemon;
	struct stat upper;
	char id[32], command[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	upper = sandbox_file_status(&daemon, id, "upper");
	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	kill_vm(&daemon, id);
	await_state(&daemon, id, "stopped");
	expect_reason(&daemon, id, "its VM ended: the vmm was killed by signal 9 (Killed)");
	expect_lost_command(&daemon, id, command);
	ask_sandbox(&daemon, id, "start", "ready");
	expect_boots(&daemon, id, &upper, 1);
	ask_sandbox(&daemon, id, "pause", "paused");
	kill_vm(&daemon, id);
	await_state(&daemon, id, "stopped");
	ask_sandbox(&daemon, id, "start", "ready");
	expect_boots(&daemon, id, &upper, 2);
	expect_echo_in(&daemon, id);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_they_outlive_the_daemon(void **state)
{
	struct daemon daemon;
	struct stat upper;
	char id[32], stopped[32], both[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	create_sandbox(&daemon, on_it, stopped);
	create_sandbox(&daemon, on_it, both);
	stop_sandbox(&daemon, stopped, NULL, "it was stopped");
	upper = sandbox_file_status(&daemon, id, "upper");
	terminate(&daemon);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "stopped");
	expect_reason(&daemon, id, "its VM ended: the daemon is stopping");
	expect_reason(&daemon, stopped, "it was stopped");
	ask_sandbox(&daemon, id, "start", "ready");
	expect_boots(&daemon, id, &upper, 1);
	/* A killed one leaves it running... */
	flush_rows(&daemon, id);
	kill_daemon(&daemon);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "ready");
	expect_echo_in(&daemon, id);
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	ask_sandbox(&daemon, both, "start", "ready");
	upper = sandbox_file_status(&daemon, both, "upper");
	/* ...unless that ends meanwhile, as both do with the host. */
	kill_daemon(&daemon);
	kill_all(&daemon);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, both, "stopped");
	expect_reason(&daemon, both, "the daemon and its VM ended");
	/* Which is noted. */
	terminate(&daemon);
	daemon_launch(&daemon, "", pool_of_one, true);
	expect_reason(&daemon, both, "the daemon and its VM ended");
	ask_sandbox(&daemon, both, "start", "ready");
	expect_boots(&daemon, both, &upper, 2);
	for (int i = 0; i < 3; i++)
		delete_sandbox(&daemon, i == 0 ? id : i == 1 ? stopped : both);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stop_keeps_them),
		cmocka_unit_test(test_a_stop_may_discard_them),
		cmocka_unit_test(test_a_start_needs_no_template),
		cmocka_unit_test(test_starts_that_fail),
		cmocka_unit_test(test_a_start_wants_a_place),
		cmocka_unit_test(test_a_start_may_be_given_up),
		cmocka_unit_test(test_they_outlive_their_vm),
		cmocka_unit_test(test_they_outlive_the_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
