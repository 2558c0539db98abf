/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways in which PID 1 ends a guest. None returns.
 *
 * PID 1 may not exit: the kernel would panic, and the host could not tell a fault of ours from one of the
 * kernel's. So a wanted end is a power-off (the VMM reports "powered off"), and an end because guest-init
 * cannot go on is a reboot (the VMM reports "asked for a reset"), after the reason was written to the
 * kernel's log at a level that reaches the console even of a quiet kernel. A crash of ours is a kernel panic.
 *
 * What powers off is named in the device tree. A kernel that has none would halt for ever, unseen by the VMM:
 * there a power-off is a reboot too.
 */
#ifndef GUEST_INIT_POWER_H
#define GUEST_INIT_POWER_H

/* reboot: 0: power off, where that is possible; 1: restart. Writes files back first. */
_Noreturn void power_end(int reboot);

/* Says why, and restarts. */
_Noreturn void power_fail(const char *what, int error);

#endif
