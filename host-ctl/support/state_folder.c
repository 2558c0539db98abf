/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/state_folder.h"
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_LOOK_MS = 5, LOCK_WAIT_MS = 1000, ASIDE_TRIES = 16 };

enum { MODE_STATE = 0755, MODE_PRIVATE = 0700, WRITE_OTHERS = S_IWGRP | S_IWOTH };

static int fail(struct error *error, int status, const char *what, const char *path)
{
	error_set(error, ERROR_INTERNAL,
		"cannot %s the state folder %s: %s: name a folder that can be written with --state-dir", what,
		path, strerror(-status));
	return status;
}

static int check_owner(int fd, const char *path, struct error *error)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return fail(error, -errno, "look at", path);
	if (status.st_uid != geteuid())
		error_set(error, ERROR_DENIED,
			"the state folder %s is uid %u's, who could replace what VMs are made of: give it to "
			"uid %u "
			"(chown), or name another with --state-dir",
			path, (unsigned int)status.st_uid, (unsigned int)geteuid());
	else if (status.st_mode & WRITE_OTHERS)
		error_set(error, ERROR_DENIED,
			"the state folder %s has mode %04o, so that others could replace what VMs are made "
			"of: take "
			"that from them (chmod go-w), or name another with --state-dir",
			path, (unsigned int)(status.st_mode & 07777));
	else
		return 0;
	return -EPERM;
}

/* What is there. */
static int open_at(int at, const char *name, int flags, const char *path, struct error *error)
{
	int fd, status;

	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
	if (fd < 0)
		return fail(error, -errno, "open", path);
	status = check_owner(fd, path, error);
	if (!status)
		return fd;
	fd_close(&fd);
	return status;
}

/* The folder that a path names something in; an fd, or -errno. */
static int open_above(const char *path)
{
	char above[PATH_MAX];
	char *slash;
	int fd;

	snprintf(above, sizeof above, "%s", path);
	/* Those at its end say nothing. */
	while ((slash = strrchr(above, '/')) && slash > above && !slash[1])
		*slash = '\0';
	if (slash)
		slash[slash == above] = '\0';
	fd = open(slash ? above : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* It is newly made: what is brought to the disk in it is there only if its own name is. */
static int sync_name(const char *path)
{
	int above = open_above(path), status = above;

	/* Whoever may make a folder there need not be able to read it; and some file systems know of no such
	 * thing. */
	if (above == -EACCES)
		return 0;
	if (above >= 0)
		status = fsync(above) < 0 && errno != EINVAL ? -errno : 0;
	fd_close(&above);
	return status;
}

static int make_at(int at, const char *name, int flags, mode_t mode, const char *path, struct error *error)
{
	if (mkdirat(at, name, mode) < 0 && errno != EEXIST)
		return fail(error, -errno, "make", path);
	return open_at(at, name, flags, path, error);
}

int state_folder_open(const char *path, struct error *error)
{
	const bool is_new = faccessat(AT_FDCWD, path, F_OK, 0) < 0 && errno == ENOENT;
	int folder = make_at(AT_FDCWD, path, 0, MODE_STATE, path, error), status;

	status = folder >= 0 && is_new ? sync_name(path) : 0;
	if (!status)
		return folder;
	fd_close(&folder);
	return fail(error, status, "bring to the disk", path);
}

int state_folder_open_there(const char *path, struct error *error)
{
	return open_at(AT_FDCWD, path, 0, path, error);
}

int state_folder_open_in(int folder, const char *path, const char *name, struct error *error)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof whole, "%.4000s/%.64s", path, name);
	return make_at(folder, name, O_NOFOLLOW, MODE_PRIVATE, whole, error);
}

int state_folder_open_at(int folder, const char *path)
{
	int fd = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

/* A listing moves the offset of its fd. */
DIR *state_folder_list(int folder)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);

	if (!listing)
		fd_close(&fd);
	return listing;
}

int state_folder_check(const char *path, struct error *error)
{
	int folder = state_folder_open(path, error);
	int templates =
		folder < 0 ? folder : state_folder_open_in(folder, path, STATE_FOLDER_TEMPLATES, error);
	int status = templates < 0 ? templates : 0;

	fd_close(&templates);
	fd_close(&folder);
	return status;
}

int state_folder_put_aside(int folder, const char *name, char aside[STATE_FOLDER_ASIDE_MAX])
{
	const time_t now = time(NULL);
	struct tm parts;
	char when[32];

	if (faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	if (unlinkat(folder, name, AT_REMOVEDIR) == 0)
		return 0;
	gmtime_r(&now, &parts);
	strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &parts);
	snprintf(aside, STATE_FOLDER_ASIDE_MAX, "%.24s.lost-%s", name, when);
	/* What was moved in the same second has that name. */
	for (int i = 1; renameat2(folder, name, folder, aside, RENAME_NOREPLACE) < 0; i++) {
		if (errno != EEXIST || i == ASIDE_TRIES)
			return -errno;
		snprintf(aside, STATE_FOLDER_ASIDE_MAX, "%.24s.lost-%.20s-%d", name, when, i);
	}
	return fsync(folder) < 0 ? -errno : 1;
}

int state_folder_lock(int folder)
{
	const struct timespec pause = {.tv_nsec = LOCK_LOOK_MS * 1000000};

	for (int waited = 0; flock(folder, LOCK_EX | LOCK_NB) < 0; waited += LOCK_LOOK_MS) {
		if (errno != EWOULDBLOCK || waited >= LOCK_WAIT_MS)
			return -errno;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int state_folder_sync(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int status = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	fd_close(&fd);
	return status;
}
