/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/support/fake_time.h"
#include "tests/fuzz/support/fuzz.h"
#include <string.h>
#include <sys/timerfd.h>

/* The linker's names (--wrap). */
int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old);

enum { WAIT_MS = 1000 };

static bool armed[FUZZ_FDS_MAX];

int __wrap_timerfd_create(int clock, int flags)
{
	int fd = __real_timerfd_create(clock, flags);

	FUZZ_ASSERT(fd < FUZZ_FDS_MAX);
	if (fd >= 0)
		armed[fd] = false;
	return fd;
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old)
{
	const struct itimerspec never = {.it_value = {.tv_sec = 0}};

	if (fd >= 0 && fd < FUZZ_FDS_MAX)
		armed[fd] = value->it_value.tv_sec != 0 || value->it_value.tv_nsec != 0;
	/* What it was set to before no longer counts, had it gone off already. Wrong values fail as ever. */
	if (value->it_value.tv_sec < 0 || value->it_value.tv_nsec < 0 || value->it_value.tv_nsec > 999999999)
		return __real_timerfd_settime(fd, flags, value, old);
	return __real_timerfd_settime(fd, flags, &never, old);
}

/* An fd that was closed since is no timer any more, or one that was made anew, and so not armed. */
static bool is_armed(int fd)
{
	struct itimerspec left;

	if (armed[fd] && timerfd_gettime(fd, &left) < 0)
		armed[fd] = false;
	return armed[fd];
}

void fake_time_fire(struct loop *loop, unsigned which)
{
	const struct itimerspec now = {.it_value = {.tv_nsec = 1}};
	unsigned count = 0;

	for (int fd = 0; fd < FUZZ_FDS_MAX; fd++)
		count += is_armed(fd);
	if (count == 0)
		return;
	which %= count;
	for (int fd = 0; fd < FUZZ_FDS_MAX; fd++) {
		if (!armed[fd] || which-- > 0)
			continue;
		armed[fd] = false;
		FUZZ_ASSERT(__real_timerfd_settime(fd, 0, &now, NULL) == 0);
		break;
	}
	FUZZ_ASSERT(loop_turn(loop, WAIT_MS) == 0);
}
