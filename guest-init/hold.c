/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/hold.h"
#include <errno.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { UPPER_FD = 3 }; /* in the child: the first after stdio */

/* The child's copies of our streams would keep them open as long as it lives. */
static _Noreturn void write_back(int upper)
{
	if (upper != UPPER_FD && dup2(upper, UPPER_FD) < 0)
		_exit(errno);
	syscall(SYS_close_range, UPPER_FD + 1, ~0U, 0);
	_exit(syncfs(UPPER_FD) < 0 ? errno : 0);
}

int hold_begin(struct hold *hold, const struct layers *layers)
{
	pid_t pid;

	if (hold->pid > 0)
		return -EAGAIN;
	if (!layers || layers->upper < 0)
		return 0;
	/* fork(2) itself: the child needs nothing that the C library's would make ready for it. */
	pid = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
	if (pid < 0)
		return -errno;
	if (pid == 0)
		write_back(layers->upper);
	hold->pid = pid;
	return 1;
}

bool hold_ended(struct hold *hold, pid_t pid, int status, int *error)
{
	if (hold->pid <= 0 || pid != hold->pid)
		return false;
	hold->pid = 0;
	*error = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
	return true;
}
