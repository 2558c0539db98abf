/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a sandbox in the state folder of a whole daemon. */
#ifndef TESTS_UNIT_HOSTCTL_SANDBOX_FILES_H
#define TESTS_UNIT_HOSTCTL_SANDBOX_FILES_H

#include "tests/unit/hostctl_fixture.h"

/* name: of a file in it; empty: the folder itself. */
static inline void sandbox_file(const struct daemon *daemon, const char *id, const char *name, char path[160])
{
	snprintf(path, 160, "%s/sandboxes/%.40s%s%s", daemon->state, id, name[0] ? "/" : "", name);
}

static inline bool sandbox_has_file(const struct daemon *daemon, const char *id, const char *name)
{
	char path[160];

	sandbox_file(daemon, id, name, path);
	return access(path, F_OK) == 0;
}

static inline struct stat sandbox_file_status(const struct daemon *daemon, const char *id, const char *name)
{
	struct stat status;
	char path[160];

	sandbox_file(daemon, id, name, path);
	assert_int_equal(lstat(path, &status), 0);
	return status;
}

#endif
