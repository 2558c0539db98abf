/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a command runs as: /etc/passwd and /etc/group of the guest's root, read at each look-up, since a
 * command may have changed them. Files only; no name services.
 *
 * The files are the guest's own, so they are read with bounds: a line longer than USERS_LINE_MAX or broken in
 * form is passed over, and no more than USERS_FILE_MAX bytes of a file are read.
 */
#ifndef GUEST_INIT_USERS_H
#define GUEST_INIT_USERS_H

#include <stddef.h>
#include <sys/types.h>

enum {
	USERS_LINE_MAX = 4096,
	USERS_FILE_MAX = 1024 * 1024,
	USERS_GROUPS_MAX = 64, /* supplementary groups; further ones are left out */
	USERS_HOME_MAX = 256,  /* NUL included; a longer home is broken form */
};

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USERS_GROUPS_MAX];
	size_t group_count;
	char home[USERS_HOME_MAX];
};

struct users_files {
	const char *passwd, *group;
};
extern const struct users_files users_files_system; /* /etc/passwd and /etc/group */

/* 0, -ENOENT (no such user, or no such file), or -errno of reading. A missing group file means no groups. */
int users_find(const struct users_files *files, const char *name, struct user *user);

/* Root without a look-up: ids 0, no supplementary groups, home /root. */
void users_root(struct user *user);

#endif
