/* SPDX-License-Identifier: Apache-2.0 */
/* A file's content into another, which is empty: holes stay holes. For a worker, as it takes a while. */
#ifndef HOST_CTL_FILE_COPY_H
#define HOST_CTL_FILE_COPY_H

#include <stdatomic.h>
#include <stdbool.h>

/* Both regular files or memfds, the first open for reading, the second for writing; where each is read from
 * next is undefined. stop: looked at before each 64 MiB; NULL: nobody stops it. 0 or -errno: -ENODATA: the
 * first was cut off meanwhile; -ECANCELED: it was stopped, and what was copied by then stays. */
int file_copy(int from, int to, const atomic_bool *stop);
/* Whether such a copy into that folder shares the file's blocks, and so takes no room: one is tried, in a
 * file without a name, which takes no time. False also where that cannot be had. */
bool file_copy_shares(int from, const char *folder);

#endif
