/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening files whose names are others' to choose, or whose folder others may have written to: what is no
 * plain data is never opened, for that may wait without end (a named pipe), or do something (a device).
 *
 * The file is held by O_PATH, looked at, and then opened by what is held, not by its name again: so what is
 * opened is what was looked at, whatever happens to the name meanwhile.
 */
#ifndef HOST_CTL_INPUT_FILE_H
#define HOST_CTL_INPUT_FILE_H

#include <stdint.h>
#include <sys/stat.h>

enum input_kind {
	INPUT_FILE,  /* a regular file */
	INPUT_IMAGE, /* or a block device */
};

/* When its content was changed last, by the host's clock. */
int64_t input_file_changed_ns(const struct stat *status);
/* NULL, or what it is that it may not be: "a named pipe", ... */
const char *input_file_fault(const struct stat *status, enum input_kind kind);
/*
 * For reading. at, flags: as openat takes them. The fd, the caller's, with *status of it; or -errno, -EINVAL
 * with *fault set (else NULL) when it is nothing that may be opened.
 */
int input_file_open(
	int at, const char *path, int flags, enum input_kind kind, struct stat *status, const char **fault);

#endif
