/* SPDX-License-Identifier: Apache-2.0 */
/* What tests/machine/devices.c and its guest agree on. */
#ifndef TESTS_MACHINE_DEVICES_H
#define TESTS_MACHINE_DEVICES_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DEVICES_PORT = 1024,	   /* the guest listens */
	DEVICES_READY_PORT = 2000, /* where it connects when it does */
	DEVICES_LINE_MAX = 128,
	DEVICES_FLOOD_FILES = 40,
};

#define DEVICES_SUM_START UINT64_C(0xcbf29ce484222325)

/* FNV-1a, 64 bits. */
static inline uint64_t devices_sum(uint64_t sum, const uint8_t *data, size_t length)
{
	for (size_t i = 0; i < length; i++)
		sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
	return sum;
}

/* The bytes of the pattern from an offset on. No two pages of it are alike. */
static inline void devices_pattern(uint8_t *data, uint64_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		data[i] = (uint8_t)(((offset + i) * UINT64_C(0x9e3779b97f4a7c15)) >> 37);
}

/* The errors that the tests look for, by name. */
static inline const char *devices_error(int error)
{
	switch (error) {
	case ECONNRESET:
		return "ECONNRESET";
	case ECONNREFUSED:
		return "ECONNREFUSED";
	case EPERM:
		return "EPERM";
	case EACCES:
		return "EACCES";
	case EROFS:
		return "EROFS";
	case EIO:
		return "EIO";
	case ENOENT:
		return "ENOENT";
	default:
		return "another error";
	}
}

#endif
