/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/cgroup.h"
#include "common/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL_FILE_MAX = 4096, SWEEP_POLL_MS = 100 };

static const char *const controllers[] = {"cpu", "memory", "pids"};
enum { CONTROLLERS = sizeof controllers / sizeof controllers[0] };

static int write_file(int directory, const char *name, const char *text)
{
	int fd = openat(directory, name, O_WRONLY | O_CLOEXEC);
	int status;

	if (fd < 0)
		return -errno;
	status = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return status;
}

/* Text, NUL-terminated and cut at size - 1. 0 or -errno. */
static int read_file(int directory, const char *name, char *text, size_t size)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = read(fd, text, size - 1);
	if (got < 0)
		got = -errno;
	close(fd);
	text[got > 0 ? got : 0] = '\0';
	return got < 0 ? (int)got : 0;
}

static bool has_word(const char *text, const char *word)
{
	const char *const spaces = " \n";

	while (*text) {
		size_t length = strcspn(text, spaces);

		if (length == strlen(word) && !strncmp(text, word, length))
			return true;
		text += length;
		text += strspn(text, spaces);
	}
	return false;
}

/* The number after "key " at the start of a line, or 0. */
static unsigned long long keyed_number(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, length) && line[length] == ' ')
			return strtoull(line + length, NULL, 10);
	}
	return 0;
}

/* Lets children of `directory` use every controller that it has been given itself; *missing names the first
 * that it was not. 0 or -errno of a write. */
static int enable_controllers(int directory, const char **missing)
{
	char offered[CONTROL_FILE_MAX] = "", enabled[CONTROL_FILE_MAX] = "", word[32];
	int status = read_file(directory, "cgroup.controllers", offered, sizeof offered);

	if (!status)
		status = read_file(directory, "cgroup.subtree_control", enabled, sizeof enabled);
	*missing = NULL;
	for (int i = 0; !status && i < CONTROLLERS; i++) {
		if (!has_word(offered, controllers[i])) {
			*missing = *missing ? *missing : controllers[i];
			continue;
		}
		snprintf(word, sizeof word, "+%s", controllers[i]);
		if (!has_word(enabled, controllers[i]))
			status = write_file(directory, "cgroup.subtree_control", word);
	}
	return status;
}

/* Whether the folder that holds `path` is of cgroup v2. */
static bool is_beside_cgroups(const char *path)
{
	char parent[PATH_MAX];
	struct statfs fs;

	return snprintf(parent, sizeof parent, "%s", path) < (int)sizeof parent &&
	       statfs(dirname(parent), &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* The first of them that the text of cgroup.controllers has not; NULL: it has all. */
static const char *find_missing(const char *offered)
{
	for (int i = 0; i < CONTROLLERS; i++)
		if (!has_word(offered, controllers[i]))
			return controllers[i];
	return NULL;
}

static int refuse_missing(const char *path, const char *missing, struct error *error)
{
	error_set(error, ERROR_INTERNAL,
		"cgroup v2 at %s does not offer the %s controller: free it from cgroup v1 (kernel "
		"option cgroup_no_v1=all), or start with --limits available to run without limits",
		path, missing);
	return -ENOTSUP;
}

static int refuse_mount(const char *path, struct error *error)
{
	error_set(error, ERROR_INTERNAL,
		"cgroup root %s is not on cgroup v2: `host-ctl doctor` says why, or name a folder of a "
		"cgroup v2 mount with --cgroup-root",
		path);
	return -ENOTSUP;
}

static int open_directory(const char *path, struct error *error)
{
	struct statfs fs;
	bool made = mkdir(path, 0755) == 0;
	int fd;

	if (!made && errno != EEXIST)
		goto fail;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		goto fail;
	if (fstatfs(fd, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC) {
		if (made)
			rmdir(path);
		close(fd);
		return refuse_mount(path, error);
	}
	return fd;
fail:
	fd = -errno;
	if (!is_beside_cgroups(path))
		return refuse_mount(path, error);
	error_set(error, ERROR_INTERNAL,
		"cannot make the cgroup root %s: %s; host-ctl serve needs root and a writable cgroup v2 "
		"mount "
		"(or --cgroup-root)",
		path, strerror(-fd));
	return fd;
}

/* The parent first: what it does not give, the folder cannot have. */
static int enable_all(int fd, const char *path, bool required, bool *limits, struct error *error)
{
	const char *missing = NULL;
	int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int status = parent < 0 ? -errno : enable_controllers(parent, &missing);

	fd_close(&parent);
	if (!status)
		status = enable_controllers(fd, &missing);
	*limits = !status && !missing;
	if (*limits || !required)
		return 0;
	if (missing) {
		refuse_missing(path, missing, error);
		return status ? status : -ENOTSUP;
	}
	error_set(error, ERROR_INTERNAL,
		"cannot turn on cpu, memory and pids for %s: %s; name a cgroup that may have children "
		"with --cgroup-root",
		path, strerror(-status));
	return status;
}

/* The folder that gives the one at the path its controllers, as long as that is on cgroup v2. -1: it is not.
 */
static int open_giver(const char *path)
{
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), giver;
	struct statfs fs;
	char parent[PATH_MAX];

	if (folder < 0 && !is_beside_cgroups(path))
		return -1;
	if (folder < 0) {
		snprintf(parent, sizeof parent, "%s", path);
		return open(dirname(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	giver = fstatfs(folder, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC
			? openat(folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			: -1;
	fd_close(&folder);
	return giver;
}

int cgroup_tree_check(const char *path, bool limits_required, struct error *error)
{
	char offered[CONTROL_FILE_MAX];
	const char *missing = NULL;
	int giver = open_giver(path);

	if (giver < 0)
		return refuse_mount(path, error);
	/* Where they cannot be read, they cannot be turned on either, and that is what will be told. */
	if (limits_required && read_file(giver, "cgroup.controllers", offered, sizeof offered) == 0)
		missing = find_missing(offered);
	fd_close(&giver);
	return missing ? refuse_missing(path, missing, error) : 0;
}

int cgroup_tree_open(struct cgroup_tree *tree, const char *path, bool limits_required, struct error *error)
{
	int status;

	*tree = (struct cgroup_tree){.fd = -1};
	tree->fd = open_directory(path, error);
	if (tree->fd < 0) {
		status = tree->fd;
		tree->fd = -1;
		return status;
	}
	if (flock(tree->fd, LOCK_EX | LOCK_NB) < 0) {
		status = errno == EWOULDBLOCK ? -EBUSY : -errno;
		error_set(error, ERROR_CONFLICT,
			"cgroup root %s is in use by a running host-ctl serve: give this one its own "
			"--cgroup-root, and another --uid-base",
			path);
		goto fail;
	}
	status = enable_all(tree->fd, path, limits_required, &tree->limits, error);
	if (!status)
		return 0;
fail:
	cgroup_tree_close(tree);
	return status;
}

void cgroup_tree_close(struct cgroup_tree *tree)
{
	fd_close(&tree->fd);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Kills what is in the child and removes it, waiting for the kernel's word that it is empty. */
static int sweep_child(struct cgroup_tree *tree, const char *name)
{
	uint64_t end = now_ms() + CGROUP_SWEEP_MS;
	struct pollfd wait = {.fd = -1, .events = POLLPRI};
	char text[CONTROL_FILE_MAX];
	int status, group = openat(tree->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (group < 0)
		return -errno;
	wait.fd = cgroup_open_events(group);
	status = wait.fd < 0 ? wait.fd : cgroup_kill(group);
	while (!status) {
		/* Read before the removal is tried: a later change then wakes the poll. */
		if (pread(wait.fd, text, sizeof text, 0) < 0)
			status = -errno;
		else
			status = cgroup_remove(tree, name);
		if (status != -EBUSY)
			break;
		status = now_ms() < end ? 0 : -ETIMEDOUT;
		if (!status)
			poll(&wait, 1, SWEEP_POLL_MS);
	}
	fd_close(&wait.fd);
	fd_close(&group);
	return status;
}

int cgroup_end(struct cgroup_tree *tree, const char *name)
{
	int status = sweep_child(tree, name);

	return status == -ENOENT ? 0 : status;
}

int cgroup_open(const struct cgroup_tree *tree, const char *name)
{
	int group = openat(tree->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return group < 0 ? -errno : group;
}

static int sweep_children(struct cgroup_tree *tree, DIR *listing, cgroup_keep_fn *keep, const void *context,
	struct error *error)
{
	struct dirent *entry;
	int count = 0;

	while ((entry = readdir(listing))) {
		int status;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
			(keep && keep(context, entry->d_name)))
			continue;
		status = sweep_child(tree, entry->d_name);
		if (status) {
			error_set(error, ERROR_INTERNAL, "cannot remove the leftover cgroup %s: %s",
				entry->d_name, strerror(-status));
			return status;
		}
		count++;
	}
	return count;
}

/* NULL with *status and *error set. */
static DIR *list_children(const struct cgroup_tree *tree, int *status, struct error *error)
{
	int copy = openat(tree->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *listing = copy < 0 ? NULL : fdopendir(copy);

	if (listing)
		return listing;
	*status = -errno;
	error_set(error, ERROR_INTERNAL, "cannot list the cgroup root: %s", strerror(-*status));
	fd_close(&copy);
	return NULL;
}

int cgroup_tree_sweep(
	struct cgroup_tree *tree, cgroup_keep_fn *keep, const void *context, struct error *error)
{
	int count;
	DIR *listing = list_children(tree, &count, error);

	if (!listing)
		return count;
	count = sweep_children(tree, listing, keep, context, error);
	closedir(listing);
	return count;
}

/* One that goes meanwhile is not. */
static bool is_populated(const struct cgroup_tree *tree, const char *name)
{
	char text[CONTROL_FILE_MAX] = "";
	int group = openat(tree->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool populated = group >= 0 && !read_file(group, "cgroup.events", text, sizeof text) &&
			 keyed_number(text, "populated") > 0;

	fd_close(&group);
	return populated;
}

int cgroup_tree_count(const struct cgroup_tree *tree, struct error *error)
{
	int count;
	DIR *listing = list_children(tree, &count, error);
	struct dirent *entry;

	if (!listing)
		return count;
	count = 0;
	while ((entry = readdir(listing)))
		count += entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
			 is_populated(tree, entry->d_name);
	closedir(listing);
	return count;
}

static int write_memory(int group, uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
	return write_file(group, "memory.max", text);
}

static int set_limits(int group, const struct cgroup_limits *limits)
{
	char text[64];
	int status;

	snprintf(
		text, sizeof text, "%llu %d", (unsigned long long)limits->cpu_quota_us, CGROUP_CPU_PERIOD_US);
	status = write_file(group, "cpu.max", text);
	if (status)
		return status;
	snprintf(text, sizeof text, "%llu", (unsigned long long)limits->pids);
	status = write_file(group, "pids.max", text);
	if (status)
		return status;
	status = write_memory(group, limits->memory_bytes);
	if (status)
		return status;
	status = write_file(group, "memory.oom.group", "1");
	if (status)
		return status;
	/* Without swap accounting there is no such file, and nothing to limit. */
	status = write_file(group, "memory.swap.max", "0");
	return status == -ENOENT ? 0 : status;
}

int cgroup_create(struct cgroup_tree *tree, const char *name, const struct cgroup_limits *limits)
{
	int status, group;

	if (mkdirat(tree->fd, name, 0755) < 0)
		return -errno;
	group = openat(tree->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	status = group < 0 ? -errno : 0;
	if (!status && tree->limits)
		status = set_limits(group, limits);
	if (!status)
		return group;
	fd_close(&group);
	unlinkat(tree->fd, name, AT_REMOVEDIR);
	return status;
}

int cgroup_set_limits(const struct cgroup_tree *tree, int group, const struct cgroup_limits *limits)
{
	return tree->limits ? set_limits(group, limits) : 0;
}

int cgroup_memory(const struct cgroup_tree *tree, int group, uint64_t *bytes)
{
	char text[CONTROL_FILE_MAX];
	int status;

	*bytes = 0;
	if (!tree->limits)
		return 0;
	status = read_file(group, "memory.max", text, sizeof text);
	/* "max" is no number. */
	if (!status)
		*bytes = strtoull(text, NULL, 10);
	return status;
}

/* Page cache that is on the disk and in no memory file. */
static uint64_t reclaimable(const char *stat)
{
	const uint64_t cache = keyed_number(stat, "file");
	const uint64_t kept = keyed_number(stat, "shmem") + keyed_number(stat, "file_dirty") +
			      keyed_number(stat, "file_writeback");

	return cache > kept ? cache - kept : 0;
}

int cgroup_memory_held(const struct cgroup_tree *tree, int group, uint64_t *bytes)
{
	char used[CONTROL_FILE_MAX], stat[CONTROL_FILE_MAX];
	uint64_t free;
	int status;

	*bytes = 0;
	if (!tree->limits)
		return 0;
	status = read_file(group, "memory.current", used, sizeof used);
	if (!status)
		status = read_file(group, "memory.stat", stat, sizeof stat);
	if (status)
		return status;
	free = reclaimable(stat);
	*bytes = strtoull(used, NULL, 10);
	*bytes -= free < *bytes ? free : *bytes;
	return 0;
}

int cgroup_set_memory(const struct cgroup_tree *tree, int group, uint64_t bytes)
{
	return tree->limits ? write_memory(group, bytes) : 0;
}

int cgroup_set_weight(const struct cgroup_tree *tree, int group, unsigned int weight)
{
	char text[16];

	if (!tree->limits)
		return 0;
	snprintf(text, sizeof text, "%u", weight);
	return write_file(group, "cpu.weight", text);
}

int cgroup_kill(int group)
{
	return write_file(group, "cgroup.kill", "1");
}

int cgroup_remove(struct cgroup_tree *tree, const char *name)
{
	return unlinkat(tree->fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int cgroup_open_events(int group)
{
	int fd = openat(group, "cgroup.events", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

bool cgroup_had_oom_kill(int group)
{
	char text[CONTROL_FILE_MAX] = "";

	return !read_file(group, "memory.events", text, sizeof text) && keyed_number(text, "oom_kill") > 0;
}
