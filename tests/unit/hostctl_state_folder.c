/* SPDX-License-Identifier: Apache-2.0 */
/* A folder in the state folder is opened as what it is, and listed from its first entry on. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "host-ctl/support/state_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In it: `folder`, which has `entry`; `link`, to that; `file`. */
struct fixture {
	char path[64];
	int fd;
};

static int set_up(void **state)
{
	static struct fixture fixture;
	int file;

	snprintf(fixture.path, sizeof fixture.path, "/tmp/tinderbox-state.XXXXXX");
	assert_non_null(mkdtemp(fixture.path));
	fixture.fd = open(fixture.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fixture.fd >= 0);
	assert_int_equal(mkdirat(fixture.fd, "folder", 0700), 0);
	assert_int_equal(mkdirat(fixture.fd, "folder/entry", 0700), 0);
	assert_int_equal(symlinkat("folder", fixture.fd, "link"), 0);
	file = openat(fixture.fd, "file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(file >= 0);
	close(file);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	unlinkat(fixture->fd, "file", 0);
	unlinkat(fixture->fd, "link", 0);
	unlinkat(fixture->fd, "folder/entry", AT_REMOVEDIR);
	unlinkat(fixture->fd, "folder", AT_REMOVEDIR);
	fd_close(&fixture->fd);
	return rmdir(fixture->path);
}

static void a_folder_is_opened(void **state)
{
	const struct fixture *fixture = *state;
	char path[96];
	int fd = state_folder_open_at(fixture->fd, "folder");

	assert_true(fd >= 0);
	assert_int_equal(faccessat(fd, "entry", F_OK, 0), 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	snprintf(path, sizeof path, "%s/folder", fixture->path);
	fd = state_folder_open_at(AT_FDCWD, path);
	assert_true(fd >= 0);
	close(fd);
	/* Only the last part is looked at. */
	fd = state_folder_open_at(fixture->fd, "link/entry");
	assert_true(fd >= 0);
	close(fd);
}

static void a_link_or_a_file_is_not(void **state)
{
	const struct fixture *fixture = *state;
	int status = state_folder_open_at(fixture->fd, "link");

	assert_true(status == -ENOTDIR || status == -ELOOP);
	assert_int_equal(state_folder_open_at(fixture->fd, "file"), -ENOTDIR);
	assert_int_equal(state_folder_open_at(fixture->fd, "none"), -ENOENT);
}

static void each_listing_begins_at_the_first_entry(void **state)
{
	const struct fixture *fixture = *state;
	int folder = state_folder_open_at(fixture->fd, "folder"), file;

	for (int i = 0; i < 2; i++) {
		DIR *listing = state_folder_list(folder);
		struct dirent *entry;
		int found = 0;

		assert_non_null(listing);
		while ((entry = readdir(listing)))
			found += !strcmp(entry->d_name, "entry");
		assert_int_equal(found, 1);
		closedir(listing);
	}
	/* The fd is the caller's still. */
	assert_int_equal(faccessat(folder, "entry", F_OK, 0), 0);
	close(folder);
	file = openat(fixture->fd, "file", O_RDONLY | O_CLOEXEC);
	assert_null(state_folder_list(file));
	assert_int_equal(errno, ENOTDIR);
	close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_folder_is_opened, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_link_or_a_file_is_not, set_up, tear_down),
		cmocka_unit_test_setup_teardown(each_listing_begins_at_the_first_entry, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
