/* SPDX-License-Identifier: Apache-2.0 */
/* Items come into the order that qsort gives them, within the comparisons that were promised. */
#include "tests/support/unit.h"

#include "common/sort.h"
#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 600, ROUNDS = 300 };

static size_t comparisons;

static int compare_numbers(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;

	comparisons++;
	return (*left > *right) - (*left < *right);
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static uint32_t next_random(void)
{
	static uint32_t value = 2463534242U;

	value ^= value << 13;
	value ^= value >> 17;
	value ^= value << 5;
	return value;
}

/* 2 × count × log2(count), rounded up. */
static size_t bound(size_t count)
{
	size_t log = 0;

	while (((size_t)1 << log) < count)
		log++;
	return 2 * count * log;
}

/* Sorts the first of them; those behind are not its. */
static void check(const uint32_t *numbers, size_t count)
{
	uint32_t wanted[ITEMS_MAX + 1], got[ITEMS_MAX + 1];

	memcpy(wanted, numbers, sizeof(wanted));
	memcpy(got, numbers, sizeof(got));
	qsort(wanted, count, sizeof(wanted[0]), compare_numbers);
	comparisons = 0;
	sort_items(got, count, sizeof(got[0]), compare_numbers);
	assert_in_range(comparisons, 0, bound(count));
	assert_memory_equal(got, wanted, sizeof(got));
}

static void each_small_count(void **state)
{
	uint32_t numbers[ITEMS_MAX + 1];

	(void)state;
	for (size_t count = 0; count < 40; count++)
		for (int round = 0; round < 20; round++) {
			for (size_t i = 0; i <= ITEMS_MAX; i++)
				numbers[i] = next_random() % 16;
			check(numbers, count);
		}
}

static void many(void **state)
{
	uint32_t numbers[ITEMS_MAX + 1];

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t kinds = 1 + next_random() % 1000;

		for (size_t i = 0; i <= ITEMS_MAX; i++)
			numbers[i] = next_random() % kinds;
		check(numbers, 1 + next_random() % ITEMS_MAX);
	}
}

static void what_is_in_order_and_the_other_way(void **state)
{
	uint32_t up[ITEMS_MAX + 1], down[ITEMS_MAX + 1], same[ITEMS_MAX + 1];

	(void)state;
	for (uint32_t i = 0; i <= ITEMS_MAX; i++) {
		up[i] = i;
		down[i] = ITEMS_MAX - i;
		same[i] = 7;
	}
	check(up, ITEMS_MAX);
	check(down, ITEMS_MAX);
	check(same, ITEMS_MAX);
}

static void texts_by_their_pointers(void **state)
{
	const char *texts[] = {"b", "", "a/b", "a", "aa"};
	static const char *const wanted[] = {"", "a", "a/b", "aa", "b"};

	(void)state;
	sort_items(texts, 5, sizeof(texts[0]), compare_texts);
	for (size_t i = 0; i < 5; i++)
		assert_string_equal(texts[i], wanted[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_small_count),
		cmocka_unit_test(many),
		cmocka_unit_test(what_is_in_order_and_the_other_way),
		cmocka_unit_test(texts_by_their_pointers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
