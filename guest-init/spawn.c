/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/spawn.h"
#include "guest-init/clone.h"
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child runs in the parent's memory on a stack the sanitizers do not know. */
#define CHILD_CODE __attribute__((no_sanitize("address", "undefined")))

struct child {
	const struct spawn_request *request;
	struct spawn_failure failure;
};

/* System calls without libc's wrappers: those for ids would stop and change other threads. 0 or errno. */
CHILD_CODE static int set_ids(const struct user *user)
{
	if (user->uid == 0 && user->gid == 0 && user->group_count == 0)
		return 0; /* what PID 1 is already */
	if (syscall(SYS_setgroups, user->group_count, user->groups) < 0)
		return errno;
	if (syscall(SYS_setresgid, user->gid, user->gid, user->gid) < 0)
		return errno;
	if (syscall(SYS_setresuid, user->uid, user->uid, user->uid) < 0)
		return errno;
	return 0;
}

CHILD_CODE static int set_stdio(const struct spawn_request *request)
{
	if (setsid() < 0)
		return errno;
	for (int i = 0; i < 3; i++)
		if (dup2(request->stdio[i], i) < 0)
			return errno;
	if (request->terminal && ioctl(0, TIOCSCTTY, 0) < 0)
		return errno;
	return 0;
}

/* PATH entry + '/' + name, or an error: an entry may be of any length, and an empty one is the cwd. */
CHILD_CODE static int join(
	char *buffer, const char *entry, size_t entry_length, const char *name, size_t length)
{
	size_t at = entry_length;

	if (entry_length + length + 2 > PATH_MAX)
		return ENAMETOOLONG;
	memcpy(buffer, entry, entry_length);
	if (entry_length > 0)
		buffer[at++] = '/';
	memcpy(buffer + at, name, length + 1);
	return 0;
}

/* Tries each entry of PATH as execvp(3) does, but never a shell. Returns the error to report. */
CHILD_CODE static int exec_in_path(const struct spawn_request *request)
{
	const char *name = request->argv[0], *entry = request->path;
	size_t length = strlen(name);
	char file[PATH_MAX];
	int error = ENOENT;

	for (;;) {
		size_t entry_length = strcspn(entry, ":");

		if (join(file, entry, entry_length, name, length) == 0) {
			execve(file, request->argv, request->envp);
			if (errno == EACCES)
				error = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
				return errno;
		}
		if (entry[entry_length] == '\0')
			return error;
		entry += entry_length + 1;
	}
}

CHILD_CODE static int exec_program(const struct spawn_request *request)
{
	/* Nothing is pending that was not sent to this child itself. */
	unsigned long none[_NSIG / (8 * sizeof(unsigned long))] = {0};

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, none, NULL, (_NSIG - 1) / 8);
	if (!strchr(request->argv[0], '/'))
		return exec_in_path(request);
	execve(request->argv[0], request->argv, request->envp);
	return errno;
}

CHILD_CODE static void run_child(void *context)
{
	struct child *child = context;
	const struct spawn_request *request = child->request;
	enum agent_start_step step = AGENT_STEP_PIPES;
	int error = set_stdio(request);

	if (error == 0) {
		step = AGENT_STEP_USER;
		error = set_ids(request->user);
	}
	if (error == 0) {
		step = AGENT_STEP_CWD;
		error = chdir(request->cwd) < 0 ? errno : 0;
	}
	if (error == 0) {
		step = AGENT_STEP_EXEC;
		error = exec_program(request);
	}
	child->failure = (struct spawn_failure){.step = step, .error = error};
	_exit(127);
}

pid_t spawn_start(const struct spawn_request *request, struct spawn_failure *failure)
{
	/* volatile in effect: the child writes it before clone_vfork returns, and the call hides that. */
	struct child child = {.request = request};
	int pid = clone_vfork(request->cgroup_fd, run_child, &child);

	if (pid < 0) {
		*failure = (struct spawn_failure){.step = AGENT_STEP_CLONE, .error = -pid};
		return -1;
	}
	*failure = child.failure;
	if (failure->error == 0)
		return pid;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return -1;
}
