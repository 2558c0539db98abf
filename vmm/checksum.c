/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/checksum.h"
#include <stddef.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct checksum {
	XXH3_state_t state;
};

uint64_t checksum(const void *data, size_t length)
{
	return XXH3_64bits(data, length);
}

struct checksum *checksum_create(void)
{
	/* It must lie at a multiple of 64, which the library sees to. */
	struct checksum *sum = (struct checksum *)XXH3_createState();

	if (sum)
		(void)XXH3_64bits_reset(&sum->state);
	return sum;
}

void checksum_add(struct checksum *sum, const void *data, size_t length)
{
	(void)XXH3_64bits_update(&sum->state, data, length);
}

uint64_t checksum_value(const struct checksum *sum)
{
	return XXH3_64bits_digest(&sum->state);
}

void checksum_destroy(struct checksum *sum)
{
	(void)XXH3_freeState(sum ? &sum->state : NULL);
}
