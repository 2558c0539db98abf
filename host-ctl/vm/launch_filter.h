/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A filter of system calls (seccomp(2)) for a vmm and all that comes of it. It refuses, by EPERM, what a vmm
 * never does and one that its guest has taken over could use against the host: sockets other than Unix ones
 * (the host's networks; and an open file that the daemon is sent and whose close waits), namespaces and
 * mounts (FUSE: the same), other processes' memory, and large parts of the kernel that are reached by calls
 * of their own. A call of another architecture ends the process.
 *
 * It is no list of what is allowed: files that anybody may read can still be read.
 */
#ifndef HOST_CTL_LAUNCH_FILTER_H
#define HOST_CTL_LAUNCH_FILTER_H

/* For the calling process, from now on and through execve. no_new_privs must be set. Async-signal-safe. 0 or
 * -errno (-EINVAL: a kernel without CONFIG_SECCOMP_FILTER). */
int launch_filter_install(void);

#endif
