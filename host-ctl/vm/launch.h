/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts one process with little: the fds it is given and no others, ids of its own, no new privileges,
 * system calls filtered (launch_filter.h), in a cgroup from its first instruction.
 *
 * Failures after the clone (ids, limits, exec) are the child's: it says which step failed and why on its
 * standard error and exits with LAUNCH_FAILED_STATUS, so that the parent never waits for it.
 */
#ifndef HOST_CTL_LAUNCH_H
#define HOST_CTL_LAUNCH_H

#include <stdint.h>
#include <sys/types.h>

enum {
	LAUNCH_FDS_MAX = 16,
	LAUNCH_FD_FIRST = 3, /* fds[0] is this one in the child, fds[1] the next, and so on */
	LAUNCH_FAILED_STATUS = 1,
};

struct launch {
	const char *path;   /* the executable, opened by the child under the daemon's ids */
	char *const *argv;  /* NULL-terminated */
	const int *fds;	    /* the parent's numbers */
	unsigned int count; /* of fds, at most LAUNCH_FDS_MAX */
	int error_output;   /* the child's fd 2; its 0 and 1 are /dev/null */
	int cgroup;	    /* folder fd */
	uid_t uid;
	gid_t gid;
	uint64_t files_max; /* RLIMIT_NOFILE */
	/* RLIMIT_FSIZE: a write beyond it fails with EFBIG, and SIGXFSZ is ignored. */
	uint64_t file_bytes_max;
};

/* 0 with *pid and *pidfd (the caller's, CLOEXEC) set, or -errno of clone3. The environment is empty. */
int launch_start(const struct launch *launch, pid_t *pid, int *pidfd);

#endif
