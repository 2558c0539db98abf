/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static struct {
	const char *name;
	enum log_level level;
	int fd;
} state = {.name = "", .level = LOG_LEVEL_INFO, .fd = STDERR_FILENO};

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warning",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

void log_init(const char *name, enum log_level level)
{
	state.name = name;
	state.level = level;
}

void log_set_fd(int fd)
{
	state.fd = fd;
}

/* Length of a line of at most LOG_LINE_MAX bytes, whatever snprintf would have liked to write. */
static size_t clamp(int written)
{
	if (written < 0)
		return 0;
	return (size_t)written < LOG_LINE_MAX - 1 ? (size_t)written : LOG_LINE_MAX - 1;
}

void log_at(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	int saved = errno;
	size_t length;
	va_list args;

	if (level > state.level)
		return;
	length = clamp(snprintf(line, sizeof(line), "%s: %s: ", state.name, level_names[level]));
	va_start(args, format);
	length = clamp((int)length + vsnprintf(line + length, sizeof(line) - length, format, args));
	va_end(args);
	line[length++] = '\n';
	/* Nobody is left to tell when this fails. */
	(void)!write(state.fd, line, length);
	errno = saved;
}
