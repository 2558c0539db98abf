/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One 16550A, for logs and a console; every byte costs an exit. Its interrupt line is high while OUT2 of the
 * modem control register lets it (as on a PC, and not in loop-back) and one of two reasons is there and
 * enabled: a byte waits to be received, or the transmitter has become empty, which it is from the moment that
 * a byte has gone out or the reason is enabled until the interrupt identification register has told it or the
 * next byte is written. Only the line's rise is told, for the IOAPIC takes edges. There are no errors of the
 * line and no changes of the modem's state, so their interrupts can be enabled and never come.
 *
 * Output goes to an fd at once. A reader that does not read (a full pipe, a stopped terminal) holds the guest
 * back, but never the VM: when `interrupt` becomes readable the byte is dropped and counted. One vCPU at a
 * time waits for room and writes, the others wait for it: two that saw room for one byte would not. A guest
 * that writes without end fills what the fd leads to: give it a pipe or a terminal, or a bound, after which
 * every byte is dropped and counted. Input waits
 * in the receive buffer of SERIAL_FIFO bytes until the guest polls for it; what finds no room is dropped.
 */
#ifndef VMM_SERIAL_H
#define VMM_SERIAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state_reader;
struct state_writer;

enum { SERIAL_FIFO = 64 };

struct serial {
	pthread_mutex_t lock;	/* over all registers and the receive buffer */
	pthread_mutex_t output; /* over writing to out; not taken within the other */
	int out;		/* the caller's */
	uint64_t room;		/* bytes that may still go out; under output */
	int interrupt;		/* eventfd of the caller, readable while the guest must stand; -1: none */
	uint8_t divisor_low, divisor_high, interrupt_enable, fifo_control, line_control, modem_control,
		scratch;
	uint8_t fifo[SERIAL_FIFO];
	unsigned fifo_start, fifo_count;
	bool empty_pending; /* the transmitter is empty, and the guest has not been told */
	bool line;	    /* the interrupt's, as it was last */
	void (*raise)(void *context);
	void *context;
	uint64_t written, dropped; /* bytes */
};

void serial_init(struct serial *serial, int out, int interrupt);
void serial_finish(struct serial *serial);
/* So many bytes go out, and no more; without this there is no bound. Before a vCPU runs. */
void serial_bound(struct serial *serial, uint64_t bytes);
/* What is called when the interrupt line rises, with the port's lock held: it must not call back. Without
 * this nobody is told. */
void serial_connect(struct serial *serial, void (*raise)(void *context), void *context);

/* The eight ports. Any width but one byte reads all-ones and writes nothing. On a vCPU's thread. */
void serial_read(struct serial *serial, uint64_t offset, void *data, uint32_t length);
void serial_write(struct serial *serial, uint64_t offset, const void *data, uint32_t length);

/*
 * Snapshots, while no vCPU runs: registers and what waits to be received. load refuses through the reader
 * what a guest could not have written, and raises the line again if it is high: whether the transmitter's
 * interrupt had been told is not saved, so it is told once more.
 */
void serial_save(struct serial *serial, struct state_writer *state);
void serial_load(struct serial *serial, struct state_reader *state);

/* Bytes for the guest; returns how many found room. Any thread. */
size_t serial_input(struct serial *serial, const uint8_t *data, size_t length);

#endif
