/* SPDX-License-Identifier: Apache-2.0 */
/* What of the guest's console means something: the lines of its option initcall_debug. */
#include "common/parse.h"
#include "vmm/trace_parts.h"
#include <limits.h>
#include <string.h>

static const char head[] = "initcall ", middle[] = " returned ", after[] = " after ", tail[] = " usecs";

enum { DIGITS_MAX = 20 };

/* The number of digits before a text; NULL: it is no number, or another text follows. */
static const char *take_number(const char *text, const char *next, uint64_t *value)
{
	char digits[DIGITS_MAX + 1];
	size_t length = strspn(text, "0123456789");

	if (length == 0 || length > DIGITS_MAX || strncmp(text + length, next, strlen(next)) != 0)
		return NULL;
	memcpy(digits, text, length);
	digits[length] = '\0';
	return parse_u64(digits, 0, UINT64_MAX, value) < 0 ? NULL : text + length + strlen(next);
}

bool trace_parse_initcall(const char *line, const char **name, size_t *length, int *returned, uint64_t *usecs)
{
	const char *text = strstr(line, head), *end;
	bool negative;
	uint64_t value;

	if (!text)
		return false;
	*name = text + strlen(head);
	end = strstr(*name, middle);
	if (!end || end == *name)
		return false;
	*length = (size_t)(end - *name);
	text = end + strlen(middle);
	negative = *text == '-';
	text = take_number(text + negative, after, &value);
	if (!text || value > INT_MAX || !take_number(text, tail, usecs))
		return false;
	*returned = negative ? -(int)value : (int)value;
	return true;
}
