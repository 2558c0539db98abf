/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/text.h"

#include <stdlib.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void text_make_printable(char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}

void text_copy_printable(char *to, size_t size, const void *from, size_t length)
{
	if (length > size - 1)
		length = size - 1;
	memcpy(to, from, length);
	to[length] = '\0';
	for (size_t i = 0; i < length; i++)
		if (to[i] < 0x20 || to[i] > 0x7e)
			to[i] = '?';
}

size_t text_base64_length(size_t length)
{
	return (length + 2) / 3 * 4;
}

void text_base64_encode(char *to, const void *from, size_t length)
{
	const uint8_t *bytes = from;

	for (; length >= 3; bytes += 3, length -= 3) {
		*to++ = alphabet[bytes[0] >> 2];
		*to++ = alphabet[(bytes[0] & 3) << 4 | bytes[1] >> 4];
		*to++ = alphabet[(bytes[1] & 15) << 2 | bytes[2] >> 6];
		*to++ = alphabet[bytes[2] & 63];
	}
	if (length) {
		*to++ = alphabet[bytes[0] >> 2];
		*to++ = alphabet[(bytes[0] & 3) << 4 | (length == 2 ? bytes[1] >> 4 : 0)];
		*to++ = length == 2 ? alphabet[(bytes[1] & 15) << 2] : '=';
		*to++ = '=';
	}
	*to = '\0';
}

static int digit_value(char digit)
{
	const char *found = digit ? strchr(alphabet, digit) : NULL;

	return found ? (int)(found - alphabet) : -1;
}

json_t *text_base64_to_json(const void *from, size_t length)
{
	char *text = malloc(text_base64_length(length) + 1);
	json_t *value = NULL;

	if (text) {
		text_base64_encode(text, from, length);
		value = json_string_nocheck(text);
	}
	free(text);
	return value;
}

ptrdiff_t text_base64_decode(uint8_t *to, const char *from, size_t length)
{
	uint8_t *start = to;

	if (length % 4)
		return -1;
	for (; length; from += 4, length -= 4) {
		int padding = length == 4 ? (from[3] == '=') + (from[3] == '=' && from[2] == '=') : 0;
		uint32_t bits = 0;

		for (int i = 0; i < 4 - padding; i++) {
			int value = digit_value(from[i]);

			if (value < 0)
				return -1;
			bits |= (uint32_t)value << (18 - 6 * i);
		}
		/* The bits below the last whole byte are zero, or two texts would mean the same bytes. */
		if (bits & ((1u << (8 * padding)) - 1))
			return -1;
		*to++ = bits >> 16;
		if (padding < 2)
			*to++ = bits >> 8 & 255;
		if (padding < 1)
			*to++ = bits & 255;
	}
	return to - start;
}
