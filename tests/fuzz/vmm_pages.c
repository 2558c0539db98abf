/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile file of private pages: what is before the pages is made of the input, with a right checksum or
 * not. What is accepted lands where it says and nowhere else; saved again and loaded, memory is the same.
 */
#include "tests/fuzz/support/fuzz.h"
#include "vmm/checksum.h"
#include "vmm/pages.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PAGE = SNAPSHOT_PAGE,
	FIRST = 64 * PAGE,
	SECOND = 64 * PAGE,
	WHOLE = FIRST + SECOND,
	PAGES = WHOLE / PAGE,
	START = 4096,
	MAPS = PAGES_HEADER,
	MAP_WORDS = PAGES / 64,
	BASE_SUM = 7,
	STORED_AT = 32,
	ZEROS_AT = 40,
	CHANGES_MAX = 8,
};
#define SECOND_BASE (UINT64_C(1) << 32)

static int make_file(void)
{
	int fd = memfd_create("pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	FUZZ_ASSERT(fd >= 0);
	return fd;
}

static void map(struct guest_memory *memory, int base)
{
	FUZZ_ASSERT(guest_memory_init(memory, FIRST) == 0);
	memory->regions[1] = (struct guest_region){.base = SECOND_BASE,
		.size = SECOND,
		.host = mmap(NULL, SECOND, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
	FUZZ_ASSERT(memory->regions[1].host != MAP_FAILED);
	memory->count = 2;
	FUZZ_ASSERT(snapshot_memory_map(memory, base) == 0);
}

static const uint8_t *page_of(const struct guest_memory *memory, size_t page)
{
	return page < FIRST / PAGE ? memory->regions[0].host + page * PAGE
				   : memory->regions[1].host + page * PAGE - FIRST;
}

/* A page here and there has something. */
static int make_base(void)
{
	int fd = make_file();

	FUZZ_ASSERT(ftruncate(fd, WHOLE) == 0);
	for (uint64_t page = 0; page < PAGES; page += 8)
		FUZZ_ASSERT(pwrite(fd, &page, sizeof(page), (off_t)(page * PAGE + 8)) == sizeof(page));
	return fd;
}

/* A good one with maps of the input's, then some bytes of it changed; as many pages as its maps have, or not.
 */
static void make_pages(struct fuzz_input *input, int fd, struct pages_what *what)
{
	const struct {
		char magic[8];
		uint32_t version, header;
		uint64_t memory, base, stored, zero, start;
	} header = {{'T', 'N', 'D', 'X', 'P', 'A', 'G', 'E'}, PAGES_VERSION, PAGES_HEADER, WHOLE, BASE_SUM, 0,
		0, START};
	uint64_t maps[2 * MAP_WORDS], counts[2] = {0, 0}, pages;
	uint8_t table[START] = {0}, page[PAGE] = {0};

	_Static_assert(sizeof(header) == PAGES_HEADER, "the file's layout");
	memcpy(table, &header, sizeof(header));
	for (size_t i = 0; i < 2 * MAP_WORDS; i++) {
		maps[i] = fuzz_u64(input);
		if (i >= MAP_WORDS && !fuzz_one_in(input, 8))
			maps[i] &= ~maps[i - MAP_WORDS];
		counts[i / MAP_WORDS] += (uint64_t)__builtin_popcountll(maps[i]);
	}
	memcpy(table + MAPS, maps, sizeof(maps));
	memcpy(table + STORED_AT, counts, sizeof(counts));
	pages = fuzz_one_in(input, 8) ? fuzz_below(input, PAGES) : counts[0];
	for (unsigned changes = fuzz_one_in(input, 2) ? fuzz_below(input, CHANGES_MAX) : 0; changes > 0;
		changes--)
		table[fuzz_below(input, MAPS + sizeof(maps))] ^= fuzz_u8(input);
	FUZZ_ASSERT(pwrite(fd, table, START, 0) == START);
	for (uint64_t i = 0; i < pages; i++) {
		page[i % PAGE] = (uint8_t)(i + 1);
		FUZZ_ASSERT(pwrite(fd, page, PAGE, (off_t)(START + i * PAGE)) == PAGE);
	}
	if (fuzz_one_in(input, 8))
		FUZZ_ASSERT(ftruncate(fd, (off_t)(START + pages * PAGE) - 1 - fuzz_below(input, START)) == 0);
	*what = (struct pages_what){.bytes = (uint64_t)lseek(fd, 0, SEEK_END)};
	what->table_sum = fuzz_one_in(input, 16) ? 0 : checksum(table, START);
}

/* Each page is the file's, zeros or the base's, as its maps say. */
static void check_loaded(const struct guest_memory *memory, const struct pages_table *table, int fd, int base)
{
	static const uint8_t zeros[PAGE];
	uint8_t page[PAGE];
	off_t next = START;

	for (uint64_t i = 0; i < PAGES; i++) {
		if (pages_has(table->stored, i)) {
			FUZZ_ASSERT(pread(fd, page, PAGE, next) == PAGE);
			next += PAGE;
		} else {
			FUZZ_ASSERT(pread(base, page, PAGE, (off_t)(i * PAGE)) == PAGE);
		}
		FUZZ_ASSERT(memcmp(page_of(memory, i), pages_has(table->zero, i) ? zeros : page, PAGE) == 0);
	}
}

/* And the second generation is as the first. */
static void save_again(const struct guest_memory *memory, const struct pages_base *base)
{
	char why[SNAPSHOT_WHY_MAX];
	struct pages_table table;
	struct guest_memory copy;
	struct pages_what what;
	int fd = make_file();

	FUZZ_ASSERT(pages_save(memory, base, -1, fd, &what) == 0);
	FUZZ_ASSERT(pages_open(fd, &what, &base->what, &table, why) == 0);
	map(&copy, base->fd);
	FUZZ_ASSERT(pages_load(&copy, &table, fd, &what, why) == 0);
	for (unsigned i = 0; i < 2; i++)
		FUZZ_ASSERT(memcmp(memory->regions[i].host, copy.regions[i].host, copy.regions[i].size) == 0);
	pages_table_finish(&table);
	guest_memory_finish(&copy);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct pages_base base = {.what = {.size = WHOLE, .sum = BASE_SUM, .is_base = true}};
	char why[SNAPSHOT_WHY_MAX] = "";
	struct guest_memory memory;
	struct pages_table table;
	struct pages_what what;
	bool sealed;
	int fd, r;

	fuzz_begin();
	base.fd = make_base();
	fd = make_file();
	make_pages(&input, fd, &what);
	sealed = fuzz_u8(&input) & 1;
	if (sealed)
		FUZZ_ASSERT(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK) == 0);
	r = pages_open(fd, &what, &base.what, &table, why);
	FUZZ_ASSERT((r == 0) == (why[0] == '\0'));
	if (r == 0) {
		map(&memory, base.fd);
		r = pages_load(&memory, &table, fd, &what, why);
		/* The sum of the pages is nobody's. */
		FUZZ_ASSERT(r == (sealed ? 0 : -EBADMSG));
		check_loaded(&memory, &table, fd, base.fd);
		save_again(&memory, &base);
		guest_memory_finish(&memory);
		pages_table_finish(&table);
	}
	close(fd);
	close(base.fd);
	fuzz_end();
	return 0;
}
