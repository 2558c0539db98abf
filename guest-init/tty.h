/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-terminals of sessions: the master is ours, the other end the command's stdin, stdout and stderr. */
#ifndef GUEST_INIT_TTY_H
#define GUEST_INIT_TTY_H

#include <stdint.h>
#include <sys/types.h>

enum { TTY_EOF = 4 }; /* what STDIN_EOF types: Ctrl-D */

/*
 * A new pair of this size that belongs to the user; both fds are the caller's, the master non-blocking. 0 or
 * -errno (-ENOENT: no devpts).
 */
int tty_open(uint16_t rows, uint16_t columns, uid_t uid, int *master, int *terminal);

/* 0 or -errno. Its foreground process group gets SIGWINCH when the size has changed. */
int tty_resize(int master, uint16_t rows, uint16_t columns);

#endif
