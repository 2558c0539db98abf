/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/cgroup.h"
#include "common/io.h"
#include "common/parse.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	CONTROL_FILE_MAX = 1024, /* of a control file, as far as we read it */
	NAME_MAX_BYTES = 16,
};

static const char set_name[] = "tinderbox";
static const char *const controllers[] = {"cpu", "memory", "pids", "io"};

static int open_folder(int at, const char *path)
{
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int write_file(int folder, const char *name, const char *text)
{
	int fd = openat(folder, name, O_WRONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = io_write_all(fd, text, strlen(text));
	fd_close(&fd);
	return r;
}

/* The text of a control file, NUL-terminated; "" when it cannot be read. */
static void read_file(int folder, const char *name, char text[CONTROL_FILE_MAX])
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : io_read_full(fd, text, CONTROL_FILE_MAX - 1);

	fd_close(&fd);
	text[n > 0 ? n : 0] = '\0';
}

/* The number after "key " at the start of a line; 0 when there is none. */
static uint64_t read_value(int folder, const char *name, const char *key)
{
	char text[CONTROL_FILE_MAX] = "", *next;
	size_t length = strlen(key);
	uint64_t value = 0;

	read_file(folder, name, text);
	for (char *line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (strncmp(line, key, length) != 0 || line[length] != ' ')
			continue;
		(void)parse_u64(line + length + 1, 0, UINT64_MAX, &value);
		return value;
	}
	return 0;
}

static bool has_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = text; *at; at += strcspn(at, " \n"), at += *at != '\0')
		if (strncmp(at, word, length) == 0 && strchr(" \n", at[length]))
			return true;
	return false;
}

/* All at once in the common case; one at a time where one is missing. */
static void enable_controllers(int folder)
{
	char one[NAME_MAX_BYTES];

	if (write_file(folder, "cgroup.subtree_control", "+cpu +memory +pids +io") == 0)
		return;
	for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) {
		snprintf(one, sizeof(one), "+%s", controllers[i]);
		write_file(folder, "cgroup.subtree_control", one);
	}
}

static int make_group(struct cgroup_set *set, struct cgroup *group)
{
	char name[NAME_MAX_BYTES];
	int fd;

	snprintf(name, sizeof(name), "%d", (int)(group - set->groups));
	if (mkdirat(set->fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = open_folder(set->fd, name);
	if (fd < 0)
		return fd;
	group->fd = fd;
	return 0;
}

static int open_set(struct cgroup_set *set, int root)
{
	int file;

	if (mkdirat(root, set_name, 0755) < 0 && errno != EEXIST)
		return -errno;
	set->fd = open_folder(root, set_name);
	if (set->fd < 0)
		return set->fd;
	enable_controllers(root);
	enable_controllers(set->fd);
	/* Not a cgroup2 at all, or one that is not ours to write. */
	file = openat(set->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return -errno;
	fd_close(&file);
	return 0;
}

static void note_controllers(struct cgroup_set *set, struct warnings *warnings)
{
	char enabled[CONTROL_FILE_MAX];

	read_file(set->fd, "cgroup.subtree_control", enabled);
	for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++)
		if (!has_word(enabled, controllers[i]))
			warnings_add(warnings, "cgroup: the controller %s is missing: no such limits",
				controllers[i]);
	set->has_memory = has_word(enabled, "memory");
	set->has_pids = has_word(enabled, "pids");
}

bool cgroup_set_available(const struct cgroup_set *set)
{
	return set->fd >= 0;
}

/* What a sweep may still look at, and how many it has removed. */
struct sweep {
	unsigned left, removed;
};

/* Removes what groups a command has left below its own. Not found or not empty: the caller's look says so. */
static void remove_below(int folder, int depth, struct sweep *sweep)
{
	int fd = open_folder(folder, ".");
	DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!entries && fd >= 0)
		close(fd);
	while (entries && sweep->left > 0 && (entry = readdir(entries))) {
		int below;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		sweep->left--;
		below = depth < CGROUP_DEPTH_MAX ? open_folder(folder, entry->d_name) : -1;
		if (below >= 0) {
			remove_below(below, depth + 1, sweep);
			close(below);
		}
		sweep->removed += unlinkat(folder, entry->d_name, AT_REMOVEDIR) == 0;
	}
	if (entries)
		closedir(entries);
}

/* A group with groups below cannot hold processes where controllers are on. */
static bool has_below(int folder)
{
	struct stat st;

	return fstat(folder, &st) == 0 && st.st_nlink > 2;
}

static int set_limit(const struct cgroup *group, const char *name, uint64_t value, bool *limited)
{
	char text[24] = "max";
	int r;

	if (value == 0 && !*limited)
		return 0;
	if (value != 0)
		snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	r = write_file(group->fd, name, text);
	if (r == 0)
		*limited = value != 0;
	return r;
}

/* One that is ready, else a new one. */
static struct cgroup *find_group(struct cgroup_set *set, int *error)
{
	struct cgroup *unmade = NULL;

	for (int i = 0; i < CGROUP_GROUPS_MAX; i++) {
		struct cgroup *group = &set->groups[i];

		if (group->fd >= 0 && !group->taken && !group->spent)
			return group;
		if (group->fd < 0 && !unmade)
			unmade = group;
	}
	*error = unmade ? make_group(set, unmade) : -EBUSY;
	return *error == 0 ? unmade : NULL;
}

int cgroup_take(struct cgroup_set *set, uint64_t memory_max, uint32_t pids_max, struct cgroup **out)
{
	struct cgroup *group;
	int r;

	*out = NULL;
	if ((memory_max && !set->has_memory) || (pids_max && !set->has_pids))
		return -EOPNOTSUPP;
	if (!cgroup_set_available(set))
		return 0;
	group = find_group(set, &r);
	if (!group)
		return r;
	r = set_limit(group, "memory.max", memory_max, &group->memory_limited);
	if (r == 0)
		r = set_limit(group, "pids.max", pids_max, &group->pids_limited);
	if (r < 0) {
		/* Somebody has removed it, or changed it: the next one gets another. */
		group->spent = true;
		return r;
	}
	group->taken = true;
	*out = group;
	return 0;
}

int cgroup_kill(struct cgroup *group)
{
	if (!group)
		return 0;
	group->spent = true;
	return write_file(group->fd, "cgroup.kill", "1");
}

void cgroup_release(struct cgroup_set *set, struct cgroup *group, bool keep)
{
	if (!group)
		return;
	group->taken = false;
	if (has_below(group->fd) || read_value(group->fd, "cgroup.events", "populated") != 0)
		group->spent = true;
	if (group->spent && !keep)
		cgroup_kill(group);
	if (!group->spent && set->has_memory)
		group->oom_kills = read_value(group->fd, "memory.events", "oom_kill");
}

static bool remove_group(const struct cgroup_set *set, struct cgroup *group, struct sweep *sweep)
{
	char name[NAME_MAX_BYTES];

	if (has_below(group->fd))
		remove_below(group->fd, 0, sweep);
	snprintf(name, sizeof(name), "%d", (int)(group - set->groups));
	if (unlinkat(set->fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return false;
	fd_close(&group->fd);
	*group = (struct cgroup){.fd = -1};
	return true;
}

bool cgroup_set_sweep(struct cgroup_set *set)
{
	struct sweep sweep = {.left = CGROUP_SWEEP_MAX};
	int ready = 0;

	if (!cgroup_set_available(set))
		return false;
	for (int i = 0; i < CGROUP_GROUPS_MAX; i++) {
		struct cgroup *group = &set->groups[i];

		if (group->fd >= 0 && !group->taken && group->spent)
			remove_group(set, group, &sweep);
		ready += group->fd >= 0 && !group->taken && !group->spent;
	}
	for (int i = 0; i < CGROUP_GROUPS_MAX && ready < CGROUP_GROUPS_READY; i++)
		ready += set->groups[i].fd < 0 && make_group(set, &set->groups[i]) == 0;
	return sweep.left == 0 && sweep.removed > 0;
}

void cgroup_set_init(struct cgroup_set *set, const char *root, struct warnings *warnings)
{
	int fd = root ? open_folder(AT_FDCWD, root) : -ENOENT;
	int r = fd;

	memset(set, 0, sizeof(*set));
	set->fd = -1;
	for (int i = 0; i < CGROUP_GROUPS_MAX; i++)
		set->groups[i].fd = -1;
	if (fd >= 0) {
		r = open_set(set, fd);
		close(fd);
	}
	if (r < 0) {
		fd_close(&set->fd);
		set->fd = -1;
		warnings_add(warnings,
			"cgroup: no writable cgroup2 (%s): sessions end by process group, no limits",
			strerror(-r));
		return;
	}
	note_controllers(set, warnings);
	cgroup_set_sweep(set);
}

int cgroup_set_freeze(const struct cgroup_set *set, bool freeze)
{
	return cgroup_set_available(set) ? write_file(set->fd, "cgroup.freeze", freeze ? "1" : "0") : 0;
}

bool cgroup_had_oom(const struct cgroup *group)
{
	return group && read_value(group->fd, "memory.events", "oom_kill") > group->oom_kills;
}

void cgroup_set_finish(struct cgroup_set *set)
{
	struct sweep all = {.left = UINT_MAX};

	for (int i = 0; i < CGROUP_GROUPS_MAX; i++)
		fd_close(&set->groups[i].fd);
	if (set->fd >= 0) {
		remove_below(set->fd, CGROUP_DEPTH_MAX, &all);
		unlinkat(set->fd, "../tinderbox", AT_REMOVEDIR);
	}
	fd_close(&set->fd);
}
