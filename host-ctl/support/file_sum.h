/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum of a file's content, made as that of a snapshot's memory is (docs/snapshot.md): XXH3 (64 bits)
 * over each 4096 bytes that are not all zeros, in ascending order: their offset in the file as a u64, then
 * the bytes. So holes are not read, and a copy without holes has the same. It finds damage, not forgery.
 */
#ifndef HOST_CTL_FILE_SUM_H
#define HOST_CTL_FILE_SUM_H

#include <stdatomic.h>
#include <stdint.h>

enum { FILE_SUM_DIGITS = 16 /* as text: hexadecimal, lower case */ };

/*
 * Of an open file, from its beginning to its end; the fd's offset is another afterwards. stop: looked at
 * while it is read, by pieces of some 256 KiB; NULL: nobody stops it. 0, or -errno: -ECANCELED: it was
 * stopped. It takes as long as reading takes: for a worker.
 */
int file_sum(int fd, const atomic_bool *stop, uint64_t *sum);

#endif
