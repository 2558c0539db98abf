/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest memory: the only place that turns guest-physical addresses into pointers.
 *
 * It lies from 0 up to the hole under 4 GiB, where the devices are, and goes on from 4 GiB.
 *
 * A guest address is a gpa_t and never a pointer. An access lies inside one region wholly or fails.
 * The bytes behind a pointer can change at any time (the guest runs): copy once, check the copy, use the
 * copy.
 */
#ifndef VMM_MEMORY_H
#define VMM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t gpa_t;

#define GUEST_HOLE_START (3ull << 30)
#define GUEST_HOLE_END (4ull << 30)

enum { GUEST_DISCARD_FILE_MIN = 64 * 1024, GUEST_DISCARD_BLOCKS_MAX = 16384 }; /* see guest_memory_discard */
enum { GUEST_REGIONS_MAX = 2 };						       /* below and above the hole */

struct guest_region {
	gpa_t base;
	uint64_t size; /* bytes */
	uint8_t *host;
	void *mapping; /* what host lies in, of guest_memory_init; NULL: it is a mapping of its own */
};

struct guest_memory {
	struct guest_region regions[GUEST_REGIONS_MAX]; /* ascending, not overlapping */
	unsigned count;
	bool of_file; /* private mappings of a file, but for its holes (snapshot_memory_map) */
	/*
	 * With of_file: a bit for each page, numbered region after region, in whose place something else has
	 * been mapped since (guest_memory_note_replaced). NULL: that is not kept.
	 */
	uint64_t *replaced;
};

/*
 * Maps size bytes of private anonymous memory (MAP_NORESERVE): one region from 0, and what is more than
 * GUEST_HOLE_START as a second from GUEST_HOLE_END.
 * 0; -EINVAL (size is 0, not in whole pages, or beyond all addresses); -ENOMEM (the host refused: more than
 * its limits or its overcommit policy allow). Nothing is left mapped then. Tests use it without KVM.
 */
int guest_memory_init(struct guest_memory *memory, uint64_t size);
/* Unmaps; takes a zeroed struct too. */
void guest_memory_finish(struct guest_memory *memory);

/*
 * The host pointer to [address, address + length). 0, or -EFAULT when any byte of it is outside memory, or
 * the sum wraps. A length of 0 is -EFAULT too: nobody asks for nothing.
 */
int guest_memory_pointer(const struct guest_memory *memory, gpa_t address, uint64_t length, void **pointer);

/* Copies; 0 or -EFAULT (nothing copied). */
int guest_memory_read(const struct guest_memory *memory, gpa_t address, void *data, size_t length);
int guest_memory_write(const struct guest_memory *memory, gpa_t address, const void *data, size_t length);

/*
 * Gives the whole pages inside [pointer, pointer + length) back to the host; the range is one that
 * guest_memory_pointer has returned, or a part of it. The guest finds zeros there, or what it writes next.
 * Bytes given back (0: there is no whole page in it), or -errno of madvise or mmap; their content is then as
 * before. In memory that is of a file, MADV_DONTNEED would bring the file's bytes back: there, anonymous
 * memory takes the place, in whole aligned blocks of GUEST_DISCARD_FILE_MIN bytes or, in a large guest, more,
 * so that a guest that gives back every other page does not use up the host's mappings (vm.max_map_count).
 */
int64_t guest_memory_discard(const struct guest_memory *memory, void *pointer, uint64_t length);

/*
 * Has the pages of [pointer, pointer + length) in place, a part of what guest_memory_pointer has returned, as
 * a read or a write would, but for their content, which does not change. 0, or -errno of madvise: -EINVAL: a
 * kernel before 5.14 (or memory that cannot be written).
 */
int guest_memory_populate(void *pointer, uint64_t length, bool write);

/*
 * Zeros at [pointer, pointer + length), whole pages, a part of what guest_memory_pointer has returned: given
 * back as guest_memory_discard does where that goes, and written elsewhere. 0, or -errno of madvise or mmap.
 */
int guest_memory_clear(const struct guest_memory *memory, uint8_t *pointer, uint64_t length);

/* Notes that whole pages of a region are no longer the file's that memory is of; without `replaced` it does
 * nothing. The caller's lock is the device's, or no guest runs. */
void guest_memory_note_replaced(const struct guest_memory *memory, const void *pointer, uint64_t length);
bool guest_memory_was_replaced(const struct guest_memory *memory, uint64_t page);

/* All bytes of all regions. */
uint64_t guest_memory_size(const struct guest_memory *memory);

#endif
