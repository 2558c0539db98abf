/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/template_disk.h"
#include "common/io.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DISK_FD = 3 }; /* in the child */

/* The child's files, each an errno of posix_spawn's. */
static int set_files(posix_spawn_file_actions_t *files, int disk, int errors)
{
	int r = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDWR, 0);

	if (!r)
		r = posix_spawn_file_actions_adddup2(files, STDIN_FILENO, STDOUT_FILENO);
	if (!r)
		r = posix_spawn_file_actions_adddup2(files, errors, STDERR_FILENO);
	if (!r)
		r = posix_spawn_file_actions_adddup2(files, disk, DISK_FD);
	return r;
}

/* A worker's thread has all signals blocked, and the daemon ignores some. */
static int set_signals(posix_spawnattr_t *attributes)
{
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	r = posix_spawnattr_setsigmask(attributes, &none);
	if (!r)
		r = posix_spawnattr_setsigdefault(attributes, &all);
	if (!r)
		r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return r;
}

/* 0 or -errno. */
static int start(const char *mkfs, int disk, int errors, pid_t *pid)
{
	char name[] = "mkfs.ext4", quiet[] = "-q", force[] = "-F", block[] = "-b", bytes[] = "4096",
	     reserved[] = "-m", none[] = "0", extended[] = "-E",
	     now[] = "lazy_itable_init=0,lazy_journal_init=1", path[] = "/proc/self/fd/3",
	     locale[] = "LC_ALL=C";
	char *argv[] = {name, quiet, force, block, bytes, reserved, none, extended, now, path, NULL},
	     *environment[] = {locale, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	int r = posix_spawn_file_actions_init(&files);

	if (r)
		return -r;
	r = posix_spawnattr_init(&attributes);
	if (r) {
		posix_spawn_file_actions_destroy(&files);
		return -r;
	}
	r = set_files(&files, disk, errors);
	if (!r)
		r = set_signals(&attributes);
	if (!r)
		r = posix_spawn(pid, mkfs, &files, &attributes, argv, environment);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* Reads what it says until it has ended, or its time is over. False: the latter. */
static bool read_words(int fd, struct tail *tail)
{
	const uint64_t until = clock_now() + TEMPLATE_DISK_MAKE_MS * CLOCK_NS_PER_MS;
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	for (;;) {
		uint64_t now = clock_now();

		if (now >= until)
			return false;
		if (poll(&wait, 1, (int)((until - now) / CLOCK_NS_PER_MS) + 1) > 0 && tail_read(tail, fd) < 0)
			return true;
	}
}

/* Its end: 0, or -errno with cause set. */
static int await(pid_t pid, int fd, char cause[TEMPLATE_DISK_CAUSE_MAX])
{
	char words[TAIL_BYTES];
	struct tail tail = {0};
	bool ended = read_words(fd, &tail);
	int status = 0;

	if (!ended)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!ended) {
		snprintf(cause, TEMPLATE_DISK_CAUSE_MAX, "mkfs.ext4 has not made its disk within %d s",
			TEMPLATE_DISK_MAKE_MS / 1000);
		return -ETIMEDOUT;
	}
	if (status == 0)
		return 0;
	tail_format(&tail, words, sizeof words);
	snprintf(cause, TEMPLATE_DISK_CAUSE_MAX, "mkfs.ext4 could not make its disk (%s %d): %.200s",
		WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), words);
	return -EIO;
}

int template_disk_make(int disk, uint64_t bytes, const char *mkfs, char cause[TEMPLATE_DISK_CAUSE_MAX])
{
	int pipe_ends[2] = {-1, -1}, r;
	pid_t pid = 0;

	r = ftruncate(disk, (off_t)bytes) < 0 || pipe2(pipe_ends, O_CLOEXEC) < 0 ? -errno : 0;
	if (r) {
		snprintf(cause, TEMPLATE_DISK_CAUSE_MAX, "cannot make its disk of %lluM: %s",
			(unsigned long long)(bytes >> 20), strerror(-r));
		return r;
	}
	r = fd_set_nonblock(pipe_ends[0]);
	if (!r)
		r = start(mkfs, disk, pipe_ends[1], &pid);
	fd_close(&pipe_ends[1]);
	if (r)
		snprintf(cause, TEMPLATE_DISK_CAUSE_MAX,
			"a disk needs mkfs.ext4, and %.128s cannot be started: %s: install e2fsprogs, or "
			"name it "
			"with --mkfs",
			mkfs, strerror(-r));
	else
		r = await(pid, pipe_ends[0], cause);
	fd_close(&pipe_ends[0]);
	return r;
}
