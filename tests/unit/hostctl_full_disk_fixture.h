/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon whose state folder is on a small disk of its own, which is full when a test wants it to be. */
#ifndef TESTS_UNIT_HOSTCTL_FULL_DISK_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_FULL_DISK_FIXTURE_H

#include "tests/unit/hostctl_fixture.h"

#include <sched.h>
#include <sys/mount.h>

/* In a mount namespace of this process's own; before the daemon is launched. options: "size=…". */
static inline void mount_state(struct daemon *daemon, const char *options)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("needs root\n");
		skip();
	}
	daemon_folder(daemon);
	assert_int_equal(mkdir(daemon->state, 0755), 0);
	assert_int_equal(mount("state", daemon->state, "tmpfs", 0, options), 0);
}

/* After the daemon's end. */
static inline void unmount_state(const struct daemon *daemon)
{
	assert_int_equal(umount2(daemon->state, MNT_DETACH), 0);
	assert_int_equal(rmdir(daemon->state), 0);
}

static inline void ballast_path(const struct daemon *daemon, char path[128])
{
	snprintf(path, 128, "%s/ballast", daemon->state);
}

/* Not a byte is left. */
static inline void fill_disk(const struct daemon *daemon)
{
	static const char block[4096];
	char path[128];
	int fd;

	ballast_path(daemon, path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof block) > 0)
		;
	close(fd);
}

/* As before fill_disk. */
static inline void clear_disk(const struct daemon *daemon)
{
	char path[128];

	ballast_path(daemon, path);
	assert_int_equal(unlink(path), 0);
}

#endif
