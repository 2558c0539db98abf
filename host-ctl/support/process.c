/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/process.h"
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	STAT_BYTES = 1024,
	FIELDS_BETWEEN = 18
}; /* from behind the state, the third field, to the space before the 22nd */

int process_start_time(pid_t pid, uint64_t *ticks)
{
	char path[32], text[STAT_BYTES], state;
	const char *at;
	unsigned long long start;
	ssize_t length;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	length = io_read_full(fd, text, sizeof text - 1);
	fd_close(&fd);
	if (length < 0)
		return (int)length;
	text[length] = '\0';
	/* The name, the second field, may have anything in it, parentheses too. */
	at = strrchr(text, ')');
	if (!at || sscanf(at, ") %c", &state) != 1)
		return -EIO;
	at += strlen(") S");
	for (int i = 0; at && i < FIELDS_BETWEEN; i++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, "%llu", &start) != 1)
		return -EIO;
	*ticks = start;
	return state == 'Z' || state == 'X' ? -ESRCH : 0;
}
