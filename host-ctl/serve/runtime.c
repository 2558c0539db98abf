/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/serve/runtime.h"
#include "common/io.h"
#include "common/unix_socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	API_BACKLOG = 128,
	PID_TEXT = 16,
	LOCK_LOOK_MS = 5,
	LOCK_WAIT_MS = 2000,
	LOCK_TRIES = 64, /* each but the last lost to a daemon that ended just then */
};

static int fail(struct error *error, int status, const char *what, const char *path)
{
	error_set(error, ERROR_INTERNAL, "cannot %s %s: %s", what, path, strerror(-status));
	return status;
}

#define FOLDER_LOCK "/serve.lock"
#define SOCKET_LOCK ".lock"
#define MEND_FOLDER "name a folder that can be made and written with --runtime-dir"
#define MEND_SOCKET "give a path in a folder that can be written with --socket"

static int refuse(struct error *error, int status, const char *what, const char *path, const char *mend)
{
	error_set(error, ERROR_INTERNAL, "cannot %s %s: %s: %s", what, path, strerror(-status), mend);
	return status;
}

/* Of who wrote it there; empty: of nobody. */
static void read_pid(int lock, char pid[PID_TEXT + 1])
{
	ssize_t length = pread(lock, pid, PID_TEXT, 0);

	pid[length > 0 ? length : 0] = '\0';
	pid[strspn(pid, "0123456789")] = '\0';
}

static int in_use(struct error *error, int lock, const char *what, const char *path, const char *option)
{
	char pid[PID_TEXT + 1];

	read_pid(lock, pid);
	error_set(error, ERROR_CONFLICT,
		"%s %s is in use by a running host-ctl serve (pid %s): stop it first, or give this one its "
		"own with %s, and another --uid-base",
		what, path, pid[0] ? pid : "unknown", option);
	return -EBUSY;
}

static bool holder_lives(int lock)
{
	char pid[PID_TEXT + 1];

	read_pid(lock, pid);
	return !pid[0] || kill((pid_t)strtol(pid, NULL, 10), 0) == 0 || errno != ESRCH;
}

/* A daemon that was killed as it launched a VM leaves a child that closes its fds in a moment, locks too. */
static int lock_file(int lock)
{
	const struct timespec pause = {.tv_nsec = LOCK_LOOK_MS * 1000000};
	int waited = 0;

	while (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (waited >= LOCK_WAIT_MS || holder_lives(lock))
			return -EWOULDBLOCK;
		nanosleep(&pause, NULL);
		waited += LOCK_LOOK_MS;
	}
	return 0;
}

static int make_path(char *path, size_t size, const char *start, const char *end, struct error *error)
{
	if (snprintf(path, size, "%s%s", start, end) < (int)size)
		return 0;
	error_set(error, ERROR_INVALID, "the path %.200s%s is too long", start, end);
	return -ENAMETOOLONG;
}

/* Is it the file that the path names by now? */
static bool is_at(int lock, const char *path)
{
	struct stat held, named;

	return fstat(lock, &held) == 0 && lstat(path, &named) == 0 && held.st_dev == named.st_dev &&
	       held.st_ino == named.st_ino;
}

/* Opens (makes) and locks the file that is at the path when it is locked. 0, -EWOULDBLOCK with *lock the file
 * that somebody else has locked, or -errno with *call what failed. */
static int open_locked(const char *path, int *lock, const char **call)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		int status;

		*call = "open the lock";
		*lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (*lock < 0)
			return -errno;
		*call = "lock";
		status = lock_file(*lock);
		if (status || is_at(*lock, path))
			return status;
		fd_close(lock);
	}
	return -EBUSY;
}

/* The lock is the kernel's and ends with the process; the pid in the file is for people. */
static int take_lock(const char *path, const char *what, const char *subject, const char *option,
	const char *mend, int *lock, struct error *error)
{
	ssize_t length, written;
	char pid[PID_TEXT];
	const char *call;
	int status = open_locked(path, lock, &call);

	if (status) {
		status = status == -EWOULDBLOCK ? in_use(error, *lock, what, subject, option)
						: refuse(error, status, call, path, mend);
		fd_close(lock);
		return status;
	}
	length = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
	written = ftruncate(*lock, 0) < 0 ? -1 : pwrite(*lock, pid, (size_t)length, 0);
	if (written == length)
		return 0;
	/* A disk that fills takes a part and gives no errno. */
	return refuse(error, written < 0 ? -errno : -ENOSPC, "write the lock", path, mend);
}

/* Removed while it is held; but not what somebody put in its place. */
static void drop_lock(const char *start, const char *end, int *lock)
{
	struct error ignored;
	char path[PATH_MAX];

	if (*lock >= 0 && !make_path(path, sizeof path, start, end, &ignored) && is_at(*lock, path))
		unlink(path);
	fd_close(lock);
}

int runtime_sweep(const struct runtime *runtime, bool (*keep)(const void *context, const char *name),
	const void *context, struct error *error)
{
	DIR *listing = opendir(runtime->sockets);
	struct dirent *entry;

	if (!listing)
		return fail(error, -errno, "read", runtime->sockets);
	while ((entry = readdir(listing)))
		if (entry->d_name[0] != '.' && !(keep && keep(context, entry->d_name)))
			unlinkat(dirfd(listing), entry->d_name, 0);
	closedir(listing);
	return 0;
}

static int check_lengths(const struct runtime *runtime, struct error *error)
{
	const size_t socket_max = sizeof((struct sockaddr_un *)0)->sun_path - 1;
	const size_t folder_max = VM_SOCKET_MAX - VM_ID_MAX - 1;

	if (strlen(runtime->socket) > socket_max) {
		error_set(error, ERROR_INVALID,
			"the socket's path is %zu bytes long, a Unix socket takes %zu: give a shorter "
			"--socket",
			strlen(runtime->socket), socket_max);
		return -ENAMETOOLONG;
	}
	if (strlen(runtime->sockets) > folder_max) {
		error_set(error, ERROR_INVALID,
			"the runtime folder's path is too long for the sockets in it: give a --runtime-dir "
			"of at most "
			"%zu bytes",
			folder_max - strlen("/vm"));
		return -ENAMETOOLONG;
	}
	return 0;
}

int runtime_open(struct runtime *runtime, const char *folder, const char *socket, struct error *error)
{
	char lock[PATH_MAX];
	int status;

	*runtime = (struct runtime){
		.folder_lock = -1, .socket_lock = -1, .listener = -1, .folder = folder, .socket = socket};
	status = make_path(runtime->sockets, sizeof runtime->sockets, folder, "/vm", error);
	if (!status)
		status = check_lengths(runtime, error);
	if (!status && mkdir(folder, 0755) < 0 && errno != EEXIST)
		status = refuse(error, -errno, "make the runtime folder", folder, MEND_FOLDER);
	if (!status)
		status = make_path(lock, sizeof lock, folder, FOLDER_LOCK, error);
	if (!status)
		status = take_lock(lock, "the runtime folder", folder, "--runtime-dir", MEND_FOLDER,
			&runtime->folder_lock, error);
	if (!status)
		status = make_path(lock, sizeof lock, socket, SOCKET_LOCK, error);
	if (!status)
		status = take_lock(
			lock, "the socket", socket, "--socket", MEND_SOCKET, &runtime->socket_lock, error);
	if (!status && mkdir(runtime->sockets, 0700) < 0 && errno != EEXIST)
		status = refuse(error, -errno, "make", runtime->sockets, MEND_FOLDER);
	runtime->has_sockets = !status;
	if (status)
		runtime_close(runtime);
	return status;
}

int runtime_listen(struct runtime *runtime, gid_t group, struct error *error)
{
	/* Closed to all but the owner until its group is right. */
	int fd = unix_listen(runtime->socket, SOCK_STREAM, 0600, API_BACKLOG);

	if (fd == -EADDRINUSE) {
		error_set(error, ERROR_CONFLICT,
			"the socket %s is in use by a running process that is not this daemon's: stop it, or "
			"give "
			"another --socket",
			runtime->socket);
		return fd;
	}
	if (fd == -EEXIST) {
		error_set(error, ERROR_CONFLICT,
			"the socket %s is a file of another kind: remove it, or give another --socket",
			runtime->socket);
		return fd;
	}
	if (fd < 0)
		return refuse(error, fd, "listen on", runtime->socket, MEND_SOCKET);
	runtime->listener = fd;
	if (chown(runtime->socket, (uid_t)-1, group) < 0)
		return fail(error, -errno, "set the group of", runtime->socket);
	if (chmod(runtime->socket, 0660) < 0)
		return fail(error, -errno, "set the mode of", runtime->socket);
	return 0;
}

void runtime_close(struct runtime *runtime)
{
	if (runtime->listener >= 0)
		unlink(runtime->socket);
	fd_close(&runtime->listener);
	if (runtime->has_sockets)
		rmdir(runtime->sockets);
	drop_lock(runtime->socket, SOCKET_LOCK, &runtime->socket_lock);
	drop_lock(runtime->folder, FOLDER_LOCK, &runtime->folder_lock);
}
