/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fail_alloc.h"
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* The linker's names (--wrap). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static struct {
	bool armed, failed;
	unsigned left;
} plan;

void fail_alloc(unsigned n)
{
	plan.armed = true;
	plan.failed = false;
	plan.left = n;
}

int fail_alloc_end(void)
{
	plan.armed = false;
	return plan.failed;
}

static bool fails(void)
{
	if (!plan.armed || plan.left-- > 0)
		return false;
	plan.armed = false;
	plan.failed = true;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}
