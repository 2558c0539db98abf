/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/power.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#define DEVICE_TREE "/sys/firmware/devicetree/base"

_Noreturn void power_end(int restart)
{
	sync();
	reboot(restart || access(DEVICE_TREE, F_OK) < 0 ? RB_AUTOBOOT : RB_POWER_OFF);
	/* Only without the right to: in a container or a test. Nothing is left to do, and exit is not
	 * allowed. */
	for (;;)
		pause();
}

_Noreturn void power_fail(const char *what, int error)
{
	char line[256];
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);

	/* <2>: critical, which is above the limit of `quiet`. */
	snprintf(line, sizeof(line), "<2>guest-init: cannot go on: %s: %s\n", what, strerror(error));
	if (fd < 0 || io_write_all(fd, line, strlen(line)) < 0)
		io_write_all(STDERR_FILENO, line + 3, strlen(line) - 3);
	power_end(1);
}
