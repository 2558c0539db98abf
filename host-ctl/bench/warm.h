/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long until the first byte of a program's output: of a warm VM, from before the request connects to the
 * daemon; and of a process by posix_spawn on this host, from before the call.
 *
 * Each returns 0, or -1 with a sentence in warm->error.
 */
#ifndef HOST_CTL_WARM_H
#define HOST_CTL_WARM_H

#include <jansson.h>
#include <stdint.h>

enum {
	WARM_POOL_WAIT_MS = 120 * 1000, /* for the pool to be full again */
	WARM_POOL_POLL_MS = 20,
	WARM_SETTLE_MS = 50, /* for the daemon to have closed what asked */
	WARM_ERROR_MAX = 512,
};

struct warm {
	const char *socket;
	const char *template; /* whose clones are asked; NULL: base's */
	char **argv;	      /* the program, the same file in the guest and here */
	const char *here;     /* its file on this host */
	int mark;	      /* "request" and "first byte" are written there when they happen; -1: nowhere */
	char error[WARM_ERROR_MAX];
};

/*
 * Waits until every VM of the pool is warm and no other one is left, and the machine so at rest. look: shown
 * each answer about the pool on the way; NULL: nobody. -1 at once when the pool's target is 0.
 */
int warm_await_pool(struct warm *warm, void (*look)(void *data, const json_t *pool), void *data);
/* The program must give output, and end with status 0. */
int warm_time_request(struct warm *warm, uint64_t *ns);
int warm_time_spawn(struct warm *warm, uint64_t *ns);

#endif
