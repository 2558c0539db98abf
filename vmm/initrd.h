/* SPDX-License-Identifier: Apache-2.0 */
/* Loads an initramfs as high in guest memory below the hole as it goes, on a page boundary. */
#ifndef VMM_INITRD_H
#define VMM_INITRD_H

#include "vmm/memory.h"

enum { INITRD_WHY_MAX = 192 };

struct initrd {
	gpa_t address;
	uint64_t size; /* bytes; 0: none */
};

/*
 * Loads the whole regular file; it must fit between kernel_end and the end of memory, or
 * its hole. fd stays the caller's.
 *
 * 0, or with words in why (INITRD_WHY_MAX bytes; they follow the file's name):
 *   -EINVAL   not a regular file
 *   -ENODATA  empty, or it shrank meanwhile
 *   -E2BIG    no room for it
 *   -errno    of fstat or pread
 */
int initrd_load(
	int fd, const struct guest_memory *memory, gpa_t kernel_end, struct initrd *initrd, char *why);

#endif
