/* SPDX-License-Identifier: Apache-2.0 */
/* Starts that could end sandboxes by mistake: refused before anything is touched, in one sentence with the
 * mend. */
#include "tests/unit/hostctl_recovery_fixture.h"

#include "host-ctl/journal/journal.h"

enum { LOG_MAX = 64 * 1024 };

/* What a daemon logs while stderr is a file. */
struct capture {
	FILE *file;
	int kept;
};

static void capture_begin(struct capture *capture)
{
	capture->file = tmpfile();
	assert_non_null(capture->file);
	capture->kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	assert_true(capture->kept >= 0);
	assert_int_equal(dup2(fileno(capture->file), STDERR_FILENO), STDERR_FILENO);
	setenv("TINDERBOX_TEST_LOG", "1", 1);
}

static void capture_end(struct capture *capture, char text[LOG_MAX])
{
	ssize_t length = pread(fileno(capture->file), text, LOG_MAX - 1, 0);

	assert_true(length >= 0);
	text[length] = '\0';
	unsetenv("TINDERBOX_TEST_LOG");
	assert_int_equal(dup2(capture->kept, STDERR_FILENO), STDERR_FILENO);
	close(capture->kept);
	fclose(capture->file);
}

/* The daemon ends with status 1, and these words are its only error. */
static void refuses_to_start(struct daemon *daemon, const char *wanted)
{
	static char text[LOG_MAX];
	struct capture capture;
	int ready = open("/dev/null", O_WRONLY | O_CLOEXEC);
	const char *error;

	capture_begin(&capture);
	fflush(NULL);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (daemon->pid == 0)
		daemon_child(daemon, ready, pool_of_two);
	close(ready);
	assert_int_equal(daemon_wait(daemon), 1);
	capture_end(&capture, text);
	error = strstr(text, "error: ");
	assert_non_null(error);
	assert_null(strstr(error + 1, "error: "));
	error += strlen("error: ");
	text[error - text + strcspn(error, "\n")] = '\0';
	assert_string_equal(error, wanted);
}

static void launch_and_log(struct daemon *daemon, const char *wanted)
{
	static char text[LOG_MAX];
	struct capture capture;

	capture_begin(&capture);
	daemon_launch(daemon, "boot", pool_of_two, true);
	capture_end(&capture, text);
	if (!strstr(text, wanted))
		fail_msg("no '%s' in:\n%s", wanted, text);
}

struct left {
	struct daemon daemon;
	char id[32], vm[32];
	long pid;
};

/* A sandbox and two VMs of the pool, whose daemon was killed. */
static void leave_behind(struct left *left)
{
	create_sandbox(&left->daemon, "{}", left->id);
	vm_of(&left->daemon, left->id, left->vm);
	left->pid = pid_of_vm(&left->daemon, left->vm);
	assert_true(left->pid > 0);
	await_pool(&left->daemon, "warm", 2);
	kill_daemon(&left->daemon);
}

static void expect_untouched(const struct left *left)
{
	char socket[192];

	assert_int_equal(kill((pid_t)left->pid, 0), 0);
	assert_int_equal(count_entries(left->daemon.cgroups, "vm-"), 3);
	snprintf(socket, sizeof socket, "%s/vm/%s", left->daemon.folder, left->vm);
	assert_int_equal(access(socket, F_OK), 0);
}

static void expect_taken_back(struct left *left)
{
	daemon_launch(&left->daemon, "boot", pool_of_two, true);
	await_state(&left->daemon, left->id, "ready");
	assert_int_equal(pid_of_vm(&left->daemon, left->vm), left->pid);
	delete_sandbox(&left->daemon, left->id);
}

static void journal_path(const struct daemon *daemon, const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", daemon->state, name);
}

static void test_a_journal_that_cannot_be_opened(void **state)
{
	struct left left;
	char path[128], aside[128], wanted[1024];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	journal_path(&left.daemon, "journal.db", path);
	journal_path(&left.daemon, "aside", aside);
	assert_int_equal(rename(path, aside), 0);
	assert_int_equal(symlink("aside", path), 0);
	snprintf(wanted, sizeof wanted,
		"cannot open the journal %s: Too many levels of symbolic links: name a folder that can be "
		"written "
		"with --state-dir. 3 VMs that an earlier daemon left, sandboxes perhaps, stay as they are: "
		"mend "
		"that, and the next start takes sandboxes back, or end them: `echo 1 | tee %s/*/cgroup.kill`",
		path, left.daemon.cgroups);
	for (int i = 0; i < 2; i++) {
		refuses_to_start(&left.daemon, wanted);
		expect_untouched(&left);
	}
	assert_int_equal(rename(aside, path), 0);
	expect_taken_back(&left);
	/* Where nothing is left, it goes on without sandboxes. */
	kill(left.daemon.pid, SIGTERM);
	assert_int_equal(daemon_wait(&left.daemon), 0);
	assert_int_equal(rename(path, aside), 0);
	assert_int_equal(symlink("aside", path), 0);
	launch_and_log(&left.daemon, "Until the daemon is started anew, sandboxes");
	/* What such a one leaves is nobody's. */
	kill_daemon(&left.daemon);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(aside), 0);
	launch_and_log(&left.daemon,
		"removed 2 VMs that an earlier daemon left, 0 of them of sandboxes that cannot be taken "
		"back");
	daemon_stop(&left.daemon);
}

/* As the message says to. */
static void test_vms_that_were_ended_by_hand(void **state)
{
	struct left left;
	char path[128], aside[128], command[256];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	journal_path(&left.daemon, "journal.db", path);
	journal_path(&left.daemon, "aside", aside);
	assert_int_equal(rename(path, aside), 0);
	assert_int_equal(symlink("aside", path), 0);
	snprintf(command, sizeof command, "echo 1 | tee %s/*/cgroup.kill >/dev/null", left.daemon.cgroups);
	assert_int_equal(system(command), 0);
	for (int waited = 0; kill((pid_t)left.pid, 0) == 0 && waited < WAIT_MS; waited += POLL_MS)
		sleep_ms(POLL_MS);
	launch_and_log(&left.daemon, "removed what is left of 3 VMs that had ended");
	assert_int_equal(unlink(aside), 0);
	daemon_stop(&left.daemon);
}

static void test_a_damaged_journal(void **state)
{
	static const char line[] =
		"removed 3 VMs that an earlier daemon left, those of its sandboxes among them: the "
		"journal that knew which was damaged";
	struct left left;
	struct answer answer;
	char path[128];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	/* With its log the file would be mended. */
	journal_path(&left.daemon, "journal.db-wal", path);
	assert_int_equal(unlink(path), 0);
	write_text(left.daemon.state, "journal.db", "this is no database, whoever says so");
	launch_and_log(&left.daemon, line);
	call_sandbox(&left.daemon, "GET", left.id, "", NULL, &answer);
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	daemon_stop(&left.daemon);
	remove_folder(left.daemon.state);
}

static void test_what_was_removed_is_told(void **state)
{
	struct left left;

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	kill((pid_t)left.pid, SIGKILL);
	launch_and_log(&left.daemon,
		"removed 3 VMs that an earlier daemon left, 1 of them of sandboxes that cannot be "
		"taken back");
	delete_sandbox(&left.daemon, left.id);
	kill_daemon(&left.daemon);
	launch_and_log(&left.daemon,
		"removed 2 VMs that an earlier daemon left, 0 of them of sandboxes that cannot be "
		"taken back");
	daemon_stop(&left.daemon);
}

static void test_another_state_folder(void **state)
{
	struct left left;
	char own[96], aside[128], claim[96], wanted[1024];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	snprintf(claim, sizeof claim, "%s/state-dir", left.daemon.folder);
	assert_int_equal(access(claim, F_OK), 0);
	leave_behind(&left);
	memcpy(own, left.daemon.state, sizeof own);
	snprintf(left.daemon.state, sizeof left.daemon.state, "%s.other", left.daemon.folder);
	snprintf(wanted, sizeof wanted,
		"3 VMs that an earlier daemon left do not belong to the state folder %s: start with "
		"--state-dir %s, or end them: `echo 1 | tee %s/*/cgroup.kill`",
		left.daemon.state, own, left.daemon.cgroups);
	refuses_to_start(&left.daemon, wanted);
	expect_untouched(&left);
	/* By another name it is the same. */
	assert_int_equal(symlink(own, left.daemon.state), 0);
	expect_taken_back(&left);
	leave_behind(&left);
	assert_int_equal(unlink(left.daemon.state), 0);
	refuses_to_start(&left.daemon, wanted);
	/* One that is gone cannot be started with. */
	snprintf(aside, sizeof aside, "%s.aside", left.daemon.folder);
	assert_int_equal(rename(own, aside), 0);
	daemon_launch(&left.daemon, "boot", pool_of_two, true);
	assert_int_equal(count_entries(left.daemon.cgroups, "vm-"), 2);
	assert_int_equal(kill(left.daemon.pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(&left.daemon), 0);
	assert_int_equal(access(claim, F_OK), -1);
	remove_folder(aside);
	daemon_launch(&left.daemon, "boot", pool_of_two, true);
	daemon_stop(&left.daemon);
}

static void test_another_runtime_folder(void **state)
{
	struct left left;
	char claim[96], aside[96], wanted[1024];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	snprintf(claim, sizeof claim, "%s/state-dir", left.daemon.folder);
	snprintf(aside, sizeof aside, "%s/aside", left.daemon.folder);
	snprintf(wanted, sizeof wanted,
		"3 VMs that an earlier daemon left, sandboxes perhaps, are in the cgroup root %s, and the "
		"runtime folder %s is not theirs: start with the --runtime-dir that they had, or end them: "
		"`echo 1 | tee %s/*/cgroup.kill`",
		left.daemon.cgroups, left.daemon.folder, left.daemon.cgroups);
	assert_int_equal(rename(claim, aside), 0);
	for (int i = 0; i < 2; i++) {
		refuses_to_start(&left.daemon, wanted);
		expect_untouched(&left);
	}
	/* Nor does one that was cut. */
	write_text(left.daemon.folder, "state-dir", "");
	refuses_to_start(&left.daemon, wanted);
	expect_untouched(&left);
	assert_int_equal(rename(aside, claim), 0);
	expect_taken_back(&left);
	daemon_stop(&left.daemon);
}

static void test_another_cgroup_root(void **state)
{
	struct left left;
	char own[128], wanted[1024];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	memcpy(own, left.daemon.cgroups, sizeof own);
	snprintf(left.daemon.cgroups, sizeof left.daemon.cgroups, "%.100s-other", own);
	snprintf(wanted, sizeof wanted,
		"the VM of sandbox %s (pid %ld) and others that an earlier daemon left are not in the cgroup "
		"root %s: start with --cgroup-root %s, or end them: `echo 1 | tee %s/*/cgroup.kill`",
		left.id, left.pid, left.daemon.cgroups, own, own);
	for (int i = 0; i < 2; i++)
		refuses_to_start(&left.daemon, wanted);
	assert_int_equal(rmdir(left.daemon.cgroups), 0);
	memcpy(left.daemon.cgroups, own, sizeof own);
	expect_untouched(&left);
	expect_taken_back(&left);
	daemon_stop(&left.daemon);
}

static void test_a_journal_that_is_missing(void **state)
{
	static const char *const names[] = {"journal.db", "journal.db-wal"};
	struct left left;
	char path[128], aside[128], wanted[1024];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	snprintf(wanted, sizeof wanted,
		"the journal %s/journal.db is missing or empty: put it back, or mount the disk that has it. "
		"3 "
		"VMs that an earlier daemon left, sandboxes perhaps, stay as they are: mend that, and the "
		"next start takes sandboxes back, or end them: `echo 1 | tee %s/*/cgroup.kill`",
		left.daemon.state, left.daemon.cgroups);
	for (int i = 0; i < 2; i++) {
		journal_path(&left.daemon, names[i], path);
		snprintf(aside, sizeof aside, "%.64s/aside-%s", left.daemon.folder, names[i]);
		assert_int_equal(rename(path, aside), 0);
	}
	for (int i = 0; i < 2; i++) {
		refuses_to_start(&left.daemon, wanted);
		expect_untouched(&left);
	}
	write_text(left.daemon.state, "journal.db", "");
	refuses_to_start(&left.daemon, wanted);
	expect_untouched(&left);
	for (int i = 0; i < 2; i++) {
		journal_path(&left.daemon, names[i], path);
		snprintf(aside, sizeof aside, "%.64s/aside-%s", left.daemon.folder, names[i]);
		assert_int_equal(rename(aside, path), 0);
	}
	expect_taken_back(&left);
	daemon_stop(&left.daemon);
}

static void test_a_journal_of_a_newer_version(void **state)
{
	struct left left;
	char newer[256], wanted[1024];

	(void)state;
	daemon_start(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	change_journal(&left.daemon, "PRAGMA user_version=99");
	snprintf(newer, sizeof newer,
		"the journal %.96s/journal.db is of a newer host-ctl (its version is 99, this one knows %d): "
		"start that one",
		left.daemon.state, JOURNAL_SCHEMA);
	snprintf(wanted, sizeof wanted,
		"%s. 3 VMs that an earlier daemon left, sandboxes perhaps, stay as they are: mend that, and "
		"the next start takes sandboxes back, or end them: `echo 1 | tee %s/*/cgroup.kill`",
		newer, left.daemon.cgroups);
	refuses_to_start(&left.daemon, wanted);
	expect_untouched(&left);
	change_journal(&left.daemon, "PRAGMA user_version=4");
	expect_taken_back(&left);
	assert_int_equal(kill(left.daemon.pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(&left.daemon), 0);
	change_journal(&left.daemon, "PRAGMA user_version=99");
	snprintf(wanted, sizeof wanted, "%s, or give another --state-dir", newer);
	refuses_to_start(&left.daemon, wanted);
	change_journal(&left.daemon, "PRAGMA user_version=4");
	daemon_launch(&left.daemon, "boot", pool_of_two, true);
	daemon_stop(&left.daemon);
}

static void test_a_state_folder_of_a_wrong_mode(void **state)
{
	struct left left;
	char wanted[1024];

	(void)state;
	start_with_templates_and(&left.daemon, "boot", pool_of_two);
	leave_behind(&left);
	assert_int_equal(chmod(left.daemon.state, 0777), 0);
	snprintf(wanted, sizeof wanted,
		"the state folder %s has mode 0777, so that others could replace what VMs are made of: take "
		"that "
		"from them (chmod go-w), or name another with --state-dir",
		left.daemon.state);
	refuses_to_start(&left.daemon, wanted);
	expect_untouched(&left);
	assert_int_equal(chmod(left.daemon.state, 0755), 0);
	left.daemon.keep_kernel = true;
	expect_taken_back(&left);
	daemon_stop(&left.daemon);
	remove_state(&left.daemon);
}

static void test_a_state_folder_that_is_none(void **state)
{
	struct daemon daemon;
	char wanted[1024];

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	write_text(daemon.folder, "kernel", "\177ELF boot");
	snprintf(daemon.state, sizeof daemon.state, "%s/initrd", daemon.folder);
	snprintf(wanted, sizeof wanted,
		"cannot open the state folder %s: Not a directory: name a folder that can be written with "
		"--state-dir",
		daemon.state);
	refuses_to_start(&daemon, wanted);
	remove_folder(daemon.folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_journal_that_cannot_be_opened),
		cmocka_unit_test(test_vms_that_were_ended_by_hand),
		cmocka_unit_test(test_a_damaged_journal),
		cmocka_unit_test(test_what_was_removed_is_told),
		cmocka_unit_test(test_another_state_folder),
		cmocka_unit_test(test_another_runtime_folder),
		cmocka_unit_test(test_another_cgroup_root),
		cmocka_unit_test(test_a_journal_that_is_missing),
		cmocka_unit_test(test_a_journal_of_a_newer_version),
		cmocka_unit_test(test_a_state_folder_of_a_wrong_mode),
		cmocka_unit_test(test_a_state_folder_that_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
