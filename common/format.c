/* SPDX-License-Identifier: Apache-2.0 */
#include "common/format.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(long) == sizeof(long long) && sizeof(size_t) == sizeof(long long),
	"l, ll and z are one width here");

enum { DIGITS_MAX = 20, DECIMAL = 10, HEXADECIMAL = 16 };

struct out {
	char *text;
	size_t room, length; /* length counts on where the room ends */
};

/* One conversion. */
struct field {
	size_t width, precision; /* SIZE_MAX: no precision */
	bool left, zero, wide;
};

static void put(struct out *out, char byte)
{
	if (out->length < out->room)
		out->text[out->length] = byte;
	out->length++;
}

static void pad(struct out *out, const struct field *field, size_t length, char byte)
{
	for (; length < field->width; length++)
		put(out, byte);
}

/* sign: '-' before the digits of a number; 0: none. */
static void put_field(struct out *out, const struct field *field, char sign, const char *bytes, size_t length)
{
	size_t whole = length + (sign != 0);

	if (!field->left && !field->zero)
		pad(out, field, whole, ' ');
	if (sign)
		put(out, sign);
	if (!field->left && field->zero)
		pad(out, field, whole, '0');
	for (size_t i = 0; i < length; i++)
		put(out, bytes[i]);
	if (field->left)
		pad(out, field, whole, ' ');
}

static void put_number(struct out *out, const struct field *field, char sign, uint64_t value, unsigned base)
{
	char digits[DIGITS_MAX];
	size_t at = sizeof(digits);

	do {
		digits[--at] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	put_field(out, field, sign, digits + at, sizeof(digits) - at);
}

static const char *take_number(const char *at, size_t *number)
{
	*number = 0;
	for (; *at >= '0' && *at <= '9'; at++)
		*number = *number * DECIMAL + (size_t)(*at - '0');
	return at;
}

/* What stands between the % and the letter. */
static const char *take_field(const char *at, struct field *field, va_list *arguments)
{
	*field = (struct field){.precision = SIZE_MAX};
	for (; *at == '-' || *at == '0'; at++)
		if (*at == '-')
			field->left = true;
		else
			field->zero = true;
	at = take_number(at, &field->width);
	if (at[0] == '.' && at[1] == '*') {
		int precision = va_arg(*arguments, int);

		if (precision >= 0)
			field->precision = (size_t)precision;
		at += 2;
	} else if (at[0] == '.') {
		at = take_number(at + 1, &field->precision);
	}
	for (; *at == 'l' || *at == 'z'; at++)
		field->wide = true;
	return at;
}

static void put_signed(struct out *out, const struct field *field, int64_t value)
{
	put_number(out, field, value < 0 ? '-' : 0, value < 0 ? -(uint64_t)value : (uint64_t)value, DECIMAL);
}

/* Puts the conversion behind a %, and gives what follows it; NULL: there is no such conversion. */
static const char *put_conversion(struct out *out, const char *at, va_list *arguments)
{
	struct field field;
	const char *text;
	char byte;

	at = take_field(at, &field, arguments);
	switch (*at) {
	case 's':
		text = va_arg(*arguments, const char *);
		if (!text)
			text = "(null)";
		put_field(out, &field, 0, text, strnlen(text, field.precision));
		break;
	case 'd':
		put_signed(out, &field, field.wide ? va_arg(*arguments, long long) : va_arg(*arguments, int));
		break;
	case 'u':
	case 'x':
		put_number(out, &field, 0,
			field.wide ? va_arg(*arguments, unsigned long long) : va_arg(*arguments, unsigned),
			*at == 'u' ? DECIMAL : HEXADECIMAL);
		break;
	case 'c':
		byte = (char)va_arg(*arguments, int);
		put_field(out, &field, 0, &byte, 1);
		break;
	case '%':
		put(out, '%');
		break;
	default:
		return NULL;
	}
	return at + 1;
}

int format_text(char *text, size_t size, const char *format, va_list arguments)
{
	struct out out = {.text = text, .room = size ? size - 1 : 0};
	va_list list; /* a parameter of that type may be a pointer already */

	va_copy(list, arguments);
	while (format && *format)
		if (*format == '%')
			format = put_conversion(&out, format + 1, &list);
		else
			put(&out, *format++);
	va_end(list);
	if (size)
		text[out.length < out.room ? out.length : out.room] = '\0';
	return (int)out.length;
}
