/* SPDX-License-Identifier: Apache-2.0 */
/* The options on the command line, and what is done to the initramfs. The mounts themselves are tested in a
 * VM. */
#include "tests/support/unit.h"

#include "common/log.h"
#include "guest-init/mounts.h"
#include "guest-init/options.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_options(const char *cmdline, const char *root, const char *upper, const char *warning)
{
	struct warnings warnings = {0};
	struct options options;

	options_parse(cmdline, &options, &warnings);
	assert_string_equal(options.root, root);
	assert_string_equal(options.upper, upper);
	assert_int_equal(warnings.length, strlen(warning));
	assert_memory_equal(warnings.text, warning, warnings.length);
}

static void options_have_defaults_and_are_checked(void **state)
{
	char longest[OPTIONS_VALUE_MAX + 32];

	(void)state;
	log_init("test", LOG_LEVEL_ERROR);
	expect_options("", "/dev/vda", "tmpfs", "");
	expect_options("quiet root=/dev/sda panic=-1\n", "/dev/vda", "tmpfs", "");
	expect_options("tinderbox.root=/dev/vdb", "/dev/vdb", "tmpfs", "");
	expect_options("a tinderbox.root=none  tinderbox.upper=/dev/vdc\n", "none", "/dev/vdc", "");
	expect_options("tinderbox.upper=/dev/vdb tinderbox.upper=tmpfs", "/dev/vda", "tmpfs", "");
	expect_options("xtinderbox.root=none tinderbox.", "/dev/vda", "tmpfs", "");
	expect_options("tinderbox.root=vdb", "/dev/vda", "tmpfs",
		"command line: tinderbox.root: neither a device nor none\n");
	expect_options("tinderbox.root=", "/dev/vda", "tmpfs",
		"command line: tinderbox.root: neither a device nor none\n");
	expect_options("tinderbox.root=nonee", "/dev/vda", "tmpfs",
		"command line: tinderbox.root: neither a device nor none\n");
	expect_options("tinderbox.upper=none", "/dev/vda", "tmpfs",
		"command line: tinderbox.upper: neither a device nor tmpfs\n");
	expect_options(
		"tinderbox.root", "/dev/vda", "tmpfs", "command line: unknown option tinderbox.root\n");
	expect_options("tinderbox.roo=none tinderbox.root=/dev/vdz", "/dev/vdz", "tmpfs",
		"command line: unknown option tinderbox.roo\n");
	strcpy(longest, "tinderbox.root=");
	memset(longest + 15, '/', OPTIONS_VALUE_MAX - 1);
	longest[15 + OPTIONS_VALUE_MAX - 1] = '\0';
	expect_options(longest, longest + 15, "tmpfs", "");
	strcat(longest, "/");
	expect_options(
		longest, "/dev/vda", "tmpfs", "command line: tinderbox.root: neither a device nor none\n");
}

static void warnings_are_bounded(void **state)
{
	struct warnings warnings = {0};

	(void)state;
	for (int i = 0; i < 1000; i++)
		warnings_add(&warnings, "%0100d", i);
	assert_int_equal(warnings.length, AGENT_TEXT_MAX / 101 * 101);
	assert_int_equal(warnings.text[warnings.length - 1], '\n');
}

/* In a child with mounts of its own. */
static void in_private_mounts(void (*test)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
			mount("test", "/mnt", "tmpfs", 0, NULL) < 0)
			_exit(77);
		test();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* not root, or in a container without mounts */
	assert_int_equal(status, 0);
}

static void check(bool condition, int line)
{
	if (condition)
		return;
	fprintf(stderr, "line %d: %s\n", line, strerror(errno));
	_exit(1);
}
#define CHECK(condition) check(condition, __LINE__)

static void touch(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	close(fd);
}

static void empties_a_folder(void)
{
	struct stat st;
	int fd;

	CHECK(mkdir("/mnt/a", 0755) == 0 && mkdir("/mnt/a/b", 0755) == 0 && mkdir("/mnt/m", 0755) == 0);
	CHECK(mkdir("/mnt/k", 0755) == 0 && mkdir("/mnt/k/deep", 0755) == 0);
	touch("/mnt/a/b/file");
	touch("/mnt/init");
	CHECK(symlink("/etc", "/mnt/a/link") == 0);
	CHECK(mount("other", "/mnt/m", "tmpfs", 0, NULL) == 0);
	CHECK(mount("other", "/mnt/k/deep", "tmpfs", 0, NULL) == 0);
	touch("/mnt/m/kept");
	fd = open("/mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(mounts_empty_folder(fd) == 0);
	CHECK(lstat("/mnt/a", &st) < 0 && errno == ENOENT);
	CHECK(lstat("/mnt/init", &st) < 0 && errno == ENOENT);
	/* What is mounted there, and where a link pointed to, is as it was. */
	CHECK(stat("/mnt/m/kept", &st) == 0);
	CHECK(stat("/mnt/k/deep", &st) == 0);
	CHECK(stat("/etc/passwd", &st) == 0);
	close(fd);
}

static void stops_at_its_depth(void)
{
	int fd = open("/mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC), at = dup(fd);

	for (int i = 0; i < MOUNTS_DEPTH_MAX + 3; i++) {
		int below;

		CHECK(mkdirat(at, "d", 0755) == 0);
		below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		CHECK(below >= 0);
		close(at);
		at = below;
	}
	CHECK(mounts_empty_folder(fd) == -ELOOP);
	close(at);
	close(fd);
}

static void a_missing_disk_is_named(void)
{
	static const char expected[] =
		"root: no base at /dev/none-such (No such file or directory): the initramfs stays the root\n";
	struct options options = {.root = "/dev/none-such", .upper = "tmpfs"};
	struct warnings warnings = {0};
	struct layers layers;
	struct stat st;

	/* As in an initramfs: a root of its own, with nothing in it. */
	CHECK(chroot("/mnt") == 0 && chdir("/") == 0);
	log_init("test", LOG_LEVEL_ERROR);
	CHECK(!mounts_root(&options, &warnings, &layers));
	CHECK(layers.upper == -1 && layers.lower == -1 && layers.store == -1);
	CHECK(warnings.length == strlen(expected));
	CHECK(memcmp(warnings.text, expected, warnings.length) == 0);
	/* What can go on goes on. */
	warnings.length = 0;
	mounts_early(&warnings);
	mounts_late(&warnings);
	CHECK(stat("/proc/self/status", &st) == 0);
	CHECK(stat("/dev/null", &st) == 0);
	CHECK(stat("/tmp", &st) == 0 && (st.st_mode & 07777) == 01777);
	strcpy(options.root, "none");
	warnings.length = 0;
	CHECK(!mounts_root(&options, &warnings, &layers) && layers.upper == -1 && warnings.length == 0);
}

static void the_initramfs_is_emptied(void **state)
{
	(void)state;
	in_private_mounts(empties_a_folder);
	in_private_mounts(stops_at_its_depth);
}

static void without_a_disk_the_initramfs_stays(void **state)
{
	(void)state;
	in_private_mounts(a_missing_disk_is_named);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_have_defaults_and_are_checked),
		cmocka_unit_test(warnings_are_bounded),
		cmocka_unit_test(the_initramfs_is_emptied),
		cmocka_unit_test(without_a_disk_the_initramfs_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
