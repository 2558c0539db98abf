/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window on an endless stream of bytes: the last RING_SIZE of them, addressed by their absolute offset.
 *
 * The ring never blocks a writer: what is put in overwrites the oldest. Who must not lose bytes limits what
 * it puts in (session_io.c does, while a reader is attached).
 */
#ifndef GUEST_INIT_RING_H
#define GUEST_INIT_RING_H

#include "common/proto_guest.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { RING_SIZE = AGENT_OUTPUT_BUFFER };
_Static_assert((RING_SIZE & (RING_SIZE - 1)) == 0, "offsets are masked");
_Static_assert((int)RING_SIZE >= (int)AGENT_STDIN_WINDOW, "a whole window of stdin fits");

struct ring {
	uint8_t *bytes; /* RING_SIZE of them, the owner's */
	uint64_t end;	/* offset after the newest byte */
};

/* Offset of the oldest byte held. */
uint64_t ring_oldest(const struct ring *ring);

/*
 * The bytes from an offset on, at most limit: their number, and where they are (iov[1] is empty unless they
 * wrap). from must be within ring_oldest..end.
 */
size_t ring_span(const struct ring *ring, uint64_t from, size_t limit, struct iovec iov[2]);

/* Takes at most limit bytes (at most RING_SIZE) from fd by one read. Bytes, 0 at end of file, or -errno. */
ssize_t ring_read(struct ring *ring, int fd, size_t limit);

/* length: at most RING_SIZE. */
void ring_put(struct ring *ring, const void *data, size_t length);

/* Passes bytes that went another way: only the offset moves. */
void ring_skip(struct ring *ring, uint64_t length);

/* Writes the bytes from an offset on to fd by one write. Bytes or -errno. */
ssize_t ring_write(const struct ring *ring, uint64_t from, int fd);

#endif
