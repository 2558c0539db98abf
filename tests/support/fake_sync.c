/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_sync.h"
#include <errno.h>
#include <stddef.h>

/* The linker's names (--wrap). */
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

static struct {
	int error;
	unsigned calls, sound;
	void (*synced)(void *context);
	void *context;
} plan;

void fake_sync(int error)
{
	fake_sync_later(0, error);
}

void fake_sync_later(unsigned calls, int error)
{
	plan.error = error;
	plan.calls = 0;
	plan.sound = calls;
}

unsigned fake_sync_count(void)
{
	return plan.calls;
}

void fake_sync_watch(void (*synced)(void *context), void *context)
{
	plan.synced = synced;
	plan.context = context;
}

int __wrap_fdatasync(int fd)
{
	int r;

	if (plan.calls++ >= plan.sound && plan.error) {
		errno = plan.error;
		return -1;
	}
	r = __real_fdatasync(fd);
	if (r == 0 && plan.synced)
		plan.synced(plan.context);
	return r;
}
