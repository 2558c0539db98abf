/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the command line: what is refused, in which words, and that nothing stays open. */
#include "tests/support/unit.h"

#include "vmm/files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 128 };

struct place {
	char directory[32];
	char kernel[PATH_SIZE], other[PATH_SIZE];
	struct config config;
	struct files files;
	char error[FILES_ERROR_MAX], wanted[FILES_ERROR_MAX];
};

static unsigned count_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(directory);
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

static void make_file(const char *path, off_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

/* A directory with a kernel; `other` is a free name. */
static int make_place(void **state)
{
	struct place *place = calloc(1, sizeof(*place));

	assert_non_null(place);
	strcpy(place->directory, "/tmp/vmm-files-XXXXXX");
	assert_non_null(mkdtemp(place->directory));
	snprintf(place->kernel, PATH_SIZE, "%s/kernel", place->directory);
	snprintf(place->other, PATH_SIZE, "%s/other", place->directory);
	make_file(place->kernel, 10);
	place->config.kernel = place->kernel;
	*state = place;
	return 0;
}

static int remove_place(void **state)
{
	struct place *place = *state;

	unlink(place->kernel);
	unlink(place->other);
	rmdir(place->directory);
	free(place);
	return 0;
}

static void add_disk(struct place *place, const char *path, bool read_only)
{
	struct config_disk *disk = &place->config.disks[place->config.disk_count++];

	snprintf(disk->path, sizeof(disk->path), "%s", path);
	disk->read_only = read_only;
}

/* The refusal: `text` has one %s for the file's name. Nothing is left open. */
__attribute__((format(printf, 3, 0))) static void refused(
	struct place *place, int error, const char *text, const char *name)
{
	unsigned before = count_fds();

	assert_int_equal(files_open(&place->config, &place->files, place->error), error);
	snprintf(place->wanted, sizeof(place->wanted), text, name);
	assert_string_equal(place->error, place->wanted);
	assert_int_equal(count_fds(), before);
	assert_int_equal(place->files.kernel, -1);
}

static void all_files_are_opened_and_closed(void **state)
{
	struct place *place = *state;
	unsigned before = count_fds();

	make_file(place->other, 4096);
	place->config.initrd = place->kernel;
	add_disk(place, place->other, true);
	add_disk(place, place->other, true);
	place->config.serial = "-";
	place->config.stats = true;
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_true(place->files.kernel > 2 && place->files.initrd > 2);
	assert_int_equal(fcntl(place->files.kernel, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(place->files.disks[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fcntl(place->files.disks[1], F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(place->files.disks[2], -1);
	assert_int_equal(place->files.serial_in, 0);
	assert_int_equal(place->files.serial_out, 1);
	assert_int_equal(place->files.stats, 2);
	files_close(&place->files);
	assert_int_equal(count_fds(), before);
	assert_true(fcntl(2, F_GETFD) >= 0);
	assert_int_equal(place->files.stats, -1);
	files_close(&place->files); /* again: nothing happens */
}

static void only_a_kernel_opens_nothing_else(void **state)
{
	struct place *place = *state;

	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(place->files.initrd, -1);
	assert_int_equal(place->files.serial_in, -1);
	assert_int_equal(place->files.serial_out, -1);
	assert_int_equal(place->files.stats, -1);
	files_close(&place->files);
}

static void outputs_are_made_private(void **state)
{
	struct place *place = *state;
	struct stat status;

	place->config.serial = place->other;
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(place->files.serial_in, -1);
	assert_int_equal(fstat(place->files.serial_out, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_int_equal(write(place->files.serial_out, "log", 3), 3);
	files_close(&place->files);
	/* a log is continued, statistics begin anew, and not before they are told to */
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(write(place->files.serial_out, "log", 3), 3);
	assert_int_equal(fstat(place->files.serial_out, &status), 0);
	assert_int_equal(status.st_size, 6);
	files_close(&place->files);
	place->config.serial = NULL;
	place->config.stats = true;
	place->config.stats_file = place->other;
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(fstat(place->files.stats, &status), 0);
	assert_int_equal(status.st_size, 6);
	assert_int_equal(files_begin_stats(&place->config, &place->files, place->error), 0);
	assert_int_equal(fstat(place->files.stats, &status), 0);
	assert_int_equal(status.st_size, 0);
	files_close(&place->files);
}

/* What the parent opened is its own, and what cannot be emptied need not be. */
static void only_a_path_is_emptied(void **state)
{
	struct place *place = *state;
	struct stat status;
	char name[16];
	int fd;

	make_file(place->other, 6);
	fd = open(place->other, O_WRONLY | O_CLOEXEC);
	snprintf(name, sizeof(name), "fd:%d", fd);
	place->config.stats = true;
	place->config.stats_file = name;
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(files_begin_stats(&place->config, &place->files, place->error), 0);
	assert_int_equal(fstat(place->files.stats, &status), 0);
	assert_int_equal(status.st_size, 6);
	files_close(&place->files);
	place->config.stats_file = "/dev/null";
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(files_begin_stats(&place->config, &place->files, place->error), 0);
	files_close(&place->files);
	place->config.stats_file = NULL;
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(files_begin_stats(&place->config, &place->files, place->error), 0);
	files_close(&place->files);
}

/* Two options with one file: refused, and the file is as it was. */
static void refused_as_same(
	struct place *place, const char *first, const char *path, const char *second, const char *other)
{
	char wanted[FILES_ERROR_MAX];
	struct stat status;

	snprintf(wanted, sizeof(wanted),
		"--%s %s and --%s %s are the same file, and it would be written to; give each its own", first,
		path, second, other);
	refused(place, -ENOTUNIQ, "%s", wanted);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_size, 4096);
}

static void what_is_written_to_is_no_other_file(void **state)
{
	struct place *place = *state;
	struct config *config = &place->config;
	char link_path[PATH_SIZE + 8];

	make_file(place->kernel, 4096);
	make_file(place->other, 4096);
	snprintf(link_path, sizeof(link_path), "%s.link", place->other);
	assert_int_equal(link(place->other, link_path), 0);
	config->stats = true;
	config->stats_file = place->kernel;
	refused_as_same(place, "kernel", place->kernel, "stats", place->kernel);
	config->stats_file = link_path;
	config->initrd = place->other;
	refused_as_same(place, "initrd", place->other, "stats", link_path);
	config->initrd = NULL;
	add_disk(place, place->other, true);
	refused_as_same(place, "disk", place->other, "stats", link_path);
	config->stats = false;
	config->stats_file = NULL;
	config->serial = link_path;
	refused_as_same(place, "disk", place->other, "serial", link_path);
	config->serial = NULL;
	add_disk(place, link_path, false);
	refused_as_same(place, "disk", place->other, "disk", link_path);
	config->disks[0].read_only = false;
	refused_as_same(place, "disk", place->other, "disk", link_path);
	config->disks[0].read_only = config->disks[1].read_only = true;
	assert_int_equal(files_open(config, &place->files, place->error), 0);
	files_close(&place->files);
	config->disk_count = 0;
	config->stats = true;
	config->serial = place->other;
	config->stats_file = link_path;
	refused_as_same(place, "serial", place->other, "stats", link_path);
	assert_int_equal(unlink(link_path), 0);
}

static void a_snapshot_is_not_written_to(void **state)
{
	struct place *place = *state;
	struct config *config = &place->config;
	char *const files[] = {config->restore.state, config->restore.memory, config->restore.working_set,
		config->restore.pages};

	make_file(place->kernel, 4096);
	make_file(place->other, 4096);
	config->kernel = NULL;
	config->restore.wanted = true;
	add_disk(place, place->other, false);
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < 4; j++)
			snprintf(files[j], PATH_MAX, "%s", i == j ? place->other : place->kernel);
		refused_as_same(place, "disk", place->other, "restore", place->other);
	}
}

/* One log of both is the parent's affair. */
static void outputs_of_the_parent_may_be_one(void **state)
{
	struct place *place = *state;
	char names[2][16];
	int fds[2];

	make_file(place->other, 4096);
	for (unsigned i = 0; i < 2; i++) {
		fds[i] = open(place->other, O_WRONLY | O_CLOEXEC);
		snprintf(names[i], sizeof(names[i]), "fd:%d", fds[i]);
	}
	place->config.serial = names[0];
	place->config.stats = true;
	place->config.stats_file = names[1];
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	files_close(&place->files);
	place->config.serial = "/dev/null";
	place->config.stats_file = "/dev/null";
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	files_close(&place->files);
}

static void a_missing_file_is_named(void **state)
{
	struct place *place = *state;

	place->config.initrd = place->other;
	refused(place, -ENOENT, "--initrd %s does not exist; check the path", place->other);
	place->config.initrd = NULL;
	add_disk(place, place->other, true);
	refused(place, -ENOENT, "--disk %s does not exist; check the path", place->other);
	place->config.kernel = place->other;
	refused(place, -ENOENT, "--kernel %s does not exist; check the path", place->other);
}

static void other_causes_are_told(void **state)
{
	struct place *place = *state;
	char path[PATH_SIZE + 8];

	snprintf(path, sizeof(path), "%s/x", place->kernel);
	place->config.kernel = path;
	refused(place, -ENOTDIR,
		"--kernel %s cannot be opened for reading (Not a directory); give another file", path);
	place->config.kernel = place->kernel;
	place->config.serial = place->directory;
	refused(place, -EISDIR,
		"--serial %s cannot be opened for writing (Is a directory); give another file",
		place->directory);
}

static void a_closed_descriptor_is_named(void **state)
{
	struct place *place = *state;

	place->config.kernel = "fd:987";
	refused(place, -EBADF, "--kernel %s is not open; have the parent process pass it on", "fd:987");
}

/* One that is only a place in the file system cannot be read. */
static void a_descriptor_of_a_path_is_not_open(void **state)
{
	struct place *place = *state;
	char name[16];

	make_file(place->other, 4096);
	snprintf(name, sizeof(name), "fd:%d", open(place->other, O_PATH | O_CLOEXEC));
	add_disk(place, name, true);
	assert_int_equal(files_open(&place->config, &place->files, place->error), -EBADF);
	snprintf(place->wanted, sizeof(place->wanted),
		"--disk %s is not open; have the parent process pass it on", name);
	assert_string_equal(place->error, place->wanted);
}

/* An inherited fd with the wrong access is what a path without permission is. */
static void a_descriptor_must_allow_the_access(void **state)
{
	struct place *place = *state;
	char name[16];
	int fd;

	make_file(place->other, 4096);
	fd = open(place->other, O_RDONLY | O_CLOEXEC);
	snprintf(name, sizeof(name), "fd:%d", fd);
	add_disk(place, name, false);
	assert_int_equal(files_open(&place->config, &place->files, place->error), -EACCES);
	snprintf(place->wanted, sizeof(place->wanted),
		"--disk %s may not be opened for reading and writing (Permission denied); add ,ro or change "
		"its "
		"mode or owner",
		name);
	assert_string_equal(place->error, place->wanted);
	fd = open(place->other, O_RDONLY | O_CLOEXEC);
	snprintf(name, sizeof(name), "fd:%d", fd);
	place->config.disk_count = 0;
	place->config.serial = name;
	assert_int_equal(files_open(&place->config, &place->files, place->error), -EACCES);
	snprintf(place->wanted, sizeof(place->wanted),
		"--serial %s may not be opened for writing (Permission denied); change its mode or owner",
		name);
	assert_string_equal(place->error, place->wanted);
}

static void a_disk_has_whole_sectors(void **state)
{
	struct place *place = *state;

	make_file(place->other, 0);
	add_disk(place, place->other, true);
	refused(place, -EINVAL, "--disk %s is empty; give it at least one sector of 512 bytes", place->other);
	make_file(place->other, 511);
	refused(place, -EINVAL, "--disk %s has 511 bytes, not a multiple of 512; pad it to whole sectors",
		place->other);
	make_file(place->other, 1000);
	refused(place, -EINVAL, "--disk %s has 1000 bytes, not a multiple of 512; pad it to whole sectors",
		place->other);
	make_file(place->other, 512);
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	files_close(&place->files);
}

static void an_upper_is_made_and_checked(void **state)
{
	static const char refused_text[] = "--disk %s,cow=%s: it %s";
	struct place *place = *state;
	char upper[PATH_SIZE + 8], text[FILES_ERROR_MAX];
	struct config_disk *disk = &place->config.disks[0];
	struct stat status;
	int held;

	make_file(place->other, 4096);
	add_disk(place, place->other, false);
	snprintf(upper, sizeof(upper), "%s.upper", place->other);
	snprintf(disk->upper, sizeof(disk->upper), "%s", upper);
	assert_int_equal(files_open(&place->config, &place->files, place->error), 0);
	assert_int_equal(fcntl(place->files.disks[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fcntl(place->files.uppers[0], F_GETFL) & O_ACCMODE, O_RDWR);
	assert_int_equal(stat(upper, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	assert_int_equal(status.st_size, 0); /* nothing refused, but nothing runs either */
	held = fcntl(place->files.uppers[0], F_DUPFD_CLOEXEC, 0);
	files_close(&place->files);
	snprintf(text, sizeof(text), refused_text, place->other, upper,
		"is in use by another VM or disk; give each its own");
	refused(place, -EBUSY, "%s", text);
	close(held);
	make_file(upper, 8192);
	snprintf(text, sizeof(text), refused_text, place->other, upper,
		"is not the upper file of a disk; give an empty or a new one");
	refused(place, -EMEDIUMTYPE, "%s", text);
	snprintf(disk->upper, sizeof(disk->upper), "%s", place->other);
	snprintf(text, sizeof(text), refused_text, place->other, place->other,
		"is not the upper file of a disk; give an empty or a new one");
	refused(place, -EMEDIUMTYPE, "%s", text);
	snprintf(disk->upper, sizeof(disk->upper), "%s", "/dev/null");
	snprintf(text, sizeof(text), refused_text, place->other, "/dev/null",
		"is no regular file; give a file");
	refused(place, -ENOTBLK, "%s", text);
	assert_int_equal(unlink(upper), 0);
}

static void a_disk_is_a_file_or_a_block_device(void **state)
{
	struct place *place = *state;

	add_disk(place, "/dev/null", true);
	refused(place, -ENOTBLK,
		"--disk %s is neither a regular file nor a block device; give a raw disk image", "/dev/null");
	place->config.disk_count = 0;
	add_disk(place, place->directory, true);
	refused(place, -ENOTBLK,
		"--disk %s is neither a regular file nor a block device; give a raw disk image",
		place->directory);
	/* a FIFO that nobody writes to is told at once */
	assert_int_equal(mkfifo(place->other, 0600), 0);
	place->config.disk_count = 0;
	add_disk(place, place->other, true);
	refused(place, -ENOTBLK,
		"--disk %s is neither a regular file nor a block device; give a raw disk image",
		place->other);
}

static void the_last_file_that_fails_closes_the_others(void **state)
{
	struct place *place = *state;

	make_file(place->other, 4096);
	for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++)
		add_disk(place, place->other, true);
	place->config.serial = "-";
	place->config.stats = true;
	place->config.stats_file = "/nonexistent/stats";
	refused(place, -ENOENT, "--stats %s does not exist; check the path", "/nonexistent/stats");
	assert_true(fcntl(1, F_GETFD) >= 0);
}

#define place_test(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		place_test(all_files_are_opened_and_closed),
		place_test(only_a_kernel_opens_nothing_else),
		place_test(outputs_are_made_private),
		place_test(only_a_path_is_emptied),
		place_test(what_is_written_to_is_no_other_file),
		place_test(a_snapshot_is_not_written_to),
		place_test(outputs_of_the_parent_may_be_one),
		place_test(a_missing_file_is_named),
		place_test(other_causes_are_told),
		place_test(a_closed_descriptor_is_named),
		place_test(a_descriptor_of_a_path_is_not_open),
		place_test(a_descriptor_must_allow_the_access),
		place_test(a_disk_has_whole_sectors),
		place_test(an_upper_is_made_and_checked),
		place_test(a_disk_is_a_file_or_a_block_device),
		place_test(the_last_file_that_fails_closes_the_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
