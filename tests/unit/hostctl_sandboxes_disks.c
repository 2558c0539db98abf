/* SPDX-License-Identifier: Apache-2.0 */
/* The files of sandboxes whose template has a disk, with a vmm that only plays and writes one block to it. */
#include "tests/unit/hostctl_recovery_fixture.h"

enum { BLOCK = 512 };

static const char on_it[] = "{\"template\":\"tools\"}";

static char *const pool_of_one[] = {"--pool", "1", NULL};

static void start_with_disk(struct daemon *daemon)
{
	start_with_templates_and(daemon, "boot", pool_of_one);
	succeed(daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
}

static void finish(struct daemon *daemon)
{
	await_vms(daemon, "tools", 0);
	succeed(daemon, "DELETE", "/v1/templates/tools", NULL);
	daemon_stop(daemon);
	remove_state(daemon);
}

static void file_of(const struct daemon *daemon, const char *id, const char *name, char path[160])
{
	snprintf(path, 160, "%s/sandboxes/%.40s%s%s", daemon->state, id, name[0] ? "/" : "", name);
}

static bool is_there(const struct daemon *daemon, const char *id)
{
	char path[160];

	file_of(daemon, id, "", path);
	return access(path, F_OK) == 0;
}

static struct stat status_of(const struct daemon *daemon, const char *id, const char *name)
{
	struct stat status;
	char path[160];

	file_of(daemon, id, name, path);
	assert_int_equal(lstat(path, &status), 0);
	return status;
}

/* Both are what the VM has open, by a name. */
static void expect_files(const struct daemon *daemon, const char *id)
{
	char path[160], start[8];
	struct stat lower = status_of(daemon, id, "lower"), upper = status_of(daemon, id, "upper"), disk;
	int fd;

	templates_path(daemon, "tools/disk", path);
	assert_int_equal(stat(path, &disk), 0);
	assert_true(disk.st_ino == lower.st_ino && disk.st_dev == lower.st_dev);
	assert_int_equal(upper.st_nlink, 1);
	assert_int_equal(upper.st_mode & 07777, 0600);
	assert_int_equal(status_of(daemon, id, "").st_mode & 07777, 0700);
	file_of(daemon, id, "", path);
	assert_int_equal(count_entries(path, ""), 4);
	file_of(daemon, id, "upper", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, start, sizeof start), sizeof start);
	close(fd);
	assert_memory_equal(start, "TNDX-COW", sizeof start);
}

/* files: with its control socket, unless it has no VM. */
static void expect_receipt(const struct daemon *daemon, const char *id, long files, long bytes)
{
	struct answer answer;
	const json_t *removed;

	call_sandbox(daemon, "DELETE", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	removed = json_object_get(answer.json, "removed");
	assert_int_equal(json_integer_value(json_object_get(removed, "files")), files);
	assert_int_equal(json_integer_value(json_object_get(removed, "bytes")), bytes);
	assert_string_equal(member(&answer, "verified"), "true");
	answer_finish(&answer);
	assert_false(is_there(daemon, id));
}

static void test_its_files_go_with_it(void **state)
{
	struct daemon daemon;
	char path[160], id[32], other[32];
	long bytes;

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	create_sandbox(&daemon, on_it, other);
	expect_files(&daemon, id);
	expect_files(&daemon, other);
	bytes = (long)status_of(&daemon, id, "upper").st_blocks * BLOCK;
	assert_true(bytes > 0);
	expect_receipt(&daemon, id, 3, bytes);
	expect_files(&daemon, other);
	delete_sandbox(&daemon, other);
	/* Nor is their common folder left. */
	snprintf(path, sizeof path, "%s/sandboxes", daemon.state);
	assert_int_equal(access(path, F_OK), -1);
	/* Without a disk there is nothing of the kind. */
	create_sandbox(&daemon, "{}", id);
	assert_false(is_there(&daemon, id));
	expect_receipt(&daemon, id, 1, 0);
	finish(&daemon);
}

static void test_one_that_cannot_be_kept_is_none(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char path[160], message[512];

	(void)state;
	start_with_disk(&daemon);
	snprintf(path, sizeof path, "%s/sandboxes", daemon.state);
	write_text(daemon.state, "sandboxes", "in the way");
	snprintf(message, sizeof message,
		"cannot open the state folder %s: Not a directory: name a folder that can be written with "
		"--state-dir",
		path);
	call(&daemon, "POST", "/v1/sandboxes", on_it, &answer);
	expect_error_answer(&answer, 500, "internal", message);
	assert_int_equal(unlink(path), 0);
	finish(&daemon);
}

/* One that is started again has the template's files. */
static void test_a_stop_discards_them(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stat before;
	char id[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	before = status_of(&daemon, id, "upper");
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	assert_false(is_there(&daemon, id));
	ask_sandbox(&daemon, id, "start", "ready");
	expect_files(&daemon, id);
	assert_true(before.st_ctim.tv_sec != status_of(&daemon, id, "upper").st_ctim.tv_sec ||
		    before.st_ctim.tv_nsec != status_of(&daemon, id, "upper").st_ctim.tv_nsec);
	expect_receipt(&daemon, id, 3, (long)status_of(&daemon, id, "upper").st_blocks * BLOCK);
	finish(&daemon);
}

static void test_the_next_daemon_knows_them(void **state)
{
	struct daemon daemon;
	char path[160], id[32], failed[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	create_sandbox(&daemon, on_it, failed);
	flush_rows(&daemon, id);
	kill_daemon(&daemon);
	daemon.keep_kernel = true;
	/* What no row tells of. */
	file_of(&daemon, "sb-0123456789abcdef", "", path);
	assert_int_equal(mkdir(path, 0700), 0);
	write_text(path, "upper", "left");
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "ready");
	assert_false(is_there(&daemon, "sb-0123456789abcdef"));
	expect_files(&daemon, id);
	expect_receipt(&daemon, id, 3, (long)status_of(&daemon, id, "upper").st_blocks * BLOCK);
	/* Ended with its daemon it has failed, and keeps them until it is deleted. */
	assert_int_equal(kill(daemon.pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(&daemon), 0);
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, failed, "failed");
	expect_files(&daemon, failed);
	expect_receipt(&daemon, failed, 3, (long)status_of(&daemon, failed, "upper").st_blocks * BLOCK);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_its_files_go_with_it),
		cmocka_unit_test(test_one_that_cannot_be_kept_is_none),
		cmocka_unit_test(test_a_stop_discards_them),
		cmocka_unit_test(test_the_next_daemon_knows_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
