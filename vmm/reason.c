/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/reason.h"
#include <stdarg.h>
#include <stdio.h>

int reason_set(char *reason, size_t size, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, size, format, arguments);
	va_end(arguments);
	return error;
}
