/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/built_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of build/host-ctl/host-ctl: build. Empty when it cannot be told. */
static void build_folder(char *folder, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", folder, size - 1);

	folder[length > 0 ? length : 0] = '\0';
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(folder, '/');

		if (slash)
			*slash = '\0';
	}
}

void built_file_find(char path[PATH_MAX], const char *built)
{
	char folder[PATH_MAX];
	int length;

	build_folder(folder, sizeof folder);
	length = snprintf(path, PATH_MAX, "%s/%s", folder, built);
	if (!folder[0] || length >= PATH_MAX || access(path, F_OK) < 0)
		snprintf(path, PATH_MAX, BUILT_FILE_LIBRARY "%s", strrchr(built, '/'));
}
