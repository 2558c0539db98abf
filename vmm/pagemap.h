/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of private mappings are the process's own by now: /proc/self/pagemap, which needs no privilege
 * for that (Documentation/admin-guide/mm/pagemap.rst). Opened at set-up; where it cannot be, or tells
 * nonsense, its users must do without.
 */
#ifndef VMM_PAGEMAP_H
#define VMM_PAGEMAP_H

#include <stdbool.h>
#include <stddef.h>

enum { PAGEMAP_PAGES_MAX = 512 }; /* asked for at once */

/* An fd (CLOEXEC), the caller's, or -errno: -ENOENT, -EACCES: there is no /proc, or not for us; -ENOTSUP: it
 * does not tell a page of our own from others. */
int pagemap_open(void);

/*
 * own[i]: page i from start on, which is at a page's border, is a copy of this process's, present or swapped
 * out, or the common page of zeros. A page that is not is a file's, or not touched since it was mapped. 0, or
 * -errno of the file (-EIO: too few entries).
 */
int pagemap_read(int fd, const void *start, size_t count, bool own[PAGEMAP_PAGES_MAX]);

#endif
