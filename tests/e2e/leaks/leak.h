/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaks that the suite `growth` has to find: daemon, vmm and guest-init are linked once more with one
 * function that every command passes in a wrapper (ld's --wrap), which calls leak() first.
 */
#ifndef E2E_LEAK_H
#define E2E_LEAK_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	LEAK_BYTES = 64, /* at each call */
	LEAK_EACH = 100, /* calls, then one fd */
};

/* True when an fd was leaked too: at the same calls the caller may leak something else. */
static inline bool leak(void)
{
	static unsigned int calls;
	static void **last; /* all of them in a row, so that no compiler leaves one out */
	void **memory = malloc(LEAK_BYTES);

	if (memory) {
		*memory = last;
		last = memory;
	}
	if (++calls % LEAK_EACH != 0)
		return false;
	return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) >= 0;
}

#endif
