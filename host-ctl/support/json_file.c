/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/json_file.h"
#include "common/io.h"
#include "host-ctl/support/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int put(int folder, const char *name, const json_t *value, bool syncs)
{
	int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), r;
	char *text;

	if (fd < 0)
		return -errno;
	text = json_dumps(value, JSON_INDENT(2) | JSON_SORT_KEYS);
	r = text ? io_write_all(fd, text, strlen(text)) : -ENOMEM;
	if (!r && syncs && fsync(fd) < 0)
		r = -errno;
	free(text);
	fd_close(&fd);
	return r;
}

int json_file_write(int folder, const char *name, const json_t *value)
{
	return put(folder, name, value, true);
}

int json_file_put(int folder, const char *name, const json_t *value)
{
	return put(folder, name, value, false);
}

json_t *json_file_read(int folder, const char *name, size_t maximum, const char **kind)
{
	struct stat status;
	int fd = input_file_open(folder, name, O_NOFOLLOW, INPUT_FILE, &status, kind);
	char *text = fd < 0 ? NULL : malloc(maximum);
	ssize_t length = text ? io_read_full(fd, text, maximum) : -1;
	json_t *value = length < 0 ? NULL : json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, NULL);

	free(text);
	fd_close(&fd);
	return value;
}
