/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1: from the kernel's hand to the loop that serves the agent, and to the end of the guest.
 *
 *   SERVING ──SHUTDOWN, or a signal that means it──→ TERM sent ──grace over──→ KILL sent ──→ sync, power off
 *                                                        └── no child is left ──────────────────┘↑
 *
 * Signals that mean it are those of busybox's init: USR1 and USR2 power off, TERM and INT (Ctrl-Alt-Del)
 * restart.
 */
#ifndef GUEST_INIT_INIT_H
#define GUEST_INIT_INIT_H

/* Only as PID 1 of a machine. */
_Noreturn void init_run(void);

#endif
