/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cloned VM has touched of its template's memory, by /proc/PID/maps and /proc/PID/pagemap: a page that
 * it wrote is its own copy, one that it only read is still the template's. A vmm maps the template's large
 * holes as memory of no file: what begins where a mapping of the file ends counts as that going on, and a
 * page that is there as written.
 *
 * A vmm can map what it likes: of its mappings FOOTPRINT_PARTS_MAX are looked at, among FOOTPRINT_LINES_MAX
 * lines, and a page that two of them have counts once.
 */
#ifndef HOST_CTL_FOOTPRINT_H
#define HOST_CTL_FOOTPRINT_H

#include "common/working_set.h"
#include <sys/types.h>

enum { FOOTPRINT_PARTS_MAX = 128, FOOTPRINT_LINES_MAX = 4096 };

/*
 * memory: the template's, that the process has mapped. Fills *set, of whose bounds what is beyond is left
 * out. 0, or -errno: -ENODATA: it has not mapped or not touched it; -EACCES, -EPERM, -ENOENT: /proc does not
 * tell.
 */
int footprint_record(pid_t pid, int memory, struct working_set *set);

#endif
