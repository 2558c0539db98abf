/* SPDX-License-Identifier: Apache-2.0 */
/* guest-init: the first process of a Tinderbox guest. Takes no arguments: see options.h. */
#include "guest-init/init.h"
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	if (getpid() != 1) {
		fputs("guest-init: is only ever the first process of a virtual machine\n", stderr);
		return 2;
	}
	init_run();
}
