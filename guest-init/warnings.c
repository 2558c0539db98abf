/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/warnings.h"
#include "common/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WARNING_MAX = 256 };

void warnings_add(struct warnings *warnings, const char *format, ...)
{
	char line[WARNING_MAX];
	size_t length;
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	log_warn("%s", line);
	length = strlen(line);
	if (length + 1 > sizeof(warnings->text) - warnings->length)
		return;
	memcpy(warnings->text + warnings->length, line, length);
	warnings->length += length;
	warnings->text[warnings->length++] = '\n';
}
