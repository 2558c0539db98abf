/* SPDX-License-Identifier: Apache-2.0 */
/* Templates with a disk, and the VMs that have one; with a vmm that only plays, and the real mkfs.ext4. */
#include "tests/unit/hostctl_templates_fixture.h"

enum {
	DISK_BYTES = 64 * 1024 * 1024,
	MAGIC_AT = 1024 + 56, /* s_magic of ext4's superblock */
	LOG_BLOCK_AT = 1024 + 24,
	ROOM_KIB = 8 * 1024, /* more than an empty file system takes */
};

static const char build_disk[] = "{\"name\":\"tools\",\"disk\":\"64M\"}";
static const char run_on_it[] = "{\"argv\":[\"echo\",\"a\"],\"template\":\"tools\"}";

static void expect_echo_on_it(const struct daemon *daemon)
{
	struct answer answer;

	run_command(daemon, run_on_it, &answer);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"a\\n\",\"bytes\":2,\"dropped\":0}");
	answer_finish(&answer);
}

/* What is in the state folder: nothing of a VM's disk ever is. */
static int count_state(const struct daemon *daemon)
{
	return count_entries(daemon->state, "");
}

/* The file is sparse, is ext4 with blocks of an upper's size, and was written to by the guest that was built.
 */
static void expect_disk(const struct daemon *daemon)
{
	unsigned char start[2048];
	struct stat status;
	char path[160];
	int fd;

	templates_path(daemon, "tools/disk", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_size, DISK_BYTES);
	assert_in_range(status.st_blocks / 2, 1, ROOM_KIB);
	assert_int_equal(status.st_mode & 07777, 0600);
	assert_int_equal(read(fd, start, sizeof start), sizeof start);
	close(fd);
	assert_memory_equal(start, "built", 5);
	assert_memory_equal(start + MAGIC_AT, "\x53\xef", 2);
	assert_int_equal(start[LOG_BLOCK_AT], 2);
}

static void expect_description(const struct daemon *daemon)
{
	struct answer answer;

	call(daemon, "GET", "/v1/templates/tools", NULL, &answer);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(answer.json, "inputs"), "disk_bytes")),
		DISK_BYTES);
	assert_null(json_object_get(answer.json, "disk_sum"));
	answer_finish(&answer);
}

/* The vmm that plays refuses an upper that is locked, not empty or cannot be as large as the disk. */
static void test_runs_have_a_disk_of_their_own(void **state)
{
	static char *const processes[] = {"0", "2"};
	struct daemon daemon;

	(void)state;
	for (size_t i = 0; i < sizeof processes / sizeof processes[0]; i++) {
		int before;

		daemon_folder(&daemon);
		daemon.templates = true;
		daemon.standby = processes[i];
		daemon_launch(&daemon, "boot", pool_of_one, true);
		before = count_state(&daemon);
		succeed(&daemon, "POST", "/v1/templates", build_disk);
		expect_disk(&daemon);
		expect_description(&daemon);
		for (int runs = 0; runs < 3; runs++)
			expect_echo_on_it(&daemon);
		assert_int_equal(count_state(&daemon), before);
		await_vms(&daemon, "tools", 0);
		finish(&daemon);
	}
}

static void test_the_next_daemon_loads_it(void **state)
{
	static char *const none[] = {"--pool", "0", "--mkfs", "/nowhere/mkfs.ext4", NULL};
	struct daemon daemon;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", build_disk);
	stop(&daemon);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "", none, false);
	expect_state(&daemon, "tools", "stored", NULL);
	expect_echo_on_it(&daemon);
	await_vms(&daemon, "tools", 0);
	finish(&daemon);
}

static void test_a_disk_that_is_not_whole_is_named(void **state)
{
	static const char cut
		[] = "cannot load the disk of template tools: it has 4096 bytes, not 67108864: build "
		     "the template again",
	     missing[] = "cannot load the disk of template tools: No such file or directory",
	     linked[] =
		     "cannot load the disk of template tools: it is a symbolic link, which is not followed: "
		     "build the template again";
	static char *const none[] = {"--pool", "0", NULL};
	struct daemon daemon;
	char path[160];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	for (int i = 0; i < 3; i++) {
		succeed(&daemon, "POST", "/v1/templates", build_disk);
		stop(&daemon);
		templates_path(&daemon, "tools/disk", path);
		if (i == 0)
			assert_int_equal(truncate(path, 4096), 0);
		else
			assert_int_equal(unlink(path), 0);
		if (i == 2)
			assert_int_equal(symlink("/etc/passwd", path), 0);
		daemon.keep_kernel = true;
		daemon_launch(&daemon, "", none, false);
		expect_refused(&daemon, "POST", "/v1/run", run_on_it, "build_failed",
			i == 0	 ? cut
			: i == 1 ? missing
				 : linked);
	}
	finish(&daemon);
}

/* --- what is on it --- */

static char *const none_warm[] = {"--pool", "0", NULL};

static void open_disk(const struct daemon *daemon, int flags, int *fd)
{
	char path[160];

	templates_path(daemon, "tools/disk", path);
	*fd = open(path, flags | O_CLOEXEC);
	assert_true(*fd >= 0);
}

/* One bit, and the file's times are as before. */
static void flip(const struct daemon *daemon, off_t at)
{
	struct timespec times[2];
	struct stat status;
	char byte = 0;
	int fd;

	open_disk(daemon, O_RDWR, &fd);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	times[0] = status.st_atim;
	times[1] = status.st_mtim;
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

static void read_sum(const struct daemon *daemon, char sum[32])
{
	char path[160];
	json_t *about;
	const char *text;

	templates_path(daemon, "tools/template.json", path);
	about = json_load_file(path, 0, NULL);
	text = json_string_value(json_object_get(about, "disk_sum"));
	assert_non_null(text);
	assert_int_equal(strlen(text), 16);
	snprintf(sum, 32, "%s", text);
	json_decref(about);
}

/* value NULL: it is taken away. */
static void write_sum(const struct daemon *daemon, const char *value)
{
	char path[160];
	json_t *about;

	templates_path(daemon, "tools/template.json", path);
	about = json_load_file(path, 0, NULL);
	if (value)
		assert_int_equal(json_object_set_new(about, "disk_sum", json_string(value)), 0);
	else
		assert_int_equal(json_object_del(about, "disk_sum"), 0);
	assert_int_equal(json_dump_file(about, path, 0), 0);
	json_decref(about);
}

static void expect_altered(const struct daemon *daemon, const char *sum)
{
	static const char start[] = "cannot load the disk of template tools: it was changed since, or is "
				    "damaged: its checksum is ";
	struct answer answer;
	const char *message;
	char end[96];

	snprintf(end, sizeof end, ", not %s: build the template again", sum);
	call(daemon, "POST", "/v1/run", run_on_it, &answer);
	message = error_member(&answer, "message");
	assert_string_equal(error_member(&answer, "code"), "build_failed");
	assert_memory_equal(message, start, sizeof start - 1);
	assert_string_equal(message + sizeof start - 1 + 16, end);
	answer_finish(&answer);
	expect_state(daemon, "tools", "damaged", NULL);
	expect_echo(daemon);
}

/* In what has data, in a hole, and in the very last byte; and put back it is good again. */
static void test_a_disk_that_was_altered_is_named(void **state)
{
	static const off_t places[] = {0, DISK_BYTES / 2 + 5000, DISK_BYTES - 1};
	struct daemon daemon;
	char sum[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", build_disk);
	read_sum(&daemon, sum);
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		stop(&daemon);
		daemon.keep_kernel = true;
		flip(&daemon, places[i]);
		daemon_launch(&daemon, "", none_warm, false);
		expect_altered(&daemon, sum);
		stop(&daemon);
		flip(&daemon, places[i]);
		daemon_launch(&daemon, "", none_warm, false);
		expect_echo_on_it(&daemon);
		await_vms(&daemon, "tools", 0);
	}
	/* No client is told of it. */
	expect_description(&daemon);
	finish(&daemon);
}

/* By whatever tool it was copied: its holes are zeros, and its time is another. */
static void test_a_copy_of_a_disk_is_good(void **state)
{
	struct daemon daemon;
	struct stat status;
	char path[160], command[1024];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", build_disk);
	stop(&daemon);
	daemon.keep_kernel = true;
	templates_path(&daemon, "tools/disk", path);
	snprintf(command, sizeof command, "cp --sparse=never %s %s.copy && mv %s.copy %s", path, path, path,
		path);
	assert_int_equal(system(command), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_true(status.st_blocks >= DISK_BYTES / 512);
	daemon_launch(&daemon, "", none_warm, false);
	expect_echo_on_it(&daemon);
	await_vms(&daemon, "tools", 0);
	finish(&daemon);
}

static void test_checksums_of_a_disk(void **state)
{
	static const char none[] = "template tools cannot be used: disk_sum in its template.json is not a "
				   "checksum of 16 hexadecimal digits: build it again";
	struct daemon daemon;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", build_disk);
	stop(&daemon);
	daemon.keep_kernel = true;
	/* None. */
	write_sum(&daemon, "0123456789ABCDEF");
	daemon_launch(&daemon, "", none_warm, false);
	expect_refused(&daemon, "POST", "/v1/run", run_on_it, "build_failed", none);
	write_sum(&daemon, "0123456789abcde");
	expect_refused(&daemon, "POST", "/v1/run", run_on_it, "build_failed", none);
	/* Another's. */
	write_sum(&daemon, "0123456789abcdef");
	expect_altered(&daemon, "0123456789abcdef");
	stop(&daemon);
	/* As an older daemon has left it. */
	write_sum(&daemon, NULL);
	daemon_launch(&daemon, "", none_warm, false);
	expect_echo_on_it(&daemon);
	await_vms(&daemon, "tools", 0);
	finish(&daemon);
}

/* --- mkfs.ext4 --- */

static void write_program(const struct daemon *daemon, const char *text)
{
	char path[160];

	write_text(daemon->folder, "mkfs", text);
	snprintf(path, sizeof path, "%s/mkfs", daemon->folder);
	assert_int_equal(chmod(path, 0700), 0);
}

/* Nothing is left of such a build. */
static void test_without_mkfs_a_build_fails_with_the_reason(void **state)
{
	static const struct {
		const char *program, *message;
	} cases[] = {
		{NULL, "template tools could not be built: a disk needs mkfs.ext4, and %s/mkfs cannot be "
		       "started: "
		       "No such file or directory: install e2fsprogs, or name it with --mkfs"},
		{"#!/bin/sh\necho first >&2\necho 'no room\033[1m' >&2\nexit 3\n",
			"template tools could not be built: mkfs.ext4 could not make its disk (status 3): "
			"first; "
			"no room?[1m"},
		{"#!/bin/sh\nkill -KILL $$\n",
			"template tools could not be built: mkfs.ext4 could not make its disk (signal 9): "},
	};
	char program[160], message[512];
	char *const options[] = {"--pool", "1", "--mkfs", program, NULL};
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	snprintf(program, sizeof program, "%s/mkfs", daemon.folder);
	daemon_launch(&daemon, "boot", options, true);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (cases[i].program)
			write_program(&daemon, cases[i].program);
		snprintf(message, sizeof message, cases[i].message, daemon.folder);
		expect_refused(&daemon, "POST", "/v1/templates", build_disk, "build_failed", message);
		assert_int_equal(count_templates(&daemon, ".building"), 0);
		assert_int_equal(count_templates(&daemon, "tools"), 0);
	}
	/* It is not asked where there is no disk. */
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	unlink(program);
	finish(&daemon);
}

/* What a guest wrote is on its disk before it is saved, or there is no template; nobody waits for one
 * without. */
static void test_a_guest_that_keeps_its_files_in_memory(void **state)
{
	static const struct {
		const char *script, *message;
	} cases[] = {
		{"boot brought-status:5", "template tools could not be built: the guest's files could not be "
					  "brought to its disk: Input/output error"},
		{"boot brought-status:28",
			"template tools could not be built: the guest's files could not be "
			"brought to its disk: the guest's disk is full"},
		{"boot brought-garbage",
			"template tools could not be built: the agent did not answer whether "
			"the guest's files are on its disk"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct daemon daemon;

		start_with_templates_and(&daemon, cases[i].script, pool_of_one);
		expect_refused(
			&daemon, "POST", "/v1/templates", build_disk, "build_failed", cases[i].message);
		assert_int_equal(count_templates(&daemon, ".building"), 0);
		assert_int_equal(count_templates(&daemon, "tools"), 0);
		succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
		finish(&daemon);
	}
}

static void test_sizes_are_refused_by_name(void **state)
{
	static const char message[] = "disk is not a size from 16M to 1024G in whole MiB, as a string";
	static const char *const sizes[] = {
		"64", "\"\"", "\"15M\"", "\"1025G\"", "\"17000K\"", "\"64m\"", "\"-64M\"", "null", "true"};
	struct daemon daemon;
	char body[96];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		snprintf(body, sizeof body, "{\"name\":\"tools\",\"disk\":%s}", sizes[i]);
		expect_refused(&daemon, "POST", "/v1/templates", body, "invalid", message);
	}
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"16M\"}");
	expect_echo_on_it(&daemon);
	await_vms(&daemon, "tools", 0);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs_have_a_disk_of_their_own),
		cmocka_unit_test(test_the_next_daemon_loads_it),
		cmocka_unit_test(test_a_disk_that_is_not_whole_is_named),
		cmocka_unit_test(test_a_disk_that_was_altered_is_named),
		cmocka_unit_test(test_a_copy_of_a_disk_is_good),
		cmocka_unit_test(test_checksums_of_a_disk),
		cmocka_unit_test(test_without_mkfs_a_build_fails_with_the_reason),
		cmocka_unit_test(test_a_guest_that_keeps_its_files_in_memory),
		cmocka_unit_test(test_sizes_are_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
