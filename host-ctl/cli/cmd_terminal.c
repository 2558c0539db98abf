/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_terminal.h"

#include <errno.h>
#include <sys/ioctl.h>

int cmd_terminal_make_raw(struct cmd_terminal *terminal, int fd)
{
	struct termios raw;

	if (tcgetattr(fd, &terminal->before) < 0)
		return -errno;
	raw = terminal->before;
	cfmakeraw(&raw);
	if (tcsetattr(fd, TCSADRAIN, &raw) < 0)
		return -errno;
	terminal->fd = fd;
	return 0;
}

void cmd_terminal_restore(struct cmd_terminal *terminal)
{
	if (terminal->fd >= 0)
		tcsetattr(terminal->fd, TCSADRAIN, &terminal->before);
	terminal->fd = -1;
}

void cmd_terminal_size(int fd, struct agent_resize *size)
{
	struct winsize window;

	*size = (struct agent_resize){.rows = 24, .cols = 80};
	if (ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_row && window.ws_col)
		*size = (struct agent_resize){.rows = window.ws_row, .cols = window.ws_col};
}
