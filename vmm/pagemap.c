/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pagemap.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
#define PRESENT (UINT64_C(1) << 63)
#define SWAPPED (UINT64_C(1) << 62)
#define OF_FILE (UINT64_C(1) << 61) /* or of shared memory, which a memfd is */

int pagemap_read(int fd, const void *start, size_t count, bool own[PAGEMAP_PAGES_MAX])
{
	uint64_t entries[PAGEMAP_PAGES_MAX];
	size_t bytes = count * sizeof(entries[0]);
	ssize_t got =
		io_pread_full(fd, entries, bytes, (off_t)((uintptr_t)start / PAGE * sizeof(entries[0])));

	if (got != (ssize_t)bytes)
		return got < 0 ? (int)got : -EIO;
	for (size_t i = 0; i < count; i++)
		own[i] = (entries[i] & (PRESENT | SWAPPED)) && !(entries[i] & OF_FILE);
	return 0;
}

/* Of two new pages one is written: that one is ours. */
static bool tells(int fd)
{
	uint8_t *pages =
		mmap(NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool own[PAGEMAP_PAGES_MAX], right;

	if (pages == MAP_FAILED)
		return false;
	/* Else the other may come with it. */
	(void)madvise(pages, (size_t)2 * PAGE, MADV_NOHUGEPAGE);
	*(volatile uint8_t *)pages = 1;
	right = pagemap_read(fd, pages, 2, own) == 0 && own[0] && !own[1];
	munmap(pages, (size_t)2 * PAGE);
	return right;
}

int pagemap_open(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (tells(fd))
		return fd;
	fd_close(&fd);
	return -ENOTSUP;
}
