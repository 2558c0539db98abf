/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sort.h"

static void swap(char *a, char *b, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		char byte = a[i];

		a[i] = b[i];
		b[i] = byte;
	}
}

/* Lets the item at root sink, until none below it is larger. */
static void sift(
	char *items, size_t root, size_t count, size_t size, int (*compare)(const void *a, const void *b))
{
	for (size_t child; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && compare(items + child * size, items + (child + 1) * size) < 0)
			child++;
		if (compare(items + root * size, items + child * size) >= 0)
			return;
		swap(items + root * size, items + child * size, size);
	}
}

void sort_items(void *items, size_t count, size_t size, int (*compare)(const void *a, const void *b))
{
	char *bytes = items;

	for (size_t root = count / 2; root-- > 0;)
		sift(bytes, root, count, size, compare);
	/* The largest of what is left goes to its end. */
	for (size_t left = count; left-- > 1;) {
		swap(bytes, bytes + left * size, size);
		sift(bytes, 0, left, size, compare);
	}
}
