/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MEMORY_PAGE = 4096 };
/* Where guest and host addresses agree below this, KVM can map what the host holds in huge pages as such. */
#define MEMORY_ALIGNMENT (2ull << 20)

/* Without access, before the aligned bytes and behind them together: some of it on either side, also where
 * the mapping itself is aligned, as Linux 6.7 and later have it. */
#define SURROUNDINGS (2 * MEMORY_ALIGNMENT)

_Static_assert(GUEST_HOLE_START % MEMORY_ALIGNMENT == 0 && GUEST_HOLE_END % MEMORY_ALIGNMENT == 0,
	"the regions begin where large pages do");
_Static_assert(GUEST_HOLE_END > SURROUNDINGS, "a size that leaves room for the hole leaves it for alignment");

/* Nothing else can come to lie right beside guest memory. */
static int add_region(struct guest_memory *memory, gpa_t base, uint64_t size)
{
	struct guest_region *region = &memory->regions[memory->count];
	/* NORESERVE: what the guest never touches costs nothing, and many guests may share one host. */
	uint8_t *mapping = mmap(
		NULL, size + SURROUNDINGS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mapping == MAP_FAILED)
		return -ENOMEM;
	*region = (struct guest_region){.base = base,
		.size = size,
		.host = mapping + MEMORY_ALIGNMENT - (uintptr_t)mapping % MEMORY_ALIGNMENT,
		.mapping = mapping};
	memory->count++;
	return mprotect(region->host, size, PROT_READ | PROT_WRITE) < 0 ? -ENOMEM : 0;
}

int guest_memory_init(struct guest_memory *memory, uint64_t size)
{
	uint64_t low = size < GUEST_HOLE_START ? size : GUEST_HOLE_START;
	int r;

	*memory = (struct guest_memory){0};
	if (size == 0 || size % MEMORY_PAGE != 0 || size > SIZE_MAX - GUEST_HOLE_END)
		return -EINVAL;
	r = add_region(memory, 0, low);
	if (r == 0 && size > low)
		r = add_region(memory, GUEST_HOLE_END, size - low);
	if (r < 0)
		guest_memory_finish(memory);
	return r;
}

void guest_memory_finish(struct guest_memory *memory)
{
	for (unsigned i = 0; i < memory->count; i++) {
		const struct guest_region *region = &memory->regions[i];

		if (region->mapping)
			munmap(region->mapping, region->size + SURROUNDINGS);
		else
			munmap(region->host, region->size);
	}
	free(memory->replaced);
	*memory = (struct guest_memory){0};
}

int guest_memory_pointer(const struct guest_memory *memory, gpa_t address, uint64_t length, void **pointer)
{
	if (length == 0)
		return -EFAULT;
	for (unsigned i = 0; i < memory->count; i++) {
		const struct guest_region *region = &memory->regions[i];

		/* Only differences are compared: no sum here can wrap. */
		if (address < region->base || address - region->base >= region->size)
			continue;
		if (length > region->size - (address - region->base))
			return -EFAULT;
		*pointer = region->host + (address - region->base);
		return 0;
	}
	return -EFAULT;
}

int guest_memory_read(const struct guest_memory *memory, gpa_t address, void *data, size_t length)
{
	void *pointer;
	int r = guest_memory_pointer(memory, address, length, &pointer);

	if (r == 0)
		memcpy(data, pointer, length);
	return r;
}

int guest_memory_write(const struct guest_memory *memory, gpa_t address, const void *data, size_t length)
{
	void *pointer;
	int r = guest_memory_pointer(memory, address, length, &pointer);

	if (r == 0)
		memcpy(pointer, data, length);
	return r;
}

/*
 * What is given back goes in whole blocks of this: a page, but for memory of a file, where each block may
 * become a mapping of its own, so much that all of them are far fewer than a process may have.
 */
static uint64_t discard_block(const struct guest_memory *memory)
{
	uint64_t block = MEMORY_PAGE;

	if (memory->of_file)
		for (block = GUEST_DISCARD_FILE_MIN;
			guest_memory_size(memory) / block > GUEST_DISCARD_BLOCKS_MAX;)
			block *= 2;
	return block;
}

static int discard_pages(const struct guest_memory *memory, void *start, uint64_t length)
{
	if (!memory->of_file)
		return madvise(start, length, MADV_DONTNEED) < 0 ? -errno : 0;
	if (mmap(start, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
		return -errno;
	guest_memory_note_replaced(memory, start, length);
	return 0;
}

/* Linux 5.14. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

int guest_memory_populate(void *pointer, uint64_t length, bool write)
{
	uintptr_t start = (uintptr_t)pointer & ~(uintptr_t)(MEMORY_PAGE - 1);
	uint64_t bytes = length + ((uintptr_t)pointer - start);
	int r;

	do
		r = madvise((void *)start, bytes, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int64_t guest_memory_discard(const struct guest_memory *memory, void *pointer, uint64_t length)
{
	uintptr_t address = (uintptr_t)pointer;
	uint64_t block = discard_block(memory), before = -address % block;
	int r;

	if (length < before)
		return 0;
	length = (length - before) / block * block;
	if (length == 0)
		return 0;
	r = discard_pages(memory, (void *)(address + before), length);
	return r < 0 ? r : (int64_t)length;
}

int guest_memory_clear(const struct guest_memory *memory, uint8_t *pointer, uint64_t length)
{
	uint64_t before = -(uintptr_t)pointer % discard_block(memory);
	int64_t discarded;

	if (before > length)
		before = length;
	discarded = guest_memory_discard(memory, pointer, length);
	if (discarded < 0)
		return (int)discarded;
	memset(pointer, 0, before);
	before += (uint64_t)discarded;
	memset(pointer + before, 0, length - before);
	return 0;
}

void guest_memory_note_replaced(const struct guest_memory *memory, const void *pointer, uint64_t length)
{
	uint64_t base = 0;

	for (unsigned i = 0; memory->replaced && i < memory->count; i++) {
		const struct guest_region *region = &memory->regions[i];
		uint64_t offset = (uintptr_t)pointer - (uintptr_t)region->host;

		if (offset < region->size)
			for (uint64_t page = (base + offset) / MEMORY_PAGE;
				page < (base + offset + length) / MEMORY_PAGE; page++)
				memory->replaced[page / 64] |= UINT64_C(1) << page % 64;
		base += region->size;
	}
}

bool guest_memory_was_replaced(const struct guest_memory *memory, uint64_t page)
{
	return memory->replaced && (memory->replaced[page / 64] >> page % 64 & 1);
}

uint64_t guest_memory_size(const struct guest_memory *memory)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < memory->count; i++)
		size += memory->regions[i].size;
	return size;
}
