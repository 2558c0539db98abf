/* SPDX-License-Identifier: Apache-2.0 */
/* Files that the build makes beside this program: vmm, kernels, images. */
#ifndef HOST_CTL_BUILT_FILE_H
#define HOST_CTL_BUILT_FILE_H

#include <limits.h>

#define BUILT_FILE_LIBRARY "/usr/lib/tinderbox"

/*
 * Where such a file is. built: its path under the build folder, such as "vmm/vmm". That of the build folder
 * that this program stands in (build/host-ctl/host-ctl), if there is one; else that in BUILT_FILE_LIBRARY,
 * without its folder, whether there is one or not.
 */
void built_file_find(char path[PATH_MAX], const char *built);

#endif
