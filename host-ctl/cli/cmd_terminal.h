/* SPDX-License-Identifier: Apache-2.0 */
/* Our terminal while a command's is shown on it. */
#ifndef HOST_CTL_CMD_TERMINAL_H
#define HOST_CTL_CMD_TERMINAL_H

#include "common/proto_guest.h"
#include <termios.h>

struct cmd_terminal {
	int fd; /* -1: nothing is to be restored */
	struct termios before;
};

/* Each key as it is pressed, Ctrl-C and Ctrl-Z too, nothing echoed: the guest's terminal does all that. 0, or
 * -ENOTTY, or -errno. */
int cmd_terminal_make_raw(struct cmd_terminal *terminal, int fd);
void cmd_terminal_restore(struct cmd_terminal *terminal);
/* 24 x 80 where it cannot be had. */
void cmd_terminal_size(int fd, struct agent_resize *size);

#endif
