/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from a format, as printf has it, by less code than a C library's: that is the largest thing which a
 * static program has of one, and most of it is for numbers that nobody here prints. common/static/printf.c
 * puts this in its place in vmm and guest-init; tests/lint/formats holds their formats to what it knows:
 *
 *   %s %c %%, and of integers %d %u %x, with l, ll or z; a width, with - or 0 before it; .N or .* of %s
 */
#ifndef COMMON_FORMAT_H
#define COMMON_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

/*
 * At most size bytes go to text, the last of them a NUL; with size 0 none, and text may be NULL. How many
 * bytes there would be without that bound, the NUL not counted. A NULL for %s is "(null)". The text ends
 * before a conversion that is none of these.
 */
int format_text(char *text, size_t size, const char *format, va_list arguments)
	__attribute__((format(printf, 3, 0)));

#endif
