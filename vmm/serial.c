/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/serial.h"
#include "vmm/state.h"
#include <errno.h>
#include <linux/serial_reg.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum {
	MODEM_LOOP_MASK = UART_MCR_DTR | UART_MCR_RTS | UART_MCR_OUT1 | UART_MCR_OUT2,
	INTERRUPTS = UART_IER_MSI | UART_IER_RLSI | UART_IER_THRI | UART_IER_RDI,
	IIR_FIFO_ENABLED = 0xc0, /* what a 16550A says when its buffers are on */
};

void serial_init(struct serial *serial, int out, int interrupt)
{
	memset(serial, 0, sizeof(*serial));
	pthread_mutex_init(&serial->lock, NULL);
	pthread_mutex_init(&serial->output, NULL);
	serial->out = out;
	serial->room = UINT64_MAX;
	serial->interrupt = interrupt;
}

void serial_finish(struct serial *serial)
{
	pthread_mutex_destroy(&serial->output);
	pthread_mutex_destroy(&serial->lock);
}

void serial_bound(struct serial *serial, uint64_t bytes)
{
	serial->room = bytes;
}

void serial_connect(struct serial *serial, void (*raise)(void *context), void *context)
{
	serial->raise = raise;
	serial->context = context;
}

/* True when the byte can be written without waiting; false: drop it. */
static bool wait_for_room(const struct serial *serial)
{
	struct pollfd fds[] = {
		{.fd = serial->out, .events = POLLOUT},
		{.fd = serial->interrupt, .events = POLLIN},
	};
	int r;

	do
		r = poll(fds, 2, -1);
	while (r < 0 && errno == EINTR);
	return r > 0 && fds[0].revents & POLLOUT;
}

/* Called without the lock: it may take long, and input must not wait for it. */
static bool transmit(const struct serial *serial, uint8_t byte)
{
	ssize_t n = -1;

	while (n < 0 && wait_for_room(serial)) {
		n = write(serial->out, &byte, 1);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			break;
	}
	return n == 1;
}

static void flush_fifo(struct serial *serial)
{
	serial->fifo_start = 0;
	serial->fifo_count = 0;
}

static uint8_t receive(struct serial *serial)
{
	uint8_t byte;

	if (serial->fifo_count == 0)
		return 0;
	byte = serial->fifo[serial->fifo_start];
	serial->fifo_start = (serial->fifo_start + 1) % SERIAL_FIFO;
	serial->fifo_count--;
	return byte;
}

static size_t put_fifo(struct serial *serial, const uint8_t *data, size_t length)
{
	size_t n = 0;

	for (; n < length && serial->fifo_count < SERIAL_FIFO; n++) {
		serial->fifo[(serial->fifo_start + serial->fifo_count) % SERIAL_FIFO] = data[n];
		serial->fifo_count++;
	}
	return n;
}

/* The most urgent reason to interrupt. */
static uint8_t interrupt_reason(const struct serial *serial)
{
	if (serial->interrupt_enable & UART_IER_RDI && serial->fifo_count > 0)
		return UART_IIR_RDI;
	if (serial->interrupt_enable & UART_IER_THRI && serial->empty_pending)
		return UART_IIR_THRI;
	return UART_IIR_NO_INT;
}

/* After whatever may have changed it. */
static void update_line(struct serial *serial)
{
	bool through = (serial->modem_control & (UART_MCR_OUT2 | UART_MCR_LOOP)) == UART_MCR_OUT2;
	bool line = through && interrupt_reason(serial) != UART_IIR_NO_INT;

	if (line && !serial->line && serial->raise)
		serial->raise(serial->context);
	serial->line = line;
}

/* Telling that the transmitter is empty takes that reason away. */
static uint8_t interrupt_identification(struct serial *serial)
{
	uint8_t fifo = serial->fifo_control & UART_FCR_ENABLE_FIFO ? IIR_FIFO_ENABLED : 0;
	uint8_t reason = interrupt_reason(serial);

	if (reason == UART_IIR_THRI)
		serial->empty_pending = false;
	return fifo | reason;
}

static void write_interrupt_enable(struct serial *serial, uint8_t value)
{
	/* The transmitter is always empty: enabling its interrupt is reason enough (and Linux tests for
	 * that). */
	if (value & ~serial->interrupt_enable & UART_IER_THRI)
		serial->empty_pending = true;
	serial->interrupt_enable = value & INTERRUPTS;
}

/* In loop-back the outputs of the modem control register stand at the inputs. */
static uint8_t modem_status(const struct serial *serial)
{
	uint8_t control = serial->modem_control, status = 0;

	if (!(control & UART_MCR_LOOP))
		return UART_MSR_DCD | UART_MSR_DSR | UART_MSR_CTS;
	if (control & UART_MCR_DTR)
		status |= UART_MSR_DSR;
	if (control & UART_MCR_RTS)
		status |= UART_MSR_CTS;
	if (control & UART_MCR_OUT1)
		status |= UART_MSR_RI;
	if (control & UART_MCR_OUT2)
		status |= UART_MSR_DCD;
	return status;
}

static uint8_t read_register(struct serial *serial, uint64_t offset)
{
	bool divisor = serial->line_control & UART_LCR_DLAB;

	switch (offset) {
	case UART_RX:
		return divisor ? serial->divisor_low : receive(serial);
	case UART_IER:
		return divisor ? serial->divisor_high : serial->interrupt_enable;
	case UART_IIR:
		return interrupt_identification(serial);
	case UART_LCR:
		return serial->line_control;
	case UART_MCR:
		return serial->modem_control;
	case UART_LSR:
		return UART_LSR_TEMT | UART_LSR_THRE | (serial->fifo_count > 0 ? UART_LSR_DR : 0);
	case UART_MSR:
		return modem_status(serial);
	default:
		return serial->scratch;
	}
}

static void write_fifo_control(struct serial *serial, uint8_t value)
{
	if (value & UART_FCR_CLEAR_RCVR)
		flush_fifo(serial);
	serial->fifo_control = value;
}

/* True when the byte is to be transmitted. */
static bool write_register(struct serial *serial, uint64_t offset, uint8_t value)
{
	bool divisor = serial->line_control & UART_LCR_DLAB;

	switch (offset) {
	case UART_TX:
		if (divisor) {
			serial->divisor_low = value;
			break;
		}
		serial->empty_pending = !!(serial->modem_control & UART_MCR_LOOP);
		if (!serial->empty_pending)
			return true;
		put_fifo(serial, &value, 1);
		break;
	case UART_IER:
		if (divisor)
			serial->divisor_high = value;
		else
			write_interrupt_enable(serial, value);
		break;
	case UART_FCR:
		write_fifo_control(serial, value);
		break;
	case UART_LCR:
		serial->line_control = value;
		break;
	case UART_MCR:
		serial->modem_control = value & (MODEM_LOOP_MASK | UART_MCR_LOOP);
		break;
	case UART_SCR:
		serial->scratch = value;
		break;
	}
	return false;
}

void serial_read(struct serial *serial, uint64_t offset, void *data, uint32_t length)
{
	uint8_t value;

	memset(data, 0xff, length);
	if (length != 1)
		return;
	pthread_mutex_lock(&serial->lock);
	value = read_register(serial, offset);
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
	memcpy(data, &value, 1);
}

void serial_write(struct serial *serial, uint64_t offset, const void *data, uint32_t length)
{
	uint8_t value;
	bool send, sent;

	if (length != 1)
		return;
	memcpy(&value, data, 1);
	pthread_mutex_lock(&serial->lock);
	send = write_register(serial, offset, value);
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
	if (!send)
		return;
	pthread_mutex_lock(&serial->output);
	sent = serial->room > 0 && transmit(serial, value);
	serial->room -= sent;
	pthread_mutex_unlock(&serial->output);
	pthread_mutex_lock(&serial->lock);
	serial->written += sent;
	serial->dropped += !sent;
	serial->empty_pending = true;
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
}

size_t serial_input(struct serial *serial, const uint8_t *data, size_t length)
{
	size_t n;

	pthread_mutex_lock(&serial->lock);
	n = put_fifo(serial, data, length);
	update_line(serial);
	pthread_mutex_unlock(&serial->lock);
	return n;
}

void serial_save(struct serial *serial, struct state_writer *state)
{
	pthread_mutex_lock(&serial->lock);
	state_put_u8(state, serial->divisor_low);
	state_put_u8(state, serial->divisor_high);
	state_put_u8(state, serial->interrupt_enable);
	state_put_u8(state, serial->fifo_control);
	state_put_u8(state, serial->line_control);
	state_put_u8(state, serial->modem_control);
	state_put_u8(state, serial->scratch);
	state_put_u32(state, serial->fifo_count);
	for (unsigned i = 0; i < serial->fifo_count; i++)
		state_put_u8(state, serial->fifo[(serial->fifo_start + i) % SERIAL_FIFO]);
	pthread_mutex_unlock(&serial->lock);
}

void serial_load(struct serial *serial, struct state_reader *state)
{
	pthread_mutex_lock(&serial->lock);
	serial->divisor_low = state_get_u8(state);
	serial->divisor_high = state_get_u8(state);
	serial->interrupt_enable = state_get_u8(state);
	serial->fifo_control = state_get_u8(state);
	serial->line_control = state_get_u8(state);
	serial->modem_control = state_get_u8(state);
	serial->scratch = state_get_u8(state);
	flush_fifo(serial);
	serial->fifo_count = state_get_count(state, SERIAL_FIFO);
	state_get_bytes(state, serial->fifo, serial->fifo_count);
	if ((serial->interrupt_enable & ~INTERRUPTS) ||
		(serial->modem_control & ~(MODEM_LOOP_MASK | UART_MCR_LOOP)))
		state_refuse(state);
	serial->empty_pending = true;
	serial->line = false;
	if (!state->error)
		update_line(serial);
	pthread_mutex_unlock(&serial->lock);
}
