/* SPDX-License-Identifier: Apache-2.0 */
#include "common/parse.h"
#include <errno.h>
#include <stddef.h>

/* Digits from text into *value; *end is what follows. */
static int parse_digits(const char *text, const char **end, uint64_t *value)
{
	uint64_t sum = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	for (; *text >= '0' && *text <= '9'; text++)
		if (__builtin_mul_overflow(sum, 10, &sum) ||
			__builtin_add_overflow(sum, (uint64_t)(*text - '0'), &sum))
			return -ERANGE;
	*end = text;
	*value = sum;
	return 0;
}

static int check_range(uint64_t parsed, uint64_t minimum, uint64_t maximum, uint64_t *value)
{
	if (parsed < minimum || parsed > maximum)
		return -ERANGE;
	*value = parsed;
	return 0;
}

int parse_u64(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value)
{
	const char *end = NULL;
	uint64_t parsed = 0;
	int r = parse_digits(text, &end, &parsed);

	if (r < 0)
		return r;
	return *end != '\0' ? -EINVAL : check_range(parsed, minimum, maximum, value);
}

int parse_size(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *bytes)
{
	const char *end = NULL;
	uint64_t parsed = 0, unit = 1;
	int r = parse_digits(text, &end, &parsed);

	if (r < 0)
		return r;
	switch (*end) {
	case 'K':
		unit = 1ULL << 10;
		break;
	case 'M':
		unit = 1ULL << 20;
		break;
	case 'G':
		unit = 1ULL << 30;
		break;
	case 'T':
		unit = 1ULL << 40;
		break;
	default:
		break;
	}
	if (unit != 1)
		end++;
	if (*end != '\0')
		return -EINVAL;
	if (__builtin_mul_overflow(parsed, unit, &parsed))
		return -ERANGE;
	return check_range(parsed, minimum, maximum, bytes);
}
