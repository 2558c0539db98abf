/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/footprint.h"
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { ENTRIES = 512, LINE_MAX_BYTES = 512, PATH_MAX_BYTES = 64 };
/* Of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst). */
#define PRESENT (UINT64_C(1) << 63)
#define SWAPPED (UINT64_C(1) << 62)
#define OF_FILE (UINT64_C(1) << 61) /* or of shared memory, which a memfd is */

/* A mapping of the memory file, or of a hole of it, in bytes. */
struct part {
	uint64_t address, length, offset;
};

struct parts {
	unsigned int count;
	struct part list[FOOTPRINT_PARTS_MAX];
};

static int open_proc(pid_t pid, const char *name)
{
	char path[PATH_MAX_BYTES];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Whether it begins where the last part ends, and is of no file: then that goes on there. */
static bool is_hole(const struct parts *parts, uint64_t start, uint64_t inode)
{
	const struct part *last = parts->count ? &parts->list[parts->count - 1] : NULL;

	return last && !inode && last->address + last->length == start;
}

static void take_line(struct parts *parts, const char *line, const struct stat *memory)
{
	uint64_t start, end, offset, inode;
	unsigned int major, minor;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %x:%x %" SCNu64, &start, &end, &offset,
		    &major, &minor, &inode) != 6 ||
		parts->count == FOOTPRINT_PARTS_MAX)
		return;
	if (is_hole(parts, start, inode)) {
		parts->list[parts->count - 1].length += end - start;
		return;
	}
	if (makedev(major, minor) == memory->st_dev && inode == memory->st_ino)
		parts->list[parts->count++] =
			(struct part){.address = start, .length = end - start, .offset = offset};
}

static int compare_parts(const void *left, const void *right)
{
	uint64_t a = ((const struct part *)left)->offset, b = ((const struct part *)right)->offset;

	return (a > b) - (a < b);
}

/* In the order of the file. */
static int find_parts(pid_t pid, int memory, struct parts *parts, uint64_t *memory_bytes)
{
	char line[LINE_MAX_BYTES];
	struct stat status;
	FILE *maps;
	int fd;

	if (fstat(memory, &status) < 0)
		return -errno;
	*memory_bytes = (uint64_t)status.st_size;
	fd = open_proc(pid, "maps");
	maps = fd < 0 ? NULL : fdopen(fd, "r");
	if (!maps) {
		int r = fd < 0 ? fd : -errno;

		fd_close(&fd);
		return r;
	}
	for (int lines = 0; lines < FOOTPRINT_LINES_MAX && fgets(line, sizeof line, maps); lines++)
		take_line(parts, line, &status);
	fclose(maps);
	qsort(parts->list, parts->count, sizeof parts->list[0], compare_parts);
	return 0;
}

static void take_entry(struct working_set *set, uint64_t entry, uint64_t page)
{
	if ((entry & (PRESENT | SWAPPED)) == 0)
		return;
	/* What does not fit comes as it did before. */
	(void)working_set_add(set, entry & OF_FILE ? WORKING_SET_READ : WORKING_SET_WRITTEN, page);
}

/* What is behind the end of the memory is not of it. */
static uint64_t pages_of(const struct part *part, uint64_t memory_bytes)
{
	uint64_t most = part->offset < memory_bytes ? memory_bytes - part->offset : 0;

	return (part->length < most ? part->length : most) / WORKING_SET_PAGE;
}

static int scan(int pagemap, const struct part *part, struct working_set *set)
{
	uint64_t entries[ENTRIES], pages = pages_of(part, set->memory_bytes);
	uint64_t from = part->address / WORKING_SET_PAGE, page = part->offset / WORKING_SET_PAGE;

	for (uint64_t at = 0; at < pages; at += ENTRIES) {
		size_t count = pages - at < ENTRIES ? (size_t)(pages - at) : ENTRIES;
		ssize_t got = io_pread_full(pagemap, entries, count * sizeof entries[0],
			(off_t)((from + at) * sizeof entries[0]));

		if (got < 0)
			return (int)got;
		for (size_t i = 0; i < (size_t)got / sizeof entries[0]; i++)
			take_entry(set, entries[i], page + at + i);
	}
	return 0;
}

int footprint_record(pid_t pid, int memory, struct working_set *set)
{
	struct parts parts = {.count = 0};
	int pagemap, r;

	memset(set, 0, sizeof *set);
	r = find_parts(pid, memory, &parts, &set->memory_bytes);
	if (r)
		return r;
	pagemap = open_proc(pid, "pagemap");
	if (pagemap < 0)
		return pagemap;
	for (unsigned int i = 0; !r && i < parts.count; i++)
		r = scan(pagemap, &parts.list[i], set);
	fd_close(&pagemap);
	if (!r && !set->kinds[WORKING_SET_WRITTEN].count && !set->kinds[WORKING_SET_READ].count)
		r = -ENODATA;
	return r;
}
