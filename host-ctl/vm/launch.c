/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: between clone3 and execve the child calls only async-signal-safe functions, for it is a copy of
 * one thread of the daemon. The library's setgroups, setresgid and setresuid are not: they reach for the
 * other threads, which are not there.
 */
#include "host-ctl/vm/launch.h"
#include "host-ctl/vm/launch_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Above every number that fds end up at, so that none is overwritten before it is moved. */
enum { PARKING = LAUNCH_FD_FIRST + LAUNCH_FDS_MAX + 1 };

static void say(const char *text)
{
	ssize_t ignored = write(STDERR_FILENO, text, strlen(text));

	(void)ignored;
}

static _Noreturn void fail(const char *step)
{
	const char *why = strerrordesc_np(errno);

	say("vmm not started: ");
	say(step);
	say(": ");
	say(why ? why : "unknown error");
	say("\n");
	_exit(LAUNCH_FAILED_STATUS);
}

/* fds to their places: first all out of the way, then each to its number, then no other stays. */
static void place_fds(const struct launch *launch, int executable)
{
	int parked[LAUNCH_FDS_MAX], null, last = LAUNCH_FD_FIRST + (int)launch->count;

	executable = fcntl(executable, F_DUPFD, PARKING);
	for (unsigned int i = 0; i < launch->count; i++) {
		parked[i] = fcntl(launch->fds[i], F_DUPFD, PARKING);
		if (parked[i] < 0)
			fail("moving fds");
	}
	null = open("/dev/null", O_RDWR);
	if (executable < 0 || null < 0)
		fail("opening /dev/null");
	if (dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		fail("placing standard fds");
	for (unsigned int i = 0; i < launch->count; i++)
		if (dup2(parked[i], LAUNCH_FD_FIRST + i) < 0)
			fail("placing fds");
	if (dup2(executable, last) < 0 || fcntl(last, F_SETFD, FD_CLOEXEC) < 0)
		fail("placing the executable");
	if (syscall(SYS_close_range, (unsigned int)last + 1, ~0u, 0) < 0)
		fail("closing other fds");
}

static void set_limit(int resource, rlim_t value)
{
	const struct rlimit limit = {.rlim_cur = value, .rlim_max = value};

	if (setrlimit(resource, &limit) < 0)
		fail("setting resource limits");
}

static void drop_privileges(const struct launch *launch)
{
	set_limit(RLIMIT_NOFILE, launch->files_max);
	set_limit(RLIMIT_FSIZE, launch->file_bytes_max);
	set_limit(RLIMIT_CORE, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("setting no_new_privs");
	if (syscall(SYS_setgroups, (size_t)0, NULL) < 0)
		fail("dropping groups");
	if (syscall(SYS_setresgid, launch->gid, launch->gid, launch->gid) < 0)
		fail("setting the gid");
	if (syscall(SYS_setresuid, launch->uid, launch->uid, launch->uid) < 0)
		fail("setting the uid");
	errno = -launch_filter_install();
	if (errno != 0)
		fail("setting the filter of system calls");
}

/* Dispositions of signals that the daemon ignores, and its mask, would pass through execve. */
static void reset_signals(void)
{
	sigset_t none;

	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void run_child(const struct launch *launch)
{
	char *const environment[] = {NULL};
	int executable;

	/* First, for it is where every failure is told. */
	if (dup2(launch->error_output, STDERR_FILENO) < 0)
		_exit(LAUNCH_FAILED_STATUS);
	/* Opened while the path means the same and may be read: the tree may be closed to the VM's uid. */
	executable = open(launch->path, O_RDONLY | O_CLOEXEC);
	if (executable < 0)
		fail(launch->path);
	if (setsid() < 0 || chdir("/") < 0)
		fail("leaving the session");
	umask(077);
	place_fds(launch, executable);
	drop_privileges(launch);
	reset_signals();
	execveat(LAUNCH_FD_FIRST + (int)launch->count, "", launch->argv, environment, AT_EMPTY_PATH);
	fail(launch->path);
}

int launch_start(const struct launch *launch, pid_t *pid, int *pidfd)
{
	int fd = -1;
	struct clone_args arguments = {
		.flags = CLONE_PIDFD | CLONE_INTO_CGROUP,
		.pidfd = (uintptr_t)&fd,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)launch->cgroup,
	};
	long result = syscall(SYS_clone3, &arguments, sizeof arguments);

	if (result < 0)
		return -errno;
	if (result == 0)
		run_child(launch);
	*pid = (pid_t)result;
	*pidfd = fd;
	return 0;
}
