/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_sync.h"
#include <errno.h>

/* The linker's names (--wrap). */
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

static int wanted_error;
static unsigned calls;

void fake_sync(int error)
{
	wanted_error = error;
	calls = 0;
}

unsigned fake_sync_count(void)
{
	return calls;
}

int __wrap_fdatasync(int fd)
{
	calls++;
	if (wanted_error) {
		errno = wanted_error;
		return -1;
	}
	return __real_fdatasync(fd);
}
