/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3, 64 bits: finds damage, not forgery. In a file of its own, so that xxhash's code is in the program
 * once.
 */
#ifndef VMM_CHECKSUM_H
#define VMM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t checksum(const void *data, size_t length);

/* Over pieces, one after another. */
struct checksum;
/* NULL: no memory. */
struct checksum *checksum_create(void);
void checksum_add(struct checksum *sum, const void *data, size_t length);
uint64_t checksum_value(const struct checksum *sum);
/* Takes NULL. */
void checksum_destroy(struct checksum *sum);

#endif
