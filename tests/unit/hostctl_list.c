/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of what is part of its owner's memory. */
#include "tests/support/unit.h"

#include "host-ctl/support/list.h"
#include <stddef.h>

enum { COUNT = 4 };

/* Those from the front on, and nothing else. */
static void expect_list(const struct list *list, const struct list_entry *const *entries, size_t count)
{
	const struct list_entry *entry = list->first;

	for (size_t i = 0; i < count; i++, entry = entry->next) {
		assert_ptr_equal(entry, entries[i]);
		assert_ptr_equal(*entry->link, entry);
	}
	assert_null(entry);
}

static void test_each_place(void **state)
{
	(void)state;
	for (size_t out = 0; out < COUNT; out++) {
		struct list_entry entries[COUNT] = {{NULL, NULL}};
		const struct list_entry *left[COUNT];
		struct list list = {NULL};
		size_t count = 0;

		for (size_t i = 0; i < COUNT; i++)
			list_add(&list, &entries[COUNT - 1 - i]);
		for (size_t i = 0; i < COUNT; i++)
			if (i != out)
				left[count++] = &entries[i];
		list_remove(&entries[out]);
		expect_list(&list, left, count);
		/* Once more is nothing. */
		list_remove(&entries[out]);
		expect_list(&list, left, count);
		assert_null(entries[out].link);
	}
}

static void test_take(void **state)
{
	struct list_entry one = {NULL, NULL}, other = {NULL, NULL};
	struct list list = {NULL}, second = {NULL};

	(void)state;
	assert_null(list_take(&list));
	list_add(&list, &one);
	list_add(&list, &other);
	assert_ptr_equal(list_take(&list), &other);
	/* It is free for another list. */
	list_add(&second, &other);
	assert_ptr_equal(list_take(&list), &one);
	assert_null(list_take(&list));
	assert_ptr_equal(list_take(&second), &other);
	assert_null(other.link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_place),
		cmocka_unit_test(test_take),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
