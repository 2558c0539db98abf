/* SPDX-License-Identifier: Apache-2.0 */
#include "common/working_set.h"
#include "common/io.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'T', 'N', 'D', 'X', 'W', 'S', 'E', 'T'};

/* As it is in the file. */
struct header {
	char magic[8];
	uint32_t version, bytes;
	uint64_t memory_bytes;
	uint32_t counts[WORKING_SET_KINDS];
};
_Static_assert(sizeof(struct header) == WORKING_SET_HEADER, "the file's layout");
_Static_assert(sizeof(struct working_set_run) == WORKING_SET_RUN, "the file's layout");

int working_set_add(struct working_set *set, enum working_set_kind kind, uint64_t page)
{
	unsigned int count = set->kinds[kind].count;
	struct working_set_run *last = count > 0 ? &set->kinds[kind].runs[count - 1] : NULL;

	if (page >= set->memory_bytes / WORKING_SET_PAGE || page > UINT32_MAX ||
		(last && page < (uint64_t)last->first + last->pages))
		return -ERANGE;
	if (kind == WORKING_SET_WRITTEN && set->kinds[kind].pages == WORKING_SET_WRITTEN_MAX)
		return -ENOSPC;
	if (last && page == (uint64_t)last->first + last->pages) {
		last->pages++;
	} else {
		if (count == WORKING_SET_RUNS_MAX)
			return -ENOSPC;
		set->kinds[kind].runs[count] = (struct working_set_run){.first = (uint32_t)page, .pages = 1};
		set->kinds[kind].count++;
	}
	set->kinds[kind].pages++;
	return 0;
}

int working_set_write(int fd, const struct working_set *set)
{
	struct header header = {.version = htole32(WORKING_SET_VERSION),
		.bytes = htole32(WORKING_SET_HEADER),
		.memory_bytes = htole64(set->memory_bytes)};
	uint64_t at = sizeof(header);
	int r;

	memcpy(header.magic, magic, sizeof(magic));
	for (int kind = 0; kind < WORKING_SET_KINDS; kind++)
		header.counts[kind] = htole32(set->kinds[kind].count);
	r = io_pwrite_all(fd, &header, sizeof(header), 0);
	for (int kind = 0; r == 0 && kind < WORKING_SET_KINDS; kind++)
		for (unsigned int i = 0; r == 0 && i < set->kinds[kind].count; i++, at += WORKING_SET_RUN) {
			const struct working_set_run *run = &set->kinds[kind].runs[i];
			const uint32_t both[2] = {htole32(run->first), htole32(run->pages)};

			r = io_pwrite_all(fd, both, sizeof(both), at);
		}
	return r;
}

/* --- reading --- */

static int refuse(char *why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int refuse(char *why, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, WORKING_SET_WHY_MAX, format, arguments);
	va_end(arguments);
	return error;
}

static int check_header(const struct header *header, size_t length, uint64_t memory_bytes, char *why)
{
	uint64_t runs = 0, wanted;

	if (length < sizeof(*header) || memcmp(header->magic, magic, sizeof(magic)) != 0)
		return refuse(why, -EINVAL, "is not a working set");
	if (le32toh(header->version) != WORKING_SET_VERSION)
		return refuse(why, -ENOTSUP, "has version %u of the format and this program knows version %d",
			le32toh(header->version), WORKING_SET_VERSION);
	if (le32toh(header->bytes) != WORKING_SET_HEADER)
		return refuse(why, -EBADMSG, "has a header of %u bytes, not %d", le32toh(header->bytes),
			WORKING_SET_HEADER);
	if (le64toh(header->memory_bytes) != memory_bytes)
		return refuse(why, -EINVAL, "is of a memory of %llu bytes, not %llu",
			(unsigned long long)le64toh(header->memory_bytes), (unsigned long long)memory_bytes);
	for (int kind = 0; kind < WORKING_SET_KINDS; kind++) {
		if (le32toh(header->counts[kind]) > WORKING_SET_RUNS_MAX)
			return refuse(why, -EBADMSG, "has %u runs of a kind, more than %d",
				le32toh(header->counts[kind]), WORKING_SET_RUNS_MAX);
		runs += le32toh(header->counts[kind]);
	}
	wanted = sizeof(*header) + runs * WORKING_SET_RUN;
	if (length != wanted)
		return refuse(why, -EBADMSG, "has %zu bytes and its header speaks of %llu", length,
			(unsigned long long)wanted);
	return 0;
}

/* The next run of a kind; its pages are in memory, behind those of the run before. */
static int take_run(struct working_set *set, int kind, const uint8_t *bytes, char *why)
{
	struct working_set_run *run = &set->kinds[kind].runs[set->kinds[kind].count];
	uint32_t both[2];
	uint64_t end;

	memcpy(both, bytes, sizeof(both));
	*run = (struct working_set_run){.first = le32toh(both[0]), .pages = le32toh(both[1])};
	end = (uint64_t)run->first + run->pages;
	if (run->pages == 0 || end > set->memory_bytes / WORKING_SET_PAGE)
		return refuse(why, -EBADMSG, "has a run of %u pages from page %u, and memory has %llu",
			run->pages, run->first, (unsigned long long)(set->memory_bytes / WORKING_SET_PAGE));
	if (set->kinds[kind].count > 0 && run->first <= (uint64_t)run[-1].first + run[-1].pages)
		return refuse(why, -EBADMSG, "has a run from page %u out of order", run->first);
	set->kinds[kind].count++;
	set->kinds[kind].pages += run->pages;
	if (kind == WORKING_SET_WRITTEN && set->kinds[kind].pages > WORKING_SET_WRITTEN_MAX)
		return refuse(why, -EBADMSG, "has more than %d written pages", WORKING_SET_WRITTEN_MAX);
	return 0;
}

static int parse(
	const uint8_t *data, size_t length, uint64_t memory_bytes, struct working_set *set, char *why)
{
	struct header header = {.version = 0};
	size_t at = sizeof(header);
	int r;

	memcpy(&header, data, length < sizeof(header) ? length : sizeof(header));
	r = check_header(&header, length, memory_bytes, why);
	set->memory_bytes = memory_bytes;
	for (int kind = 0; r == 0 && kind < WORKING_SET_KINDS; kind++)
		for (uint32_t i = 0; r == 0 && i < le32toh(header.counts[kind]); i++, at += WORKING_SET_RUN)
			r = take_run(set, kind, data + at, why);
	return r;
}

int working_set_read(int fd, uint64_t memory_bytes, struct working_set **out, char *why)
{
	struct working_set *set = calloc(1, sizeof(*set));
	uint8_t *data = malloc(WORKING_SET_FILE_MAX + 1);
	ssize_t got = set && data ? io_pread_full(fd, data, WORKING_SET_FILE_MAX + 1, 0) : -ENOMEM;
	int r;

	if (got < 0)
		r = refuse(why, (int)got, "cannot be read: %s", strerror((int)-got));
	else if (got > WORKING_SET_FILE_MAX)
		r = refuse(why, -EBADMSG, "has more than %d bytes", WORKING_SET_FILE_MAX);
	else
		r = parse(data, (size_t)got, memory_bytes, set, why);
	free(data);
	if (r == 0)
		*out = set;
	else
		free(set);
	return r;
}
