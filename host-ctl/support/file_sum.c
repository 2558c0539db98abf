/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/file_sum.h"
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BLOCK = 4096, PIECE = 256 * 1024 /* in whole blocks */ };

static int is_zero(const unsigned char *bytes, size_t length)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* at: where the bytes are in the file, at the beginning of a block. */
static void add(XXH3_state_t *state, const unsigned char *bytes, size_t length, uint64_t at)
{
	for (size_t i = 0; i < length; i += BLOCK) {
		const size_t block = length - i < BLOCK ? length - i : BLOCK;
		const uint64_t offset = at + i;

		if (is_zero(bytes + i, block))
			continue;
		/* Of this host, and it is little-endian. */
		(void)XXH3_64bits_update(state, &offset, sizeof offset);
		(void)XXH3_64bits_update(state, bytes + i, block);
	}
}

/* [at, until), both in whole blocks, or the latter at or beyond the file's end. */
static int add_range(
	XXH3_state_t *state, int fd, const atomic_bool *stop, unsigned char *piece, off_t at, off_t until)
{
	while (at < until) {
		const size_t wanted = until - at < PIECE ? (size_t)(until - at) : PIECE;
		ssize_t got;

		if (stop && atomic_load(stop))
			return -ECANCELED;
		got = io_pread_full(fd, piece, wanted, at);
		if (got < 0)
			return (int)got;
		if (got)
			add(state, piece, (size_t)got, (uint64_t)at);
		if ((size_t)got < wanted)
			return 0;
		at += got;
	}
	return 0;
}

static int add_all(XXH3_state_t *state, int fd, const atomic_bool *stop, unsigned char *piece)
{
	off_t at = 0, until;
	int status = 0;

	while (!status && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
		until = lseek(fd, at, SEEK_HOLE);
		if (until < 0)
			return -errno;
		/* A file system may have smaller blocks. */
		at -= at % BLOCK;
		until += (BLOCK - until % BLOCK) % BLOCK;
		status = add_range(state, fd, stop, piece, at, until);
		at = until;
	}
	return status || errno == ENXIO ? status : -errno;
}

int file_sum(int fd, const atomic_bool *stop, uint64_t *sum)
{
	unsigned char *piece = malloc(PIECE);
	/* The state must lie at a multiple of 64. */
	XXH3_state_t *state = aligned_alloc(_Alignof(XXH3_state_t), sizeof *state);
	int status = piece && state ? 0 : -ENOMEM;

	if (!status) {
		(void)XXH3_64bits_reset(state);
		status = add_all(state, fd, stop, piece);
	}
	if (!status)
		*sum = XXH3_64bits_digest(state);
	free(state);
	free(piece);
	return status;
}
