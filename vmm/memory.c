/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/memory.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { MEMORY_PAGE = 4096 };
/* Where guest and host addresses agree below this, KVM can map what the host holds in huge pages as such. */
#define MEMORY_ALIGNMENT (2ull << 20)

/* Maps size bytes aligned to MEMORY_ALIGNMENT, or MAP_FAILED. */
static void *map_aligned(uint64_t size)
{
	/* NORESERVE: what the guest never touches costs nothing, and many guests may share one host. */
	uint8_t *host = mmap(NULL, size + MEMORY_ALIGNMENT, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t before;

	if (host == MAP_FAILED)
		return MAP_FAILED;
	before = -(uintptr_t)host % MEMORY_ALIGNMENT;
	if (before > 0)
		munmap(host, before);
	munmap(host + before + size, MEMORY_ALIGNMENT - before);
	return host + before;
}

int guest_memory_init(struct guest_memory *memory, uint64_t size)
{
	void *host;

	*memory = (struct guest_memory){0};
	if (size == 0 || size % MEMORY_PAGE != 0 || size > SIZE_MAX - MEMORY_ALIGNMENT)
		return -EINVAL;
	host = map_aligned(size);
	if (host == MAP_FAILED)
		return -ENOMEM;
	memory->regions[0] = (struct guest_region){.base = 0, .size = size, .host = host};
	memory->count = 1;
	return 0;
}

void guest_memory_finish(struct guest_memory *memory)
{
	for (unsigned i = 0; i < memory->count; i++)
		munmap(memory->regions[i].host, memory->regions[i].size);
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

uint64_t guest_memory_size(const struct guest_memory *memory)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < memory->count; i++)
		size += memory->regions[i].size;
	return size;
}
