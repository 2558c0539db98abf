/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that would hold up the loop (reading a template, bringing it to the disk), on a thread of its own.
 *
 * The daemon has one thread besides, and its state is that one's alone. So work touches only what its context
 * was given for it, which nobody else touches until done was called; it may log, and it takes no signal.
 */
#ifndef HOST_CTL_WORKER_H
#define HOST_CTL_WORKER_H

#include "common/loop.h"
#include <stddef.h>

enum { WORKER_FDS_MAX = 8, WORKER_STACK = 256 * 1024 };

/*
 * Starts work(context); when it has returned, done(context) is called from the loop, once. It cannot be
 * cancelled. 0; or -errno: neither is called.
 */
int worker_start(struct loop *loop, void (*work)(void *context), void (*done)(void *context), void *context);

/*
 * Closes fds, those that are not -1, some time later: the last close of a large file that has no name frees
 * its pages, 100 ms for a GiB. Where no thread can be had it is done at once. At most WORKER_FDS_MAX.
 */
void worker_close(const int *fds, size_t count);

#endif
