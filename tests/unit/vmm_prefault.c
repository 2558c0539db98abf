/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of a working set are in place, each as what it shall be, and no others are. */
#include "tests/support/unit.h"

#include "vmm/prefault.h"
#include "vmm/snapshot_memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = WORKING_SET_PAGE, FIRST = 256 * PAGE, SECOND = 128 * PAGE, PAGES = 384 };
/* Of an entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst). */
#define PAGEMAP_PRESENT (UINT64_C(1) << 63)
#define PAGEMAP_OF_FILE (UINT64_C(1) << 61)

struct fixture {
	struct guest_memory memory;
	struct working_set *set;
	int file;
};

static void map(struct guest_region *region, uint64_t base, uint64_t size)
{
	*region = (struct guest_region){.base = base,
		.size = size,
		.host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
	assert_true(region->host != MAP_FAILED);
}

/* Each page of the file has its number at its start. */
static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->file = memfd_create("memory", MFD_CLOEXEC);
	for (uint32_t i = 0; i < PAGES; i++)
		assert_int_equal(pwrite(f->file, &i, sizeof(i), (off_t)i * PAGE), sizeof(i));
	assert_int_equal(ftruncate(f->file, (off_t)PAGES * PAGE), 0);
	map(&f->memory.regions[0], 0, FIRST);
	map(&f->memory.regions[1], UINT64_C(1) << 32, SECOND);
	f->memory.count = 2;
	assert_int_equal(snapshot_memory_map(&f->memory, f->file), 0);
	f->set = calloc(1, sizeof(*f->set));
	assert_non_null(f->set);
	f->set->memory_bytes = (uint64_t)PAGES * PAGE;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	guest_memory_finish(&f->memory);
	close(f->file);
	free(f->set);
	free(f);
	return 0;
}

static void add(struct fixture *f, enum working_set_kind kind, unsigned first, unsigned pages)
{
	for (unsigned i = 0; i < pages; i++)
		assert_int_equal(working_set_add(f->set, kind, first + i), 0);
}

static uint8_t *page_of(const struct fixture *f, unsigned page)
{
	return page < FIRST / PAGE ? f->memory.regions[0].host + (size_t)page * PAGE
				   : f->memory.regions[1].host + (size_t)page * PAGE - FIRST;
}

static uint64_t entry_of(const struct fixture *f, unsigned page)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	assert_true(pagemap >= 0);
	assert_int_equal(pread(pagemap, &entry, sizeof(entry),
				 (off_t)((uintptr_t)page_of(f, page) / PAGE * sizeof(entry))),
		sizeof(entry));
	close(pagemap);
	return entry & (PAGEMAP_PRESENT | PAGEMAP_OF_FILE);
}

static void expect(const struct fixture *f, unsigned first, unsigned pages, uint64_t wanted)
{
	for (unsigned i = 0; i < pages; i++)
		assert_true(entry_of(f, first + i) == wanted);
}

static void written_pages_are_private(void **state)
{
	struct fixture *f = *state;

	add(f, WORKING_SET_WRITTEN, 3, 2);
	add(f, WORKING_SET_WRITTEN, 255, 2); /* the end of one region, and the start of the other */
	add(f, WORKING_SET_WRITTEN, 383, 1);
	expect(f, 0, PAGES, 0);
	assert_int_equal(prefault(&f->memory, f->set), 0);
	expect(f, 3, 2, PAGEMAP_PRESENT);
	expect(f, 255, 2, PAGEMAP_PRESENT);
	expect(f, 383, 1, PAGEMAP_PRESENT);
	expect(f, 0, 3, 0);
	expect(f, 5, 250, 0);
	expect(f, 257, 126, 0);
	for (uint32_t i = 0; i < PAGES; i++)
		assert_memory_equal(page_of(f, i), &i, sizeof(i));
}

static void read_pages_stay_the_files(void **state)
{
	struct fixture *f = *state;

	add(f, WORKING_SET_READ, 100, 1);
	add(f, WORKING_SET_READ, 200, 90);
	assert_int_equal(prefault(&f->memory, f->set), 0);
	expect(f, 100, 1, PAGEMAP_PRESENT | PAGEMAP_OF_FILE);
	expect(f, 200, 90, PAGEMAP_PRESENT | PAGEMAP_OF_FILE);
	/* Neighbours may come with them, as the file's; what is far does not. */
	expect(f, 0, 64, 0);
	expect(f, 350, 34, 0);
}

static void an_empty_set_does_nothing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(prefault(&f->memory, f->set), 0);
	expect(f, 0, PAGES, 0);
}

static void what_the_kernel_says_comes_back(void **state)
{
	struct fixture *f = *state;

	add(f, WORKING_SET_WRITTEN, 10, 1);
	assert_int_equal(mprotect(f->memory.regions[0].host, FIRST, PROT_READ), 0);
	assert_int_equal(prefault(&f->memory, f->set), -EINVAL);
	assert_int_equal(munmap(f->memory.regions[0].host, FIRST), 0);
	assert_int_equal(prefault(&f->memory, f->set), -ENOMEM);
	f->memory.regions[0].size = FIRST;
	assert_true(mmap(f->memory.regions[0].host, FIRST, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			    -1, 0) == f->memory.regions[0].host);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(written_pages_are_private),
		TEST(read_pages_stay_the_files),
		TEST(an_empty_set_does_nothing),
		TEST(what_the_kernel_says_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
