/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages are looked at: those that the kernel says are this VM's own copies, and those in whose place
 * something else than the base has been mapped. What is the same as the base's after all is left out: pages
 * that were written back as they were, and those that were copied before anyone wrote to them.
 */
#include "common/io.h"
#include "vmm/checksum.h"
#include "vmm/pagemap.h"
#include "vmm/pages_file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = PAGES_CHUNK * SNAPSHOT_PAGE, WORDS = SNAPSHOT_PAGE / sizeof(uint64_t) };
_Static_assert(PAGEMAP_PAGES_MAX % PAGES_CHUNK == 0, "the base is read in equal parts");

struct save {
	const struct guest_memory *memory;
	const struct pages_base *base;
	int pagemap, fd;
	struct pages_table table;
	struct checksum *sum;
	uint8_t *chunk; /* of the base */
	uint8_t *out;	/* as large; pages that are not written yet */
	uint64_t held;
};

/* musl's memcmp goes byte by byte. */
static bool is_same(const uint8_t *left, const uint8_t *right)
{
	const uint64_t *a = (const uint64_t *)(const void *)left, *b = (const uint64_t *)(const void *)right;

	for (size_t i = 0; i < WORDS; i += 4)
		if ((a[i] ^ b[i]) | (a[i + 1] ^ b[i + 1]) | (a[i + 2] ^ b[i + 2]) | (a[i + 3] ^ b[i + 3]))
			return false;
	return true;
}

static void set(uint64_t *map, uint64_t page)
{
	map[page / 64] |= UINT64_C(1) << page % 64;
}

static int write_held(struct save *save)
{
	uint64_t before = save->table.stored_count - save->held;
	int r = io_pwrite_all(
		save->fd, save->out, save->held * SNAPSHOT_PAGE, save->table.start + before * SNAPSHOT_PAGE);

	save->held = 0;
	return r;
}

/* Copied, for runs are short: a call for each would cost more. */
static int store(struct save *save, const uint8_t *host, uint64_t page)
{
	set(save->table.stored, page);
	snapshot_memory_add_page(save->sum, page * SNAPSHOT_PAGE, host);
	memcpy(save->out + save->held * SNAPSHOT_PAGE, host, SNAPSHOT_PAGE);
	save->table.stored_count++;
	return ++save->held == PAGES_CHUNK ? write_held(save) : 0;
}

/* A run of pages that may differ; at most PAGES_CHUNK. */
static int look_at(struct save *save, const uint8_t *host, uint64_t page, uint64_t count)
{
	size_t bytes = count * SNAPSHOT_PAGE;
	ssize_t got = io_pread_full(save->base->fd, save->chunk, bytes, (off_t)(page * SNAPSHOT_PAGE));
	int r = 0;

	if (got != (ssize_t)bytes)
		return got < 0 ? (int)got : -EIO;
	for (uint64_t i = 0; r == 0 && i < count; i++) {
		const uint8_t *is = host + i * SNAPSHOT_PAGE;

		if (is_same(is, save->chunk + i * SNAPSHOT_PAGE))
			continue;
		if (snapshot_memory_is_zero(is)) {
			set(save->table.zero, page + i);
			save->table.zero_count++;
		} else {
			r = store(save, is, page + i);
		}
	}
	return r;
}

/* Sets own[i] for those that may differ. */
static int find_own(const struct save *save, const uint8_t *host, uint64_t page, uint64_t count,
	bool own[PAGEMAP_PAGES_MAX])
{
	int r;

	if (save->pagemap < 0) {
		memset(own, true, count * sizeof(own[0]));
		return 0;
	}
	r = pagemap_read(save->pagemap, host, count, own);
	for (uint64_t i = 0; r == 0 && i < count; i++)
		own[i] = own[i] || guest_memory_was_replaced(save->memory, page + i);
	return r;
}

/* page: number of the first, which is at host; at most PAGEMAP_PAGES_MAX. */
static int save_part(struct save *save, const uint8_t *host, uint64_t page, uint64_t count)
{
	bool own[PAGEMAP_PAGES_MAX];
	int r = find_own(save, host, page, count, own);

	for (uint64_t at = 0; r == 0 && at < count;) {
		uint64_t run = 0;

		while (at + run < count && run < PAGES_CHUNK && own[at + run])
			run++;
		if (run > 0)
			r = look_at(save, host + at * SNAPSHOT_PAGE, page + at, run);
		at += run > 0 ? run : 1;
	}
	return r;
}

static int save_region(struct save *save, const struct guest_region *region, uint64_t first)
{
	uint64_t pages = region->size / SNAPSHOT_PAGE;
	int r = 0;

	for (uint64_t at = 0; r == 0 && at < pages; at += PAGEMAP_PAGES_MAX) {
		uint64_t count = pages - at < PAGEMAP_PAGES_MAX ? pages - at : PAGEMAP_PAGES_MAX;

		r = save_part(save, region->host + at * SNAPSHOT_PAGE, first + at, count);
	}
	return r;
}

int pages_save(const struct guest_memory *memory, const struct pages_base *base, int pagemap, int fd,
	struct pages_what *what)
{
	struct save save = {.memory = memory,
		.base = base,
		.pagemap = pagemap,
		.fd = fd,
		.sum = checksum_create(),
		.chunk = malloc(CHUNK_BYTES),
		.out = malloc(CHUNK_BYTES)};
	uint64_t first = 0;
	int r = save.sum && save.chunk && save.out ? pages_table_init(&save.table, guest_memory_size(memory))
						   : -ENOMEM;

	*what = (struct pages_what){0};
	for (unsigned i = 0; r == 0 && i < memory->count; i++) {
		r = save_region(&save, &memory->regions[i], first);
		first += memory->regions[i].size / SNAPSHOT_PAGE;
	}
	if (r == 0)
		r = write_held(&save);
	/* Last, so that a file with a header is whole. */
	if (r == 0)
		r = pages_put_table(&save.table, &base->what, fd, &what->table_sum);
	if (r == 0) {
		what->pages_sum = checksum_value(save.sum);
		what->bytes = save.table.start + save.table.stored_count * SNAPSHOT_PAGE;
	}
	pages_table_finish(&save.table);
	free(save.chunk);
	free(save.out);
	checksum_destroy(save.sum);
	return r;
}
