/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An address space (memory-mapped or I/O ports) with windows that devices answer. Windows are added at
 * set-up; after that any vCPU thread may access it.
 *
 * An access that no window wholly contains, or of a width other than 1, 2, 4 or 8 bytes, reads all-ones and
 * writes nothing, as on a bus where nobody answers. A guest may do that as often as it likes: it is counted
 * by address for the first BUS_STRAYS_MAX addresses, and together after that.
 */
#ifndef VMM_BUS_H
#define VMM_BUS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { BUS_WINDOWS_MAX = 24, BUS_STRAYS_MAX = 16 };

/* offset and offset + length lie within the window; length is 1, 2, 4 or 8. A missing function reads all-ones
 * or writes nothing. Called on a vCPU's thread, on several at once. */
struct bus_ops {
	void (*read)(void *context, uint64_t offset, void *data, uint32_t length);
	void (*write)(void *context, uint64_t offset, const void *data, uint32_t length);
};

struct bus_window {
	uint64_t base, size;
	const struct bus_ops *ops;
	void *context;
	const char *name;
	atomic_uint_fast64_t reads, writes;
};

struct bus_stray {
	uint64_t address;
	uint64_t count;
};

struct bus {
	struct bus_window windows[BUS_WINDOWS_MAX]; /* ascending, not overlapping */
	unsigned count;
	pthread_mutex_t lock; /* over what follows */
	struct bus_stray strays[BUS_STRAYS_MAX];
	unsigned stray_count;
	uint64_t strays_other;
};

void bus_init(struct bus *bus);
void bus_finish(struct bus *bus);

/* name, ops and context must outlive the bus. 0, -EINVAL (empty, or wraps), -EEXIST (overlaps another),
 * -ENOSPC (BUS_WINDOWS_MAX). */
int bus_add(struct bus *bus, uint64_t base, uint64_t size, const struct bus_ops *ops, void *context,
	const char *name);

/* The name of the window that answers such an access; NULL: none does. */
const char *bus_name(struct bus *bus, uint64_t address, uint32_t length);

void bus_read(struct bus *bus, uint64_t address, void *data, uint32_t length);
void bus_write(struct bus *bus, uint64_t address, const void *data, uint32_t length);

#endif
