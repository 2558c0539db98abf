/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One 16550A for logs. It has no interrupt line: Linux prints by polling, and every byte costs an exit
 * anyway.
 *
 * Output goes to an fd at once. A reader that does not read (a full pipe, a stopped terminal) holds the guest
 * back, but never the VM: when `interrupt` becomes readable the byte is dropped and counted. One vCPU at a
 * time waits for room and writes, the others wait for it: two that saw room for one byte would not. A guest
 * that writes without end fills what the fd leads to: give it a pipe or a terminal, or a quota. Input waits
 * in the receive buffer of SERIAL_FIFO bytes until the guest polls for it; what finds no room is dropped.
 */
#ifndef VMM_SERIAL_H
#define VMM_SERIAL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct state_reader;
struct state_writer;

enum { SERIAL_FIFO = 64 };

struct serial {
	pthread_mutex_t lock;	/* over all registers and the receive buffer */
	pthread_mutex_t output; /* over writing to out; not taken within the other */
	int out;		/* the caller's */
	int interrupt;		/* eventfd of the caller, readable while the guest must stand; -1: none */
	uint8_t divisor_low, divisor_high, interrupt_enable, fifo_control, line_control, modem_control,
		scratch;
	uint8_t fifo[SERIAL_FIFO];
	unsigned fifo_start, fifo_count;
	uint64_t written, dropped; /* bytes */
};

void serial_init(struct serial *serial, int out, int interrupt);
void serial_finish(struct serial *serial);

/* The eight ports. Any width but one byte reads all-ones and writes nothing. On a vCPU's thread. */
void serial_read(struct serial *serial, uint64_t offset, void *data, uint32_t length);
void serial_write(struct serial *serial, uint64_t offset, const void *data, uint32_t length);

/* Snapshots, while no vCPU runs: registers and what waits to be received. load refuses through the reader
 * what a guest could not have written. */
void serial_save(struct serial *serial, struct state_writer *state);
void serial_load(struct serial *serial, struct state_reader *state);

/* Bytes for the guest; returns how many found room. Any thread. */
size_t serial_input(struct serial *serial, const uint8_t *data, size_t length);

#endif
