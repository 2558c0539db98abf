/* SPDX-License-Identifier: Apache-2.0 */
/* What is on the disk of a template, held against what a daemon writes. Pure: no state, nothing is opened. */
#ifndef HOST_CTL_TEMPLATE_CHECK_H
#define HOST_CTL_TEMPLATE_CHECK_H

#include <jansson.h>
#include <sys/stat.h>

enum { TEMPLATE_FAULT_MAX = 256 };

/*
 * Of its template.json (NULL: it is not JSON), whose folder has this name. NULL, or what is wrong, a
 * constant: another format or name, no generation, no image, processors memory or a disk that no vmm has, a
 * checksum that is none.
 */
const char *template_check_about(const json_t *about, const char *name);
/* Of its folder: 0, or -EPERM with fault set: it is another user's, or others may write to it. */
int template_check_folder(const struct stat *folder, char fault[TEMPLATE_FAULT_MAX]);

#endif
