/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/support/fake_process.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/vm/cgroup.h"
#include "host-ctl/vm/launch.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

/* The linker's names (--wrap). */
int __wrap_launch_start(const struct launch *launch, pid_t *pid, int *pidfd);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options);
int __wrap_cgroup_create(struct cgroup_tree *tree, const char *name, const struct cgroup_limits *limits);
int __wrap_cgroup_set_weight(const struct cgroup_tree *tree, int group, unsigned int weight);
int __wrap_cgroup_kill(int group);
int __wrap_cgroup_remove(struct cgroup_tree *tree, const char *name);
int __wrap_cgroup_open_events(int group);
bool __wrap_cgroup_had_oom_kill(int group);
void __wrap_log_at(enum log_level level, const char *format, ...);

static struct fake_process *now;

void fake_process_init(struct fake_process *process, struct fuzz_input *input)
{
	*process = (struct fake_process){.input = input, .listener = -1, .errors = -1, .end_event = -1};
	now = process;
}

static void release(struct fake_process *process)
{
	fd_close(&process->listener);
	fd_close(&process->errors);
}

void fake_process_finish(struct fake_process *process)
{
	release(process);
	fd_close(&process->end_event);
	now = NULL;
}

void fake_process_end(struct fake_process *process, int code, int status)
{
	if (!process->launched || process->ended)
		return;
	release(process);
	process->ended = true;
	process->code = code;
	process->status = status;
	FUZZ_ASSERT(eventfd_write(process->end_event, 1) == 0);
}

/* Whether the kernel is to refuse, now and then. */
static bool refuses(void)
{
	bool refused = fuzz_one_in(now->input, 32);

	now->refused |= refused;
	return refused;
}

static int duplicate(int fd)
{
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	FUZZ_ASSERT(fd >= 0);
	return fd;
}

int __wrap_launch_start(const struct launch *launch, pid_t *pid, int *pidfd)
{
	FUZZ_ASSERT(!now->launched && launch->count >= 1 && launch->count <= LAUNCH_FDS_MAX);
	for (unsigned int i = 0; i < launch->count; i++)
		FUZZ_ASSERT(launch->fds[i] >= 0 && fcntl(launch->fds[i], F_GETFD) == FD_CLOEXEC);
	if (refuses())
		return -ENOMEM;
	now->launched = true;
	now->listener = duplicate(launch->fds[0]);
	now->errors = duplicate(launch->error_output);
	now->end_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*pidfd = duplicate(now->end_event);
	*pid = FAKE_PROCESS_PID;
	return 0;
}

int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	(void)type;
	(void)id;
	FUZZ_ASSERT(now->launched && (now->ended || (options & WNOHANG)));
	*info = (siginfo_t){.si_signo = now->ended ? SIGCHLD : 0};
	if (!now->ended)
		return 0;
	info->si_code = now->code;
	info->si_pid = FAKE_PROCESS_PID;
	info->si_status = now->status;
	return 0;
}

/* control groups */

int __wrap_cgroup_create(struct cgroup_tree *tree, const char *name, const struct cgroup_limits *limits)
{
	(void)tree;
	FUZZ_ASSERT(name[0] != '\0' && limits->memory_bytes && limits->pids);
	return refuses() ? -ENOSPC : duplicate(0);
}

int __wrap_cgroup_set_weight(const struct cgroup_tree *tree, int group, unsigned int weight)
{
	(void)tree;
	FUZZ_ASSERT(group >= 0 && weight >= 1 && weight <= 10000);
	return 0;
}

int __wrap_cgroup_kill(int group)
{
	(void)group;
	fake_process_end(now, CLD_KILLED, SIGKILL);
	return 0;
}

int __wrap_cgroup_remove(struct cgroup_tree *tree, const char *name)
{
	(void)tree;
	(void)name;
	return fuzz_one_in(now->input, 8) ? -EBUSY : 0;
}

/* As where it cannot be watched: then it is tried again. */
int __wrap_cgroup_open_events(int group)
{
	(void)group;
	return -EMFILE;
}

bool __wrap_cgroup_had_oom_kill(int group)
{
	(void)group;
	return fuzz_one_in(now->input, 4);
}

void __wrap_log_at(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list arguments;

	(void)level;
	FUZZ_ASSERT(!strstr(format, "bug:"));
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
}
