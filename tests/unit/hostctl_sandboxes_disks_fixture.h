/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes of a template with a disk, and their files, with a vmm that only plays, writes a block to the
 * disk, and counts in it how often it was booted from. */
#ifndef TESTS_UNIT_HOSTCTL_SANDBOXES_DISKS_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_SANDBOXES_DISKS_FIXTURE_H

#include "tests/unit/hostctl_recovery_fixture.h"
#include "tests/unit/hostctl_sandbox_files.h"

enum { BLOCK = 512, BOOTS_AT = 8, NAMES = 6 /* four files, and the two of every folder */ };

static const char on_it[] = "{\"template\":\"tools\"}";

static char *const pool_of_one[] = {"--pool", "1", NULL};

static inline void start_with_disk(struct daemon *daemon)
{
	start_with_templates_and(daemon, "boot", pool_of_one);
	succeed(daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
}

static inline void finish(struct daemon *daemon)
{
	await_vms(daemon, "tools", 0);
	succeed(daemon, "DELETE", "/v1/templates/tools", NULL);
	daemon_stop(daemon);
	remove_state(daemon);
}

/* Both are what the VM has open, by a name. */
static inline void expect_files(const struct daemon *daemon, const char *id)
{
	char path[160], start[8];
	struct stat lower = sandbox_file_status(daemon, id, "lower"),
		    upper = sandbox_file_status(daemon, id, "upper"), disk;
	int fd;

	templates_path(daemon, "tools/disk", path);
	assert_int_equal(stat(path, &disk), 0);
	assert_true(disk.st_ino == lower.st_ino && disk.st_dev == lower.st_dev);
	assert_int_equal(upper.st_nlink, 1);
	assert_int_equal(upper.st_mode & 07777, 0600);
	assert_int_equal(sandbox_file_status(daemon, id, "").st_mode & 07777, 0700);
	sandbox_file(daemon, id, "", path);
	assert_int_equal(count_entries(path, ""), NAMES);
	sandbox_file(daemon, id, "upper", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, start, sizeof start), sizeof start);
	close(fd);
	assert_memory_equal(start, "TNDX-COW", sizeof start);
}

/* Of the host's disk, what is only its own. */
static inline long bytes_of(const struct daemon *daemon, const char *id)
{
	return (long)(sandbox_file_status(daemon, id, "upper").st_blocks +
		       sandbox_file_status(daemon, id, "boot.json").st_blocks) *
	       BLOCK;
}

/* files: with its control socket, unless it has no VM. */
static inline void expect_receipt(const struct daemon *daemon, const char *id, long files, long bytes)
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
	assert_false(sandbox_has_file(daemon, id, ""));
}

static inline void stop_sandbox(
	const struct daemon *daemon, const char *id, const char *body, const char *reason)
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/stop", body, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "state"), "\"stopped\"");
	assert_string_equal(member(&answer, "vm"), "null");
	answer_finish(&answer);
	expect_reason(daemon, id, reason);
}

/* How often its upper was booted from; and that it is that one. */
static inline void expect_boots(
	const struct daemon *daemon, const char *id, const struct stat *upper, int boots)
{
	struct stat now = sandbox_file_status(daemon, id, "upper");
	char path[160], count;
	int fd;

	assert_true(now.st_ino == upper->st_ino && now.st_dev == upper->st_dev);
	sandbox_file(daemon, id, "upper", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &count, 1, BOOTS_AT), 1);
	close(fd);
	assert_int_equal(count, boots);
}

static inline void expect_echo_in(const struct daemon *daemon, const char *id)
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/run", "{\"argv\":[\"echo\",\"a\"]}", &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"a\\n\",\"bytes\":2,\"dropped\":0}");
	answer_finish(&answer);
}

static inline void terminate(struct daemon *daemon)
{
	assert_int_equal(kill(daemon->pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(daemon), 0);
	daemon->keep_kernel = true;
}

#endif
