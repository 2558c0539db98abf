/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/prefault.h"

/* A run may lie in several regions, which follow one another in the memory file. */
static int prefault_run(const struct guest_memory *memory, const struct working_set_run *run, bool write)
{
	uint64_t first = (uint64_t)run->first * WORKING_SET_PAGE;
	uint64_t end = first + (uint64_t)run->pages * WORKING_SET_PAGE, base = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < memory->count; i++) {
		const struct guest_region *region = &memory->regions[i];
		uint64_t from = first > base ? first : base;
		uint64_t until = end < base + region->size ? end : base + region->size;

		if (from < until)
			r = guest_memory_populate(region->host + (from - base), until - from, write);
		base += region->size;
	}
	return r;
}

int prefault(const struct guest_memory *memory, const struct working_set *set)
{
	int r = 0;

	for (int kind = 0; kind < WORKING_SET_KINDS; kind++)
		for (unsigned i = 0; r == 0 && i < set->kinds[kind].count; i++)
			r = prefault_run(memory, &set->kinds[kind].runs[i], kind == WORKING_SET_WRITTEN);
	return r;
}
