/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes an allocation fail. Unit tests are linked so that malloc and calloc of the project's own code come by
 * here; those of libraries do not.
 */
#ifndef TESTS_SUPPORT_FAIL_ALLOC_H
#define TESTS_SUPPORT_FAIL_ALLOC_H

/* The n-th allocation from now on fails, from 0 on, and none after it. */
void fail_alloc(unsigned n);
/* Ends that. 1: an allocation failed; 0: there were fewer. */
int fail_alloc_end(void);

#endif
