/* SPDX-License-Identifier: Apache-2.0 */
/* The last bytes of a stream of log lines: all that is kept of what a vmm writes on its standard error. */
#ifndef HOST_CTL_TAIL_H
#define HOST_CTL_TAIL_H

#include <stddef.h>

enum { TAIL_BYTES = 512, TAIL_READ = 4096 };

struct tail {
	char bytes[TAIL_BYTES];
	size_t length;
};

void tail_add(struct tail *tail, const char *data, size_t length);
/* Reads a non-blocking fd until it has no more, at most TAIL_READ bytes a call. 1: there may be more, 0: none
 * for now, -EPIPE: end of stream, or -errno. */
int tail_read(struct tail *tail, int fd);
/* The last whole lines that fit, joined by "; ", printable. size is at least 1; empty when nothing came. */
void tail_format(const struct tail *tail, char *text, size_t size);

#endif
