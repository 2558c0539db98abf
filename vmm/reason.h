/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences for people beside an error number, in a buffer of the caller's. */
#ifndef VMM_REASON_H
#define VMM_REASON_H

#include <stddef.h>

/* Writes the sentence, cut to size, and returns error. */
int reason_set(char *reason, size_t size, int error, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
