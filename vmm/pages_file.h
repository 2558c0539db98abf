/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of pages.h only. */
#ifndef VMM_PAGES_FILE_H
#define VMM_PAGES_FILE_H

#include "vmm/pages.h"

/* Writes what is before the pages, and sets *sum to its checksum. 0, -ENOMEM or -errno of the file. */
int pages_put_table(
	const struct pages_table *table, const struct snapshot_memory *base, int fd, uint64_t *sum);

#endif
