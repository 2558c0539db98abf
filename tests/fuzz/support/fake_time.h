/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers that go off when the program says so and not when the clock does. The linker puts these in the place
 * of timerfd_create and timerfd_settime.
 */
#ifndef TESTS_FUZZ_SUPPORT_FAKE_TIME_H
#define TESTS_FUZZ_SUPPORT_FAKE_TIME_H

#include "common/loop.h"

/* Of those that are armed, the which-th goes off (modulo how many they are) and the loop turns once. */
void fake_time_fire(struct loop *loop, unsigned which);

#endif
