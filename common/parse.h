/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers from text: whole, bounded, and nothing left over. */
#ifndef COMMON_PARSE_H
#define COMMON_PARSE_H

#include <stdint.h>

/* Decimal digits only (no sign, no space). 0, -EINVAL (not a number), -ERANGE (outside minimum..maximum).
 * *value is set on 0 only. */
int parse_u64(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value);

/* Digits with an optional K, M, G or T (powers of 1024), in bytes. Errors as parse_u64. */
int parse_size(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *bytes);

#endif
