/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a session's leader: clone into its cgroup, then in the child setsid, stdio, ids, folder, signal
 * mask, execve. The child shares our memory until execve, so it says by a struct which step failed, and with
 * what.
 *
 * We stand still while the child does this: an execve from a file system that hangs (FUSE of the guest's own)
 * hangs the agent too, and the host's deadline is what ends such a guest.
 *
 * The child inherits: umask 022, environment given, no signal blocked or ignored, fds 0 to 2 only (all else
 * is CLOEXEC), a session and process group of its own.
 */
#ifndef GUEST_INIT_SPAWN_H
#define GUEST_INIT_SPAWN_H

#include "common/proto_guest.h"
#include "guest-init/users.h"
#include <sys/types.h>

struct spawn_request {
	char *const *argv, *const *envp; /* NULL-terminated; argv[0] is not empty */
	const char *path;		 /* PATH that argv[0] is looked up in when it has no '/' */
	const char *cwd;
	const struct user *user;
	int stdio[3];  /* each at least 3; stay the caller's */
	int cgroup_fd; /* -1: none */
	int terminal;  /* 1: stdio[0] is a terminal and becomes the controlling one */
};

struct spawn_failure {
	enum agent_start_step step;
	int error; /* positive errno */
};

/* The leader's pid; or -1 with *failure set (the child, if there was one, is reaped). The caller has all
 * signals blocked. */
pid_t spawn_start(const struct spawn_request *request, struct spawn_failure *failure);

#endif
