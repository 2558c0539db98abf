/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/users.h"
#include "common/io.h"
#include "common/parse.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

const struct users_files users_files_system = {.passwd = "/etc/passwd", .group = "/etc/group"};

/* Lines of a file, one at a time, in a buffer of fixed size. */
struct lines {
	int fd;
	size_t start, end, total;
	bool skipping; /* within a line that is too long */
	char buffer[USERS_LINE_MAX];
};

/* 1: more bytes came; 0: end of the file, or of what we read of it; or -errno. */
static int fill(struct lines *lines)
{
	ssize_t n;

	memmove(lines->buffer, lines->buffer + lines->start, lines->end - lines->start);
	lines->end -= lines->start;
	lines->start = 0;
	if (lines->end == sizeof(lines->buffer)) {
		lines->skipping = true;
		lines->end = 0;
	}
	if (lines->total >= USERS_FILE_MAX)
		return 0;
	do
		n = read(lines->fd, lines->buffer + lines->end, sizeof(lines->buffer) - lines->end);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	lines->end += (size_t)n;
	lines->total += (size_t)n;
	return 1;
}

/* 1: *line is set, NUL-terminated, until the next call; 0: no more; or -errno. A last line without newline is
 * not a line. */
static int next_line(struct lines *lines, char **line)
{
	for (;;) {
		char *start = lines->buffer + lines->start;
		char *newline = memchr(start, '\n', lines->end - lines->start);
		bool skipped = lines->skipping;
		int r;

		if (!newline) {
			r = fill(lines);
			if (r <= 0)
				return r;
			continue;
		}
		*newline = '\0';
		lines->start = (size_t)(newline + 1 - lines->buffer);
		lines->skipping = false;
		if (skipped || memchr(start, '\0', (size_t)(newline - start)))
			continue;
		*line = start;
		return 1;
	}
}

/* Splits at ':' in place. Returns the number of fields; those beyond `maximum` stay in the last. */
static size_t split(char *line, char **fields, size_t maximum)
{
	size_t count = 0;

	while (count < maximum) {
		fields[count++] = line;
		line = count < maximum ? strchr(line, ':') : NULL;
		if (!line)
			break;
		*line++ = '\0';
	}
	return count;
}

static int parse_id(const char *text, uint32_t *id)
{
	uint64_t value;

	/* The highest id means "none" to the system calls. */
	if (parse_u64(text, 0, UINT32_MAX - 1, &value) != 0)
		return -EINVAL;
	*id = (uint32_t)value;
	return 0;
}

/* name:password:uid:gid:comment:home:shell */
static bool match_passwd(char *line, const char *name, struct user *user)
{
	char *fields[7];
	const char *home;

	if (split(line, fields, 7) != 7 || strcmp(fields[0], name) != 0)
		return false;
	if (parse_id(fields[2], &user->uid) != 0 || parse_id(fields[3], &user->gid) != 0)
		return false;
	home = fields[5][0] ? fields[5] : "/";
	if (strlen(home) >= sizeof(user->home))
		return false;
	memcpy(user->home, home, strlen(home) + 1);
	return true;
}

static bool is_member(const char *members, const char *name)
{
	size_t length = strlen(name);

	while (*members) {
		size_t field = strcspn(members, ",");

		if (field == length && memcmp(members, name, length) == 0)
			return true;
		members += field + (members[field] == ',');
	}
	return false;
}

/* name:password:gid:member,member */
static void match_group(char *line, const char *name, struct user *user)
{
	char *fields[4];
	uint32_t gid;

	if (split(line, fields, 4) != 4 || !is_member(fields[3], name) || parse_id(fields[2], &gid) != 0)
		return;
	if (gid != user->gid && user->group_count < USERS_GROUPS_MAX)
		user->groups[user->group_count++] = gid;
}

static int find_passwd(const char *path, const char *name, struct user *user)
{
	struct lines lines = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
	char *line;
	int r;

	if (lines.fd < 0)
		return -errno;
	do
		r = next_line(&lines, &line);
	while (r > 0 && !match_passwd(line, name, user));
	fd_close(&lines.fd);
	if (r == 0)
		return -ENOENT;
	return r < 0 ? r : 0;
}

static int find_groups(const char *path, const char *name, struct user *user)
{
	struct lines lines = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
	char *line;
	int r;

	if (lines.fd < 0)
		return errno == ENOENT ? 0 : -errno;
	while ((r = next_line(&lines, &line)) > 0)
		match_group(line, name, user);
	fd_close(&lines.fd);
	return r;
}

int users_find(const struct users_files *files, const char *name, struct user *user)
{
	int r;

	memset(user, 0, sizeof(*user));
	/* A ':' or newline would never match; an empty name could match a broken line. */
	if (name[0] == '\0')
		return -ENOENT;
	r = find_passwd(files->passwd, name, user);
	return r < 0 ? r : find_groups(files->group, name, user);
}

void users_root(struct user *user)
{
	memset(user, 0, sizeof(*user));
	memcpy(user->home, "/root", sizeof("/root"));
}
