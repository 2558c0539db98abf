/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/bus.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>

void bus_init(struct bus *bus)
{
	memset(bus, 0, sizeof(*bus));
	pthread_mutex_init(&bus->lock, NULL);
}

void bus_finish(struct bus *bus)
{
	pthread_mutex_destroy(&bus->lock);
}

/* The place before which a window at base belongs. */
static unsigned place_of(const struct bus *bus, uint64_t base)
{
	unsigned i = 0;

	while (i < bus->count && bus->windows[i].base <= base)
		i++;
	return i;
}

static void set_window(struct bus_window *window, const struct bus_window *from)
{
	window->base = from->base;
	window->size = from->size;
	window->ops = from->ops;
	window->context = from->context;
	window->name = from->name;
}

int bus_add(struct bus *bus, uint64_t base, uint64_t size, const struct bus_ops *ops, void *context,
	const char *name)
{
	struct bus_window window = {.base = base, .size = size, .ops = ops, .context = context, .name = name};
	unsigned place = place_of(bus, base);

	if (size == 0 || base + (size - 1) < base)
		return -EINVAL;
	if (place > 0 && base - bus->windows[place - 1].base < bus->windows[place - 1].size)
		return -EEXIST;
	if (place < bus->count && bus->windows[place].base - base < size)
		return -EEXIST;
	if (bus->count == BUS_WINDOWS_MAX)
		return -ENOSPC;
	for (unsigned i = bus->count; i > place; i--)
		set_window(&bus->windows[i], &bus->windows[i - 1]);
	set_window(&bus->windows[place], &window);
	bus->count++;
	return 0;
}

/* NULL: nobody answers all of it. */
static struct bus_window *find_window(struct bus *bus, uint64_t address, uint32_t length)
{
	unsigned place = place_of(bus, address);
	struct bus_window *window;

	if (place == 0 || (length != 1 && length != 2 && length != 4 && length != 8))
		return NULL;
	window = &bus->windows[place - 1];
	if (address - window->base >= window->size || length > window->size - (address - window->base))
		return NULL;
	return window;
}

const char *bus_name(struct bus *bus, uint64_t address, uint32_t length)
{
	const struct bus_window *window = find_window(bus, address, length);

	return window ? window->name : NULL;
}

static void count_stray(struct bus *bus, uint64_t address)
{
	unsigned i = 0;

	pthread_mutex_lock(&bus->lock);
	while (i < bus->stray_count && bus->strays[i].address != address)
		i++;
	if (i == bus->stray_count && i < BUS_STRAYS_MAX)
		bus->strays[bus->stray_count++].address = address;
	if (i < BUS_STRAYS_MAX)
		bus->strays[i].count++;
	else
		bus->strays_other++;
	pthread_mutex_unlock(&bus->lock);
}

static void count_access(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

void bus_read(struct bus *bus, uint64_t address, void *data, uint32_t length)
{
	struct bus_window *window = find_window(bus, address, length);

	memset(data, 0xff, length);
	if (!window) {
		count_stray(bus, address);
		return;
	}
	count_access(&window->reads);
	if (window->ops->read)
		window->ops->read(window->context, address - window->base, data, length);
}

void bus_write(struct bus *bus, uint64_t address, const void *data, uint32_t length)
{
	struct bus_window *window = find_window(bus, address, length);

	if (!window) {
		count_stray(bus, address);
		return;
	}
	count_access(&window->writes);
	if (window->ops->write)
		window->ops->write(window->context, address - window->base, data, length);
}
