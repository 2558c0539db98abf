/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of private pages: memory upon a base, a model of it, and the file that it is saved to. */
#ifndef TESTS_UNIT_VMM_PAGES_FIXTURE_H
#define TESTS_UNIT_VMM_PAGES_FIXTURE_H

#include "tests/support/unit.h"

#include "tests/support/fail_alloc.h"
#include "vmm/checksum.h"
#include "vmm/pagemap.h"
#include "vmm/pages.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PAGE = SNAPSHOT_PAGE,
	FIRST = 8 << 20,
	SECOND = 2 << 20,
	WHOLE = FIRST + SECOND,
	PAGES = WHOLE / PAGE,
	DATA_END = 6 << 20, /* of the base: then it is a hole up to the second region */
	START = 4096,	    /* of the first page in the file: the maps are small */
	MAPS = PAGES_HEADER,
	MAP_BYTES = PAGES / 8,
	CYCLES = 20,
	CHANGES = 40, /* in each */
};
#define SECOND_BASE (UINT64_C(1) << 32)

struct fixture {
	struct pages_base base;
	uint8_t *model; /* what memory is to be */
	struct guest_memory memory;
	int pagemap, file;
	struct pages_what what;
	uint8_t *original; /* the base */
	char why[SNAPSHOT_WHY_MAX];
};

static inline int make_file(void)
{
	int fd = memfd_create("pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	return fd;
}

static inline void seal(int fd)
{
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
}

static inline uint8_t *allocate(void)
{
	uint8_t *bytes = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(bytes != MAP_FAILED);
	return bytes;
}

/* Memory that is the base's. */
static inline void map(struct fixture *f, struct guest_memory *memory)
{
	assert_int_equal(guest_memory_init(memory, FIRST), 0);
	memory->regions[1] = (struct guest_region){.base = SECOND_BASE,
		.size = SECOND,
		.host = mmap(NULL, SECOND, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
	assert_true(memory->regions[1].host != MAP_FAILED);
	memory->count = 2;
	assert_int_equal(snapshot_memory_map(memory, f->base.fd), 0);
}

static inline uint8_t *at(const struct guest_memory *memory, unsigned page)
{
	size_t offset = (size_t)page * PAGE;

	return offset < FIRST ? memory->regions[0].host + offset : memory->regions[1].host + offset - FIRST;
}

static inline int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->original = allocate();
	f->model = allocate();
	for (size_t page = 0; page < PAGES; page++)
		if (page * PAGE < DATA_END || page * PAGE >= FIRST)
			memset(f->original + page * PAGE, (int)(page % 255) + 1, PAGE);
	memcpy(f->model, f->original, WHOLE);
	f->base.fd = make_file();
	assert_int_equal(pwrite(f->base.fd, f->original, DATA_END, 0), DATA_END);
	assert_int_equal(pwrite(f->base.fd, f->original + FIRST, SECOND, FIRST), SECOND);
	f->base.what = (struct snapshot_memory){.size = WHOLE, .sum = 0x1234, .is_base = true};
	f->pagemap = pagemap_open();
	assert_true(f->pagemap >= 0);
	f->file = make_file();
	map(f, &f->memory);
	*state = f;
	return 0;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	guest_memory_finish(&f->memory);
	munmap(f->original, WHOLE);
	munmap(f->model, WHOLE);
	close(f->base.fd);
	close(f->pagemap);
	close(f->file);
	free(f);
	return 0;
}

static inline void write_page(struct fixture *f, unsigned page, int value)
{
	memset(at(&f->memory, page), value, PAGE);
	memset(f->model + (size_t)page * PAGE, value, PAGE);
}

/* Whatever was there, it differs. */
static inline void flip(struct fixture *f, unsigned page)
{
	at(&f->memory, page)[8] ^= 1;
	f->model[(size_t)page * PAGE + 8] ^= 1;
}

static inline void discard(struct fixture *f, unsigned page, unsigned count)
{
	assert_true(guest_memory_discard(&f->memory, at(&f->memory, page), (uint64_t)count * PAGE) ==
		    (int64_t)count * PAGE);
	memset(f->model + (size_t)page * PAGE, 0, (size_t)count * PAGE);
}

static inline void expect_model(const struct fixture *f, const struct guest_memory *memory)
{
	assert_int_equal(memcmp(memory->regions[0].host, f->model, FIRST), 0);
	assert_int_equal(memcmp(memory->regions[1].host, f->model + FIRST, SECOND), 0);
}

/* What the file is to have, by comparing all. */
static inline void count_differences(const struct fixture *f, uint64_t *stored, uint64_t *zero)
{
	static const uint8_t zeros[PAGE];

	*stored = *zero = 0;
	for (size_t page = 0; page < PAGES; page++) {
		const uint8_t *is = f->model + page * PAGE;

		if (memcmp(is, f->original + page * PAGE, PAGE) == 0)
			continue;
		*(memcmp(is, zeros, PAGE) == 0 ? zero : stored) += 1;
	}
}

static inline void save(struct fixture *f)
{
	assert_int_equal(ftruncate(f->file, 0), 0);
	assert_int_equal(pages_save(&f->memory, &f->base, f->pagemap, f->file, &f->what), 0);
}

static inline int try_open(struct fixture *f, struct pages_table *table)
{
	int r;

	f->why[0] = '\0';
	r = pages_open(f->file, &f->what, &f->base.what, table, f->why);
	assert_int_equal(r == 0, f->why[0] == '\0');
	assert_int_equal(r == 0, table->stored != NULL);
	return r;
}

static inline int try_load(struct fixture *f, struct guest_memory *memory)
{
	struct pages_table table;
	int r;

	assert_int_equal(try_open(f, &table), 0);
	r = pages_load(memory, &table, f->file, &f->what, f->why);
	pages_table_finish(&table);
	return r;
}

/* From now on the memory is what was saved. */
static inline void restore(struct fixture *f)
{
	guest_memory_finish(&f->memory);
	map(f, &f->memory);
	assert_int_equal(try_load(f, &f->memory), 0);
	expect_model(f, &f->memory);
}

static inline void expect_counts(struct fixture *f, uint64_t stored, uint64_t zero)
{
	struct pages_table table;
	uint64_t wanted_stored, wanted_zero;

	count_differences(f, &wanted_stored, &wanted_zero);
	assert_int_equal(wanted_stored, stored);
	assert_int_equal(wanted_zero, zero);
	assert_int_equal(try_open(f, &table), 0);
	assert_int_equal(table.stored_count, stored);
	assert_int_equal(table.zero_count, zero);
	assert_int_equal(f->what.bytes, START + stored * PAGE);
	pages_table_finish(&table);
}

static inline void some_changes(struct fixture *f)
{
	write_page(f, 0, 77);
	write_page(f, FIRST / PAGE - 1, 78); /* in a hole, next to the other region */
	write_page(f, FIRST / PAGE, 79);
	write_page(f, PAGES - 1, 80);
	for (unsigned page = 100; page < 140; page++)
		write_page(f, page, 81);
	at(&f->memory, 200)[PAGE - 1] = 1;
	f->model[200 * PAGE + PAGE - 1] = 1;
	write_page(f, 201, 0);
}

#endif
