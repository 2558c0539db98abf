/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/tty.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

int tty_resize(int master, uint16_t rows, uint16_t columns)
{
	const struct winsize size = {.ws_row = rows, .ws_col = columns};

	return ioctl(master, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

int tty_open(uint16_t rows, uint16_t columns, uid_t uid, int *master, int *terminal)
{
	int locked = 0, r;

	*terminal = -1;
	*master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (*master < 0)
		return -errno;
	r = tty_resize(*master, rows, columns);
	if (r < 0)
		goto fail;
	/* By the master, not by a name: /dev/pts may show another mount. */
	if (ioctl(*master, TIOCSPTLCK, &locked) == 0)
		*terminal = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*terminal >= 0 && fchown(*terminal, uid, (gid_t)-1) == 0)
		return 0;
	r = -errno;
fail:
	fd_close(master);
	fd_close(terminal);
	return r;
}
