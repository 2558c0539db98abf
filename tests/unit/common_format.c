/* SPDX-License-Identifier: Apache-2.0 */
/* Formats give the same bytes as the C library's, at each size of the buffer and not a byte beyond it. */
#include "tests/support/unit.h"

#include "common/format.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 256, CANARY = 0x5a, RANDOM_ROUNDS = 2000 };

__attribute__((format(printf, 1, 2))) static void same(const char *format, ...)
{
	char wanted[TEXT_MAX], got[TEXT_MAX];
	va_list list;
	int length;

	va_start(list, format);
	length = vsnprintf(wanted, sizeof(wanted), format, list);
	va_end(list);
	assert_in_range(length, 0, TEXT_MAX - 2);
	for (size_t size = 0; size <= (size_t)length + 2; size++) {
		memset(got, CANARY, sizeof(got));
		va_start(list, format);
		assert_int_equal(format_text(size ? got : NULL, size, format, list), length);
		va_end(list);
		if (size > 0) {
			size_t kept = size <= (size_t)length ? size - 1 : (size_t)length;

			assert_memory_equal(got, wanted, kept);
			assert_int_equal(got[kept], '\0');
		}
		for (size_t i = size; i < sizeof(got); i++)
			assert_int_equal(got[i], CANARY);
	}
}

static void texts(void **state)
{
	(void)state;
	same("%s", "");
	same("nothing");
	same("%s and %s", "one", "two");
	same("%-9s|%9s|%2s", "left", "right", "longer");
	same("%.4s|%.0s|%.9s", "abcdef", "abcdef", "abc");
	same("%.*s|%.*s|%.*s", 2, "abc", 0, "abc", -1, "abc");
	same("%-6.2s|%6.2s", "abc", "abc");
	same("%c%c|%-3c|%3c", 'a', 'b', 'c', 'd');
	same("100%%|%%s|%d%%", 5);
}

/* Not a byte beyond the precision is looked at: there is none. */
static void a_text_need_not_end(void **state)
{
	char *bytes = malloc(3);

	(void)state;
	assert_non_null(bytes);
	memcpy(bytes, "abc", 3);
	same("%.3s|%.*s", bytes, 3, bytes);
	free(bytes);
}

static void no_text(void **state)
{
	const char *volatile none = NULL;

	(void)state;
	same("%s", none);
}

static void numbers(void **state)
{
	(void)state;
	same("%d %d %d %d", 0, -1, INT_MAX, INT_MIN);
	same("%u %u %x %x", 0U, UINT_MAX, 0U, UINT_MAX);
	same("%ld %ld", LONG_MAX, LONG_MIN);
	same("%lld %llu %llx", LLONG_MIN, ULLONG_MAX, ULLONG_MAX);
	same("%lu %lx %zu %zx", ULONG_MAX, 0xabcdefUL, SIZE_MAX, (size_t)0xf0);
	same("%" PRIu32 " %" PRIu64 " %" PRId64 " %016" PRIx64, UINT32_MAX, UINT64_MAX, INT64_MIN,
		UINT64_C(0xbeef));
	same("%5d|%-5d|%05d|%05d|%1d", 42, 42, 42, -42, 12345);
	same("%02x:%04x:%03u|%12llu|%-12llu|", 7U, 0xabU, 5U, 123456ULL, 123456ULL);
}

static void numbers_at_random(void **state)
{
	unsigned long long value = 0x9e3779b97f4a7c15ULL;

	(void)state;
	for (int i = 0; i < RANDOM_ROUNDS; i++) {
		unsigned long long shown;

		/* xorshift: the same ones each time, of each number of digits. */
		value ^= value << 13;
		value ^= value >> 7;
		value ^= value << 17;
		shown = value >> (value & 63);
		same("%llu %llx %lld %u %d %-22lld|%022llu", shown, shown, (long long)shown, (unsigned)shown,
			(int)(unsigned)shown, -(long long)(shown >> 1), shown);
	}
}

__attribute__((format(printf, 2, 0))) static int format(char *text, const char *format, ...)
{
	va_list list;
	int length;

	va_start(list, format);
	length = format_text(text, TEXT_MAX, format, list);
	va_end(list);
	return length;
}

static void the_text_ends_before_what_is_not_known(void **state)
{
	static const char *const formats[] = {"ab%f", "ab%", "ab%l", "ab%hd", "ab%p", "ab%+d", "ab%n"};
	char text[TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		assert_int_equal(format(text, formats[i], 1), 2);
		assert_string_equal(text, "ab");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts),
		cmocka_unit_test(a_text_need_not_end),
		cmocka_unit_test(no_text),
		cmocka_unit_test(numbers),
		cmocka_unit_test(numbers_at_random),
		cmocka_unit_test(the_text_ends_before_what_is_not_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
