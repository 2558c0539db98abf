/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a trace goes: a file that is what it was, or all of the trace. It is written beside its place, in the
 * same folder, and takes its place by a rename; what is handed over as fd:N, or is no regular file, is
 * written as it is. A symbolic link is replaced, not followed. Nothing is synced.
 */
#ifndef VMM_TRACE_FILE_H
#define VMM_TRACE_FILE_H

#include "vmm/config.h"

struct trace_file {
	int fd; /* -1: none */
	const char *path;
	char temporary[PATH_MAX]; /* empty: it is written in place */
};

/*
 * path: kept by reference. 0, or -errno with a sentence in error (CONFIG_ERROR_MAX bytes) that names the
 * file, the cause and the mend; nothing is open or left then.
 */
int trace_file_open(const char *path, struct trace_file *file, char *error);
/* All is written: it takes its place. 0 or -errno, when nothing is left of it. */
int trace_file_commit(struct trace_file *file);
/* Takes one that was committed, or refused. */
void trace_file_discard(struct trace_file *file);

#endif
