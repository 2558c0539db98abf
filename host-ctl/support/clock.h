/* SPDX-License-Identifier: Apache-2.0 */
/* The host's clocks, in nanoseconds. */
#ifndef HOST_CTL_CLOCK_H
#define HOST_CTL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_MS UINT64_C(1000000)
#define CLOCK_NS_PER_US UINT64_C(1000)

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC. */
static inline uint64_t clock_now(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

/* CLOCK_REALTIME, in milliseconds since 1970: what is told to clients and kept across boots. */
static inline uint64_t clock_wall_ms(void)
{
	return clock_read(CLOCK_REALTIME) / CLOCK_NS_PER_MS;
}

#endif
