/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In static programs, in place of the C library's: it takes its own out of an archive only for names that are
 * not there yet. So nothing that such a program calls may need vfprintf, which would bring all of it back;
 * suite `programs` sees that by the size.
 */
#include "common/format.h"
#include <stdio.h>

int vsnprintf(char *text, size_t size, const char *format, va_list arguments)
{
	return format_text(text, size, format, arguments);
}

int snprintf(char *text, size_t size, const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = format_text(text, size, format, arguments);
	va_end(arguments);
	return length;
}
