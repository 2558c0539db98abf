/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For LD_PRELOAD: how many blocks of the heap a program holds, and their bytes, at any time, for who reads
 * the file that HEAP_COUNT names: two int64_t, blocks and bytes. What the kernel says of a heap has holes in
 * it, which hide a leak until they are full.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* glibc's own, under the names that it has for who replaces the others. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

struct counts {
	_Atomic int64_t blocks, bytes;
};
static struct counts early; /* until the file is mapped */
static struct counts *counts = &early;

static void *add(void *memory)
{
	if (memory) {
		atomic_fetch_add(&counts->blocks, 1);
		atomic_fetch_add(&counts->bytes, (int64_t)malloc_usable_size(memory));
	}
	return memory;
}

static void subtract(void *memory)
{
	if (memory) {
		atomic_fetch_sub(&counts->blocks, 1);
		atomic_fetch_sub(&counts->bytes, (int64_t)malloc_usable_size(memory));
	}
}

__attribute__((constructor)) static void map_counts(void)
{
	const char *path = getenv("HEAP_COUNT");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	void *map = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(*counts)) == 0)
		map = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (map == MAP_FAILED)
		return;
	counts = map;
	counts->blocks = early.blocks;
	counts->bytes = early.bytes;
}

void *malloc(size_t size)
{
	return add(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
	return add(__libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
	void *moved;

	subtract(memory);
	moved = __libc_realloc(memory, size);
	/* On failure the old one is still there; realloc to nothing is free. */
	if (moved)
		add(moved);
	else if (size > 0)
		add(memory);
	return moved;
}

void free(void *memory)
{
	subtract(memory);
	__libc_free(memory);
}

void *memalign(size_t alignment, size_t size)
{
	return add(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
	*memory = memalign(alignment, size);
	return *memory ? 0 : ENOMEM;
}
