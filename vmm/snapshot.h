/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state file of a snapshot: a header, records, a checksum over both. What is in the records is said by
 * those who put it there (vm_snapshot.c); docs/snapshot.md has it all, byte by byte.
 *
 * A file is refused as a whole, before any record is looked at, when it is not one of ours, newer, cut off or
 * damaged. What passes can still be hostile: whoever made it can make a checksum too.
 */
#ifndef VMM_SNAPSHOT_H
#define VMM_SNAPSHOT_H

#include "vmm/state.h"

enum {
	SNAPSHOT_VERSION = 1,
	SNAPSHOT_VERSION_PAGES = 2, /* the memory is a base, and what differs is in a file of its own */
	SNAPSHOT_HEADER = 40,
	SNAPSHOT_CHECKSUM = 8,		  /* at the end of the file */
	SNAPSHOT_STATE_MAX = 1024 * 1024, /* bytes of a state file: eight vCPUs take a quarter of it */
	SNAPSHOT_WHY_MAX = 256,
};

/* The order of the records; each is there once, but VCPU (one for each) and DEVC (one for each); PAGE in
 * version 2 only. */
#define SNAPSHOT_TAG(a, b, c, d)                                                                             \
	((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
#define SNAPSHOT_MACHINE SNAPSHOT_TAG('M', 'A', 'C', 'H')
#define SNAPSHOT_CLOCK SNAPSHOT_TAG('C', 'L', 'O', 'K')
#define SNAPSHOT_VCPU SNAPSHOT_TAG('V', 'C', 'P', 'U')
#define SNAPSHOT_IOAPIC SNAPSHOT_TAG('I', 'O', 'A', 'P')
#define SNAPSHOT_SERIAL SNAPSHOT_TAG('S', 'E', 'R', 'L')
#define SNAPSHOT_DEVICE SNAPSHOT_TAG('D', 'E', 'V', 'C')
#define SNAPSHOT_PAGES SNAPSHOT_TAG('P', 'A', 'G', 'E')

/* What belongs to the state: the memory file that was written with it, or lay there before as a base. */
struct snapshot_memory {
	uint64_t size; /* bytes of the file */
	uint64_t sum;  /* its checksum: snapshot_memory.c */
	bool is_base;  /* so there is a file of private pages (pages.h): version 2 */
};

/* Begins a file in a buffer of SNAPSHOT_STATE_MAX bytes, the caller's; records are put behind. */
void snapshot_begin(struct state_writer *writer, void *buffer);
/* Fills the header in and puts the checksum; writer->length is the file's then. 0 or -ENOSPC. */
int snapshot_finish(struct state_writer *writer, const struct snapshot_memory *memory);

/*
 * Checks a whole file and gives its records. 0, or -errno with words in why (SNAPSHOT_WHY_MAX bytes; the file
 * is to be named before them): -EINVAL: not a state file; -ENOTSUP: another version; -EBADMSG: cut off, too
 * long or damaged.
 */
int snapshot_parse(const void *data, size_t length, struct snapshot_memory *memory,
	struct state_reader *records, char *why);

/*
 * Reads a state file whole, from its beginning: *data is malloc'ed, the caller's. 0; -EFBIG: longer than
 * SNAPSHOT_STATE_MAX; -ENOMEM, -errno of the file.
 */
int snapshot_read_file(int fd, uint8_t **data, size_t *length);

#endif
