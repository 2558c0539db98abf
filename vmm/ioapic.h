/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An IOAPIC (82093AA) in user space, for a kernel that has the local APICs only: each pin's redirection entry
 * becomes an MSI route. It has just as many pins as there are devices, for a guest masks each at boot with
 * four exits.
 *
 * Lines are edges, rising; an entry that asks for a level is delivered as an edge. A pin's route is changed
 * only while the pin is unmasked, and only when it differs: changing one waits for all readers of the old. An
 * edge that comes while the pin is masked is latched, once, and delivered when it is unmasked.
 *
 * Any thread may call any function. A register that does not exist, an index out of range and a wrong width
 * read as zero and write nothing.
 */
#ifndef VMM_IOAPIC_H
#define VMM_IOAPIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct state_reader;
struct state_writer;

enum {
	IOAPIC_PINS_MAX = 24,
	IOAPIC_REGSEL = 0x00, /* offsets of its two registers */
	IOAPIC_WINDOW = 0x10,
	IOAPIC_REG_ID = 0x00, /* indices behind them */
	IOAPIC_REG_VERSION = 0x01,
	IOAPIC_REG_ARBITRATION = 0x02,
	IOAPIC_REG_REDIRECTION = 0x10, /* two for each pin: low half, high half */
};

#define IOAPIC_ENTRY_MASKED (1ull << 16)

/* Both are called with the IOAPIC's lock held, on the caller's thread: they must not call back. */
struct ioapic_ops {
	/* This is the MSI message of that pin from now on. A failure is for the receiver to handle. */
	void (*route)(void *context, unsigned pin, uint64_t address, uint32_t data);
	void (*raise)(void *context, unsigned pin);
};

struct ioapic_pin {
	uint64_t entry;	 /* redirection entry as the guest reads it */
	uint64_t routed; /* the entry that the route in effect was made from */
	bool has_route, latched;
};

struct ioapic {
	pthread_mutex_t lock;
	const struct ioapic_ops *ops;
	void *context;
	struct ioapic_pin pins[IOAPIC_PINS_MAX];
	unsigned count;
	uint32_t select, id;
};

/* pins: 1 to IOAPIC_PINS_MAX, else -EINVAL. All are masked. */
int ioapic_init(struct ioapic *ioapic, unsigned pins, const struct ioapic_ops *ops, void *context);
void ioapic_finish(struct ioapic *ioapic);

void ioapic_read(struct ioapic *ioapic, uint64_t offset, void *data, uint32_t length);
void ioapic_write(struct ioapic *ioapic, uint64_t offset, const void *data, uint32_t length);

/*
 * Snapshots, while no vCPU runs. load is for one that no guest has seen: it makes the routes that were in
 * effect, and refuses through the reader another number of pins and entries that a guest could not have
 * written.
 */
void ioapic_save(struct ioapic *ioapic, struct state_writer *state);
void ioapic_load(struct ioapic *ioapic, struct state_reader *state);

/* One edge on a line; a pin that does not exist is ignored. */
void ioapic_raise(struct ioapic *ioapic, unsigned pin);

#endif
