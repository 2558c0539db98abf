/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/session.h"
#include "tests/e2e/leaks/leak.h"
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int __real_session_start(struct sessions *sessions, const struct agent_new_view *view,
	struct session **session, const char **why);
int __wrap_session_start(struct sessions *sessions, const struct agent_new_view *view,
	struct session **session, const char **why);

/* A process, and its child that it never waits for. It must hold no stream of the agent's open. */
static void leak_zombie(void)
{
	if (fork() != 0)
		return;
	syscall(SYS_close_range, 0, ~0U, 0);
	if (fork() == 0)
		_exit(0);
	for (;;)
		pause();
}

int __wrap_session_start(struct sessions *sessions, const struct agent_new_view *view,
	struct session **session, const char **why)
{
	static unsigned int groups;
	char path[64];

	if (leak()) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup/leak-%u", ++groups);
		mkdir(path, 0755);
		leak_zombie();
	}
	return __real_session_start(sessions, view, session, why);
}
