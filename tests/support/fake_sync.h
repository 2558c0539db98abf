/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the fdatasync calls of the project's own code in a unit test, and makes them fail. */
#ifndef TESTS_SUPPORT_FAKE_SYNC_H
#define TESTS_SUPPORT_FAKE_SYNC_H

/* From now on: the calls return that errno, or sync when it is 0; the count starts at 0. */
void fake_sync(int error);
unsigned fake_sync_count(void);
/* After so many calls more, which sync, they return that errno. */
void fake_sync_later(unsigned calls, int error);
/* Called after each one that synced; NULL: no more. */
void fake_sync_watch(void (*synced)(void *context), void *context);

#endif
