/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest memory: the only place that turns guest-physical addresses into pointers.
 *
 * A guest address is a gpa_t and never a pointer. An access lies inside one region wholly or fails.
 * The bytes behind a pointer can change at any time (the guest runs): copy once, check the copy, use the
 * copy.
 */
#ifndef VMM_MEMORY_H
#define VMM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t gpa_t;

enum { GUEST_REGIONS_MAX = 2 }; /* below and above the hole under 4 GiB */

struct guest_region {
	gpa_t base;
	uint64_t size; /* bytes */
	uint8_t *host;
};

struct guest_memory {
	struct guest_region regions[GUEST_REGIONS_MAX]; /* ascending, not overlapping */
	unsigned count;
};

/*
 * Maps size bytes of private anonymous memory (MAP_NORESERVE) as one region at address 0.
 * 0, or -ENOMEM / -EINVAL. Tests use it without KVM.
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

/* All bytes of all regions. */
uint64_t guest_memory_size(const struct guest_memory *memory);

#endif
