/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with the headers that must come before it; a unit test includes this first. */
#ifndef TESTS_SUPPORT_UNIT_H
#define TESTS_SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
