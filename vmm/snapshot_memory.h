/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory file of a snapshot: the guest's memory as it is, region after region, without what lies between
 * them. A page of zeros is a hole.
 *
 * A restored guest's memory is this file, mapped privately: nothing is read before it is touched, and nothing
 * is written back. So the file must not change while any guest lives on it. One in memory (memfd) that is
 * sealed against writing and shrinking cannot; whoever sealed it has checked it, and it is not read here
 * again. Any other is read once, whole, and what happens to it afterwards is its owner's business.
 */
#ifndef VMM_SNAPSHOT_MEMORY_H
#define VMM_SNAPSHOT_MEMORY_H

#include "vmm/memory.h"
#include "vmm/snapshot.h"

enum {
	SNAPSHOT_PAGE = 4096,
	SNAPSHOT_BLOCK_MIN = 1024 * 1024, /* see snapshot_memory_map */
	SNAPSHOT_BLOCKS_MAX = 128,	  /* and so of its mappings */
};

struct checksum;

/* For those who write pages elsewhere: is a page, aligned as such, all zeros; a page's part of a checksum;
 * and is a file sealed so that what is in it stays? */
bool snapshot_memory_is_zero(const uint8_t *page);
void snapshot_memory_add_page(struct checksum *sum, uint64_t offset, const uint8_t *page);
bool snapshot_memory_is_sealed(int fd);

/*
 * Writes all of memory to fd, an empty regular file. Sets *written to the bytes that are no holes. 0, or
 * -errno of the file (-ENOSPC, -EFBIG ...) or -ENOMEM; then what is in the file is of no use.
 */
int snapshot_memory_save(
	const struct guest_memory *memory, int fd, struct snapshot_memory *what, uint64_t *written);

/*
 * Is it the file that `what` speaks of, and of `size` bytes? 0, or -errno with words in why (SNAPSHOT_WHY_MAX
 * bytes): -EINVAL: another size, or no regular file; -EBADMSG: damaged; -errno of the file.
 */
int snapshot_memory_check(int fd, const struct snapshot_memory *what, uint64_t size, char *why);

/*
 * The same of a base, which was not saved with the state and may be another's as a whole: a sealed one is
 * read too, unless `known` is its checksum, as whoever sealed it knows it (0: not known). -EINVAL too: that
 * is another.
 */
int snapshot_memory_check_base(
	int fd, const struct snapshot_memory *what, uint64_t size, uint64_t known, char *why);

/*
 * Puts the file in place of all of memory's regions, which are untouched since guest_memory_init. Where whole
 * blocks of it (SNAPSHOT_BLOCK_MIN bytes, or in a large guest more) are a hole, they stay anonymous: a page
 * of a hole in a file in memory, once touched, would be there twice, in the file for good and as the guest's
 * copy. What comes in their place later is noted (memory.h). 0 or -errno of mmap or lseek.
 */
int snapshot_memory_map(struct guest_memory *memory, int fd);

#endif
