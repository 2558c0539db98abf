/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A working set: the pages of a snapshot's memory that a restored VM needs at once, and which of them it
 * writes. host-ctl records it, vmm has the pages there before the guest runs.
 *
 * It says nothing of what is in the pages: a wrong one costs memory and time, never content. So the file has
 * no checksum, and is refused for what it cannot be. Little-endian:
 *
 *   0   8  "TNDXWSET"
 *   8   4  version: 1
 *   12  4  bytes of this header: 32
 *   16  8  bytes of the memory file that it is of
 *   24  4  runs of written pages
 *   28  4  runs of pages that are only read
 *   32     the runs, written ones first: u32 first page, u32 pages. Pages (4096 bytes) are numbered by their
 *          place in the memory file; the runs of a kind ascend and do not touch.
 */
#ifndef COMMON_WORKING_SET_H
#define COMMON_WORKING_SET_H

#include <stddef.h>
#include <stdint.h>

enum {
	WORKING_SET_VERSION = 1,
	WORKING_SET_PAGE = 4096,
	WORKING_SET_HEADER = 32,
	WORKING_SET_RUN = 8,
	WORKING_SET_RUNS_MAX = 4096,	     /* of a kind */
	WORKING_SET_WRITTEN_MAX = 16 * 1024, /* pages: each is a VM's own memory from its start */
	WORKING_SET_FILE_MAX = WORKING_SET_HEADER + 2 * WORKING_SET_RUNS_MAX * WORKING_SET_RUN,
	WORKING_SET_WHY_MAX = 128,
};

enum working_set_kind { WORKING_SET_WRITTEN, WORKING_SET_READ, WORKING_SET_KINDS };

struct working_set_run {
	uint32_t first, pages;
};

struct working_set {
	uint64_t memory_bytes;
	struct {
		unsigned int count;
		uint64_t pages; /* of all runs */
		struct working_set_run runs[WORKING_SET_RUNS_MAX];
	} kinds[WORKING_SET_KINDS];
};

/* Takes a page in, which must lie behind all others of its kind. 0; -ERANGE: it does not; -ENOSPC: one of
 * the bounds above. */
int working_set_add(struct working_set *set, enum working_set_kind kind, uint64_t page);

/* Writes the whole file. 0 or -errno of it. */
int working_set_write(int fd, const struct working_set *set);

/*
 * Reads a file whole, from its beginning: *set is malloc'ed, the caller's. It must be of memory_bytes. 0, or
 * -errno with words in why (WORKING_SET_WHY_MAX bytes; the file is to be named before them): -EINVAL: not a
 * working set, or another memory's; -ENOTSUP: another version; -EBADMSG: what it says is not possible;
 * -ENOMEM, -errno of the file.
 */
int working_set_read(int fd, uint64_t memory_bytes, struct working_set **set, char *why);

#endif
