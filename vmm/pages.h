/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a VM's private pages: what its memory has that another memory, its base, has not. A VM that was
 * restored shares most of its memory with the file that it came from; saved so, it costs what it has changed,
 * however often, for the file is always about that one base and never about another such file.
 *
 * Little-endian:
 *
 *   0   8  "TNDXPAGE"
 *   8   4  version: 1
 *   12  4  bytes of this header: 56
 *   16  8  bytes of the memory
 *   24  8  checksum of the base (snapshot_memory.h)
 *   32  8  pages in this file
 *   40  8  pages of zeros, which are not in it
 *   48  8  where the first page is: behind the two maps, at a multiple of 4096
 *   56     a map of the pages in the file, then one of those of zeros: a bit for each page of memory, in
 * u64s, the lowest first; a page is in one of them at most, and the base's when it is in none. Zeros up to
 *          the first page
 *          the pages, ascending, one behind the other
 *
 * Its bytes and two checksums are in the state file: one over all before the first page, one over the pages,
 * as the memory file's. All is checked by pages_open but the pages themselves: they are when they are read.
 */
#ifndef VMM_PAGES_H
#define VMM_PAGES_H

#include "vmm/memory.h"
#include "vmm/snapshot_memory.h"

enum {
	PAGES_VERSION = 1,
	PAGES_HEADER = 56,
	PAGES_CHUNK = 64,   /* read at once of the base, written at once */
	PAGES_RUN_MIN = 16, /* shorter runs are never mapped: see pages_load */
	PAGES_MAPPINGS_MAX = 128,
};

/* What the state says of the file. */
struct pages_what {
	uint64_t bytes;	    /* of the file; 0: there is none */
	uint64_t table_sum; /* of what is before the first page */
	uint64_t pages_sum; /* of the pages, as snapshot_memory_sum */
};

/* Which pages a file has. */
struct pages_table {
	uint64_t memory_pages, stored_count, zero_count;
	uint64_t start;		 /* of the first page in the file, in bytes */
	uint64_t *stored, *zero; /* bits; in one piece of memory */
};

/* memory_bytes: whole MiB. 0 or -ENOMEM; *table is empty then. */
int pages_table_init(struct pages_table *table, uint64_t memory_bytes);
/* Takes an empty one, and a zeroed struct. */
void pages_table_finish(struct pages_table *table);

bool pages_has(const uint64_t *map, uint64_t page);
/* The run of pages with that bit from `page` on, up to `end`. */
uint64_t pages_run(const uint64_t *map, uint64_t page, uint64_t end);

/*
 * What of memory differs from the base, a file of its size that guest_memory lies upon. Written to fd, an
 * empty regular file. pagemap: pagemap_open's, by which only pages are looked at that the VM has of its own;
 * -1: all are compared. Sets *what, and *written to the bytes of the file. 0, or -errno of the files
 * (-ENOSPC, -EIO: the base is cut off ...) or -ENOMEM; then what is in the file is of no use.
 */
struct pages_base {
	int fd;
	struct snapshot_memory what;
};
int pages_save(const struct guest_memory *memory, const struct pages_base *base, int pagemap, int fd,
	struct pages_what *what);

/*
 * Reads and checks what is before the pages. It must be the file that `what` speaks of, for a memory of that
 * size upon that base. 0 with *table the caller's; -errno with words in why (SNAPSHOT_WHY_MAX bytes; the file
 * is to be named before them) and *table empty: -EINVAL: not such a file, another size, no regular file, or
 * of another memory or base; -ENOTSUP: another version; -EBADMSG: damaged, or it says what cannot be;
 * -ENOMEM, -errno of the file.
 */
int pages_open(int fd, const struct pages_what *what, const struct snapshot_memory *base,
	struct pages_table *table, char *why);

/*
 * Puts the pages in their places in memory that is the base's (snapshot_memory_map); no guest runs. A file
 * that is sealed (snapshot_memory.h) is not read for its checksum, and its longest runs, of PAGES_RUN_MIN
 * pages or more so that they are PAGES_MAPPINGS_MAX at most, are mapped privately and so shared with whoever
 * has them from there too; all else is read, and the file may go. 0, or -errno with words in why: -EBADMSG:
 * damaged; -EIO: cut off just now; -errno of mmap and the file.
 */
int pages_load(const struct guest_memory *memory, const struct pages_table *table, int fd,
	const struct pages_what *what, char *why);

#endif
