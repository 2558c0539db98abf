/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/room.h"
#include "common/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { FILE_TEXT_MAX = 8192, KIB = 1024, MIB_SHIFT = 20 };

/* --- what can be read --- */

/* Text of a small file, NUL-terminated and cut; false: it cannot be read. */
static bool read_text(int folder, const char *name, char text[FILE_TEXT_MAX])
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : io_read_full(fd, text, FILE_TEXT_MAX - 1);

	fd_close(&fd);
	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

/* The number after `key` at the start of a line. False: there is none. */
static bool find_number(const char *text, const char *key, uint64_t *number)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		char *end;

		line += *line == '\n';
		if (strncmp(line, key, length) != 0)
			continue;
		*number = strtoull(line + length, &end, 10);
		return end != line + length;
	}
	return false;
}

static bool is_of_cgroups(int folder)
{
	struct statfs fs;

	return fstatfs(folder, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* What one cgroup's limit leaves; UINT64_MAX: it has none. */
static uint64_t left_of_group(int folder)
{
	char text[FILE_TEXT_MAX];
	uint64_t maximum, used = 0, cache[2] = {0, 0};

	if (!read_text(folder, "memory.max", text) || !find_number(text, "", &maximum))
		return UINT64_MAX;
	if (read_text(folder, "memory.current", text))
		find_number(text, "", &used);
	if (read_text(folder, "memory.stat", text)) {
		find_number(text, "inactive_file ", &cache[0]);
		find_number(text, "active_file ", &cache[1]);
	}
	used -= cache[0] + cache[1] < used ? cache[0] + cache[1] : used;
	return used < maximum ? maximum - used : 0;
}

/* The least of a folder's and all that are around it. */
static uint64_t left_of_groups(int folder)
{
	uint64_t least = UINT64_MAX;
	int at = folder < 0 ? -1 : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < ROOM_CGROUP_LEVELS_MAX && at >= 0 && is_of_cgroups(at); i++) {
		uint64_t left = left_of_group(at);
		int above = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		least = left < least ? left : least;
		fd_close(&at);
		at = above;
	}
	fd_close(&at);
	return least;
}

uint64_t room_available_bytes(const struct room *room)
{
	char text[FILE_TEXT_MAX];
	uint64_t available = UINT64_MAX, kib;

	if (read_text(AT_FDCWD, room->meminfo, text) && find_number(text, "MemAvailable:", &kib))
		available = kib * KIB;
	for (int i = 0; i < 2; i++) {
		uint64_t left = left_of_groups(room->groups[i]);

		available = left < available ? left : available;
	}
	return available;
}

static uint64_t count_fds(void)
{
	DIR *listing = opendir("/proc/self/fd");
	uint64_t count = 0;

	if (!listing)
		return 0;
	while (readdir(listing))
		count++;
	closedir(listing);
	return count < 3 ? 0 : count - 3; /* itself, and the two that every folder has */
}

/* How many more may be opened; UINT64_MAX: more than the daemon's bounds could ever take. */
static uint64_t free_fds(const struct room *room)
{
	struct rlimit limit;
	uint64_t used;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
		limit.rlim_cur >= (room->vms + UINT64_C(1)) * ROOM_VM_FDS + ROOM_OTHER_FDS)
		return UINT64_MAX;
	used = count_fds();
	return used < limit.rlim_cur ? limit.rlim_cur - used : 0;
}

/* --- the daemon's own cgroup --- */

/* The root of the mount that a folder is in: the caller's to close. -1: it is not of cgroup v2. */
static int open_root(int folder)
{
	int at = folder < 0 ? -1 : openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < ROOM_CGROUP_LEVELS_MAX && at >= 0; i++) {
		int above = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		bool top = above < 0 || !is_of_cgroups(above);

		if (top) {
			fd_close(&above);
			return at;
		}
		fd_close(&at);
		at = above;
	}
	return at;
}

static int open_own(int vm_groups)
{
	char text[FILE_TEXT_MAX], *path = NULL;
	int root = -1, own = -1;

	if (vm_groups >= 0 && is_of_cgroups(vm_groups) && read_text(AT_FDCWD, "/proc/self/cgroup", text))
		path = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
	if (!path)
		return -1;
	path = strchr(path, '/') + 1;
	path[strcspn(path, "\n")] = '\0';
	root = open_root(vm_groups);
	if (root >= 0)
		own = openat(root, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd_close(&root);
	return own;
}

void room_init(struct room *room, int vm_groups, uint64_t reserve_bytes)
{
	*room = (struct room){.meminfo = ROOM_MEMINFO,
		.groups = {vm_groups, open_own(vm_groups)},
		.reserve_bytes = reserve_bytes};
}

void room_finish(struct room *room)
{
	if (room->meminfo)
		fd_close(&room->groups[1]);
}

/* --- the question --- */

uint64_t room_expected_bytes(const struct vm_source *source)
{
	bool clone = source->state.path != NULL;
	uint64_t least = clone ? ROOM_CLONE_MIN : ROOM_BOOT_MIN;
	uint64_t share = source->memory_bytes / (clone ? ROOM_CLONE_SHARE : ROOM_BOOT_SHARE);

	return (share > least ? share : least) + source->pages_bytes;
}

/* name: of the template that is wanted; NULL: one more VM. */
static int check_memory(
	const struct room *room, const char *name, uint64_t wanted, uint64_t kept, struct error *error)
{
	uint64_t available = room_available_bytes(room);

	if (available == UINT64_MAX || (available >= room->promised_bytes + wanted &&
					       available - room->promised_bytes - wanted >= kept))
		return 0;
	return error_set(error, ERROR_EXHAUSTED,
		"no room for %s%.64s: %" PRIu64 " MiB of memory can be had, %" PRIu64
		" MiB of it are promised to VMs that start, %" PRIu64 " MiB are wanted and %" PRIu64
		" MiB kept free: let runs end, lower the targets of pools, give the host or its cgroup more "
		"memory, or a smaller --reserve",
		name ? "template " : "one more VM", name ? name : "", available >> MIB_SHIFT,
		room->promised_bytes >> MIB_SHIFT, wanted >> MIB_SHIFT, kept >> MIB_SHIFT);
}

static int check_fds(const struct room *room, bool awaited, struct error *error)
{
	uint64_t left = free_fds(room), wanted = ROOM_VM_FDS;
	uint64_t kept = awaited ? ROOM_MISS_FDS : ROOM_REFILL_FDS;

	if (left >= wanted + kept)
		return 0;
	return error_set(error, ERROR_EXHAUSTED,
		"no room for one more VM: the daemon may open %" PRIu64 " more files, %" PRIu64
		" are wanted and %" PRIu64
		" kept free: let runs end, lower the targets of pools, or raise its limit of open files "
		"(LimitNOFILE=, ulimit -n)",
		left, wanted, kept);
}

int room_check(const struct room *room, const struct vm_source *source, bool awaited, struct error *error)
{
	uint64_t kept = awaited ? room->reserve_bytes / 2 : room->reserve_bytes;

	error->kind = ERROR_NONE;
	if (!room->reserve_bytes)
		return 0;
	if (check_fds(room, awaited, error))
		return -1;
	return check_memory(room, NULL, room_expected_bytes(source), kept, error);
}

int room_check_bytes(const struct room *room, const char *name, uint64_t bytes, struct error *error)
{
	error->kind = ERROR_NONE;
	return room->reserve_bytes ? check_memory(room, name, bytes, room->reserve_bytes / 2, error) : 0;
}

uint64_t room_host_bytes(void)
{
	struct sysinfo host;

	return sysinfo(&host) < 0 ? UINT64_MAX : (uint64_t)host.totalram * host.mem_unit;
}

void room_enter(struct room *room, uint64_t bytes)
{
	room->promised_bytes += bytes;
	room->vms++;
}

void room_settle(struct room *room, uint64_t bytes)
{
	room->promised_bytes -= bytes;
}

void room_leave(struct room *room)
{
	room->vms--;
}
