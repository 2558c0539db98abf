/* SPDX-License-Identifier: Apache-2.0 */
/* What a vmm has saved for a template, taken out of its folder: by a vmm that has the files open still. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "host-ctl/pool/template_files.h"
#include "host-ctl/vm/vm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEMORY = 8 << 20, DISK = 16 << 20, AT = 4 << 20 };

struct folders {
	char path[64];
	int to;
	struct template_saved saved;
};

static const char *const names[] = {"state", "memory", "disk"};

static void put(int folder, const char *name, off_t bytes)
{
	int fd = openat(folder, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_int_equal(pwrite(fd, name, 4, bytes > AT ? AT : 0), 4);
	fd_close(&fd);
}

static int set_up(void **state)
{
	struct folders *f = calloc(1, sizeof *f);

	assert_non_null(f);
	snprintf(f->path, sizeof f->path, "/tmp/tinderbox-unit.XXXXXX");
	assert_non_null(mkdtemp(f->path));
	assert_int_equal(chdir(f->path), 0);
	assert_true(mkdir("from", 0700) == 0 && mkdir("to", 0700) == 0);
	f->saved = (struct template_saved){.folder = open("from", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.memory_bytes = MEMORY,
		.disk_bytes = DISK};
	f->to = open("to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(f->saved.folder >= 0 && f->to >= 0);
	put(f->saved.folder, "state", 1000);
	put(f->saved.folder, "memory", MEMORY);
	put(f->saved.folder, "disk", DISK);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct folders *f = *state;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		unlinkat(f->saved.folder, names[i], 0);
		unlinkat(f->to, names[i], 0);
	}
	fd_close(&f->saved.folder);
	fd_close(&f->to);
	assert_true(rmdir("from") == 0 && rmdir("to") == 0);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(f->path), 0);
	free(f);
	return 0;
}

static bool is_there(int folder, const char *name)
{
	return faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void expect_fault(struct folders *f, int wanted, const char *wanted_name)
{
	const char *name = "";

	assert_int_equal(template_files_take(&f->saved, f->to, NULL, &name), wanted);
	assert_string_equal(name, wanted_name);
	/* What could not be taken is where it was. */
	if (wanted != -ENOENT)
		assert_true(is_there(f->saved.folder, wanted_name));
}

/* What its writer has open is not what is taken; its holes stay holes. */
static void test_copies(void **state)
{
	struct folders *f = *state;
	int held[3];
	const char *name;
	struct stat status;
	char bytes[4];

	for (int i = 0; i < 3; i++)
		held[i] = openat(f->saved.folder, names[i], O_RDWR | O_CLOEXEC);
	assert_int_equal(template_files_take(&f->saved, f->to, NULL, &name), 0);
	for (int i = 0; i < 3; i++) {
		int fd = openat(f->to, names[i], O_RDONLY | O_CLOEXEC);

		assert_false(is_there(f->saved.folder, names[i]));
		assert_int_equal(pwrite(held[i], "evil", 4, i ? AT : 0), 4);
		assert_int_equal(pread(fd, bytes, 4, i ? AT : 0), 4);
		assert_memory_equal(bytes, names[i], 4);
		assert_int_equal(fstat(fd, &status), 0);
		assert_int_equal(status.st_mode & 07777, 0600);
		assert_true(status.st_blocks * 512 < 1 << 20);
		fd_close(&fd);
		fd_close(&held[i]);
	}
}

static void test_without_a_disk(void **state)
{
	struct folders *f = *state;
	const char *name;

	f->saved.disk_bytes = 0;
	assert_int_equal(template_files_take(&f->saved, f->to, NULL, &name), 0);
	assert_true(is_there(f->to, "memory"));
	assert_false(is_there(f->to, "disk"));
}

static void test_sizes(void **state)
{
	struct folders *f = *state;

	put(f->saved.folder, "state", VM_STATE_FILE_MAX + 1);
	expect_fault(f, -EBADMSG, "state");
	assert_int_equal(unlinkat(f->to, "state", 0), 0);
	put(f->saved.folder, "state", VM_STATE_FILE_MAX);
	f->saved.memory_bytes = MEMORY - 4096;
	expect_fault(f, -EBADMSG, "memory");
}

static void test_disks_of_another_size(void **state)
{
	struct folders *f = *state;

	f->saved.disk_bytes = DISK + 4096;
	expect_fault(f, -EBADMSG, "disk");
}

static void test_what_is_no_file(void **state)
{
	struct folders *f = *state;

	assert_int_equal(unlinkat(f->saved.folder, "memory", 0), 0);
	expect_fault(f, -ENOENT, "memory");
	assert_int_equal(unlinkat(f->to, "state", 0), 0);
	put(f->saved.folder, "state", 1000);
	assert_int_equal(mkfifoat(f->saved.folder, "memory", 0600), 0);
	expect_fault(f, -EINVAL, "memory");
}

/* What nobody wants any more is copied no further, and is where it was. */
static void test_stopped(void **state)
{
	struct folders *f = *state;
	atomic_bool stop = true;
	const char *name = "";
	struct stat status;

	assert_int_equal(template_files_take(&f->saved, f->to, &stop, &name), -ECANCELED);
	assert_string_equal(name, "state");
	assert_true(is_there(f->saved.folder, "state"));
	assert_int_equal(fstatat(f->to, "state", &status, 0), 0);
	assert_int_equal(status.st_size, 0);
	assert_int_equal(unlinkat(f->to, "state", 0), 0);
	atomic_store(&stop, false);
	assert_int_equal(template_files_take(&f->saved, f->to, &stop, &name), 0);
}

#define WITH_FOLDERS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FOLDERS(test_copies),
		WITH_FOLDERS(test_without_a_disk),
		WITH_FOLDERS(test_sizes),
		WITH_FOLDERS(test_disks_of_another_size),
		WITH_FOLDERS(test_what_is_no_file),
		WITH_FOLDERS(test_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
