/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has the pages of a working set in place before the guest runs: the written ones as the VM's own, the others
 * as the file's. One call for a run of pages costs a tenth of the faults that it saves, and those of the
 * guest are answered at once then.
 */
#ifndef VMM_PREFAULT_H
#define VMM_PREFAULT_H

#include "common/working_set.h"
#include "vmm/memory.h"

/*
 * set is of this memory (working_set_read has checked that). 0, or -errno of madvise, some pages in place and
 * others not, which the guest does not notice: -EINVAL: a kernel before 5.14 (or memory that cannot be
 * written); -ENOMEM, -EHWPOISON ...
 */
int prefault(const struct guest_memory *memory, const struct working_set *set);

#endif
