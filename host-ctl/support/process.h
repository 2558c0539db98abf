/* SPDX-License-Identifier: Apache-2.0 */
/* A process, known again by its pid and the time of its start: a pid alone may be another's by then. */
#ifndef HOST_CTL_PROCESS_H
#define HOST_CTL_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* In ticks since the host's boot (/proc/PID/stat, field 22; proc(5)). 0; -ESRCH: it is not there, or only its
 * end is left to be read; or -errno. */
int process_start_time(pid_t pid, uint64_t *ticks);

#endif
