/* SPDX-License-Identifier: Apache-2.0 */
/* Order in an array, by less code than a C library's qsort. */
#ifndef COMMON_SORT_H
#define COMMON_SORT_H

#include <stddef.h>

/*
 * Sorts count items of size bytes each in place, by compare as qsort has it; which of two equal ones is the
 * first is not said. Takes no memory, and at most 2 × count × log2(count) comparisons whatever the order was:
 * a heap.
 */
void sort_items(void *items, size_t count, size_t size, int (*compare)(const void *a, const void *b));

#endif
