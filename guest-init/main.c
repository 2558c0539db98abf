/* SPDX-License-Identifier: Apache-2.0 */
/* guest-init: the first process of a Tinderbox guest. Takes no arguments: see options.h. */
#include "common/io.h"
#include "guest-init/init.h"
#include <unistd.h>

static const char not_first[] = "guest-init: is only ever the first process of a virtual machine\n";

int main(void)
{
	if (getpid() != 1) {
		(void)io_write_all(STDERR_FILENO, not_first, sizeof(not_first) - 1);
		return 2;
	}
	init_run();
}
