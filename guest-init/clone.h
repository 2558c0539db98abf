/* SPDX-License-Identifier: Apache-2.0 */
/* A child that shares the parent's memory and runs before it goes on, on a stack of its own. */
#ifndef GUEST_INIT_CLONE_H
#define GUEST_INIT_CLONE_H

#include <stddef.h>

enum { CLONE_STACK_BYTES = 16 * 1024 };

/*
 * clone3(2) with CLONE_VM | CLONE_VFORK, the signal dispositions reset, and SIGCHLD at its end; born in the
 * cgroup whose folder is cgroup_fd (-1: the parent's own). The child runs `child`, which must end by execve
 * or _exit; the parent is stopped until then. Returns the child's pid or -errno. Needs Linux 5.7.
 *
 * One file an architecture: clone_x86_64.c.
 */
int clone_vfork(int cgroup_fd, void (*child)(void *context), void *context);

#endif
