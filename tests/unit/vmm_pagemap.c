/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a process's own pages, in each of the ways that a page can be there. */
#include "tests/support/unit.h"

#include "vmm/pagemap.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, COUNT = 8 };

static uint8_t *map(int flags, int fd)
{
	uint8_t *pages = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, fd, 0);

	assert_true(pages != MAP_FAILED);
	madvise(pages, COUNT * PAGE, MADV_NOHUGEPAGE);
	return pages;
}

static void a_copy_of_a_files_page_is_our_own(void **state)
{
	int file = memfd_create("file", MFD_CLOEXEC), fd = pagemap_open();
	bool own[PAGEMAP_PAGES_MAX];
	uint8_t *pages;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(ftruncate(file, COUNT * PAGE), 0);
	pages = map(0, file);
	pages[0] = 1;
	assert_int_equal(*(volatile uint8_t *)(pages + 2 * PAGE), 0);
	pages[(COUNT - 1) * PAGE] = 1;
	assert_int_equal(pagemap_read(fd, pages, COUNT, own), 0);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(own[i], i == 0 || i == COUNT - 1);
	munmap(pages, COUNT * PAGE);
	close(file);
	close(fd);
}

static void an_anonymous_page_is_our_own_when_it_was_touched(void **state)
{
	bool own[PAGEMAP_PAGES_MAX];
	int fd = pagemap_open();
	uint8_t *pages = map(MAP_ANONYMOUS, -1);

	(void)state;
	pages[3 * PAGE] = 1;
	assert_int_equal(*(volatile uint8_t *)(pages + 5 * PAGE), 0); /* the common page of zeros */
	assert_int_equal(pagemap_read(fd, pages, COUNT, own), 0);
	assert_false(own[0] || own[1] || own[2] || own[4] || own[6] || own[7]);
	assert_true(own[3] && own[5]);
	munmap(pages, COUNT * PAGE);
	close(fd);
}

static void what_is_no_pagemap_is_an_error(void **state)
{
	bool own[PAGEMAP_PAGES_MAX];
	int empty = memfd_create("empty", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(pagemap_read(empty, own, 1, own), -EIO);
	assert_int_equal(pagemap_read(-1, own, 1, own), -EBADF);
	close(empty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_of_a_files_page_is_our_own),
		cmocka_unit_test(an_anonymous_page_is_our_own_when_it_was_touched),
		cmocka_unit_test(what_is_no_pagemap_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
