/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_REOPEN_H
#define TESTS_SUPPORT_REOPEN_H

#include "tests/support/unit.h"

#include <fcntl.h>
#include <stdio.h>

/* Another fd of the file, opened with flags: the caller's. */
static inline int reopen(int file, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

#endif
