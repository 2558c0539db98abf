/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads an uncompressed Linux kernel: a 64-bit little-endian x86-64 ELF executable (vmlinux).
 *
 * The file is not trusted: every field is checked before it is used, each number has a bound, and nothing
 * outside guest memory is written. Segments go to their physical address (p_paddr).
 */
#ifndef VMM_ELF_H
#define VMM_ELF_H

#include "vmm/memory.h"

enum {
	ELF_SEGMENTS_MAX = 64, /* program headers; Linux has 3 to 8 */
	ELF_WHY_MAX = 192,
};

/* Below this are the boot code's own structures. */
#define ELF_LOAD_MIN 0x100000ull

struct elf_image {
	gpa_t entry;	  /* physical */
	gpa_t start, end; /* the memory that the segments take, bss included */
};

/*
 * Loads from a regular file into fresh (all zero) memory; what a segment has beyond its bytes in the file is
 * left as it is. fd stays the caller's, its position is not used.
 *
 * 0, or with words in why (ELF_WHY_MAX bytes; they follow the file's name: "is ...; give ..."):
 *   -ENOEXEC  not an ELF executable for x86-64 (a bzImage is named as such)
 *   -EINVAL   a header that makes no sense, or a segment above the hole of memory
 *   -ENODATA  empty, or shorter than its headers say
 *   -E2BIG    a segment outside of guest memory
 *   -errno    of fstat or pread
 */
int elf_load(int fd, const struct guest_memory *memory, struct elf_image *image, char *why);

#endif
