/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a working set, of whoever can write where templates are. What is refused is refused in words;
 * what is taken names pages that memory has, each run behind the one before and apart from it, no more of a
 * kind than the bounds, and is written again as the same bytes. Then a set that is made page by page: what is
 * taken in is read back, and what was refused is not in it.
 */
#include "common/io.h"
#include "common/working_set.h"
#include "tests/fuzz/support/fuzz.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ADDED_MAX = 512 };

static int make_file(const void *data, size_t size)
{
	int fd = memfd_create("working-set", MFD_CLOEXEC);

	FUZZ_ASSERT(fd >= 0 && io_pwrite_all(fd, data, size, 0) == 0);
	return fd;
}

static void check_set(const struct working_set *set, uint64_t memory_bytes)
{
	FUZZ_ASSERT(set->memory_bytes == memory_bytes);
	for (int kind = 0; kind < WORKING_SET_KINDS; kind++) {
		uint64_t pages = 0, end = 0;

		FUZZ_ASSERT(set->kinds[kind].count <= WORKING_SET_RUNS_MAX);
		for (unsigned int i = 0; i < set->kinds[kind].count; i++) {
			const struct working_set_run *run = &set->kinds[kind].runs[i];

			FUZZ_ASSERT(run->pages > 0 && (i == 0 || run->first > end));
			end = (uint64_t)run->first + run->pages;
			FUZZ_ASSERT(end <= memory_bytes / WORKING_SET_PAGE);
			pages += run->pages;
		}
		FUZZ_ASSERT(pages == set->kinds[kind].pages);
	}
	FUZZ_ASSERT(set->kinds[WORKING_SET_WRITTEN].pages <= WORKING_SET_WRITTEN_MAX);
}

/* It is written as just these bytes. */
static void check_written(const struct working_set *set, const void *data, size_t size)
{
	int fd = memfd_create("written", MFD_CLOEXEC);
	uint8_t *bytes = malloc(size + 1);

	FUZZ_ASSERT(fd >= 0 && bytes && working_set_write(fd, set) == 0);
	FUZZ_ASSERT(io_pread_full(fd, bytes, size + 1, 0) == (ssize_t)size);
	FUZZ_ASSERT(memcmp(bytes, data, size) == 0);
	free(bytes);
	fd_close(&fd);
}

static void read_file(const uint8_t *data, size_t size, uint64_t memory_bytes)
{
	struct working_set *set = NULL;
	char why[WORKING_SET_WHY_MAX] = "";
	int fd = make_file(data, size), r = working_set_read(fd, memory_bytes, &set, why);

	if (r == 0) {
		FUZZ_ASSERT(set);
		check_set(set, memory_bytes);
		check_written(set, data, size);
		free(set);
	} else {
		FUZZ_ASSERT(!set && (r == -EINVAL || r == -ENOTSUP || r == -EBADMSG));
		FUZZ_ASSERT(why[0] != '\0' && memchr(why, '\0', sizeof why));
	}
	fd_close(&fd);
}

/* As it was written: read, it is the same. */
static void read_back(const struct working_set *made)
{
	struct working_set *set = NULL;
	char why[WORKING_SET_WHY_MAX];
	int fd = memfd_create("made", MFD_CLOEXEC);

	FUZZ_ASSERT(fd >= 0 && working_set_write(fd, made) == 0);
	FUZZ_ASSERT(working_set_read(fd, made->memory_bytes, &set, why) == 0);
	for (int kind = 0; kind < WORKING_SET_KINDS; kind++) {
		FUZZ_ASSERT(set->kinds[kind].count == made->kinds[kind].count);
		FUZZ_ASSERT(memcmp(set->kinds[kind].runs, made->kinds[kind].runs,
				    made->kinds[kind].count * sizeof(struct working_set_run)) == 0);
	}
	free(set);
	fd_close(&fd);
}

static void make_set(struct fuzz_input *input)
{
	struct working_set *set = calloc(1, sizeof *set);
	uint64_t pages = fuzz_u16(input), counts[WORKING_SET_KINDS] = {0}, ends[WORKING_SET_KINDS] = {0};

	FUZZ_ASSERT(set);
	set->memory_bytes = pages * WORKING_SET_PAGE;
	for (unsigned int i = 0; i < ADDED_MAX && fuzz_left(input); i++) {
		enum working_set_kind kind = fuzz_one_in(input, 2) ? WORKING_SET_READ : WORKING_SET_WRITTEN;
		uint64_t page = fuzz_u16(input);
		bool fits = page < pages && page >= ends[kind];

		FUZZ_ASSERT(working_set_add(set, kind, page) == (fits ? 0 : -ERANGE));
		if (!fits)
			continue;
		ends[kind] = page + 1;
		counts[kind]++;
	}
	check_set(set, pages * WORKING_SET_PAGE);
	for (int kind = 0; kind < WORKING_SET_KINDS; kind++)
		FUZZ_ASSERT(set->kinds[kind].pages == counts[kind]);
	read_back(set);
	free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	uint8_t choice = fuzz_u8(&input);
	uint64_t memory_bytes;

	fuzz_begin();
	if (choice % 4 == 3) {
		make_set(&input);
	} else {
		memory_bytes = fuzz_u64(&input);
		read_file(input.at, fuzz_left(&input), memory_bytes);
	}
	fuzz_end();
	return 0;
}
