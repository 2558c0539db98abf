/* SPDX-License-Identifier: Apache-2.0 */
/* The serial port: what a driver looks for, bytes both ways, and an output that nobody reads. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "vmm/serial.h"
#include "vmm/state.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/serial_reg.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct line {
	struct serial serial;
	unsigned rises; /* of the interrupt line */
	int reader, writer, interrupt;
};

static void count_rise(void *context)
{
	struct line *line = context;

	line->rises++;
}

static int set_up(void **state)
{
	static struct line line;
	int pair[2];

	line.rises = 0;
	line.interrupt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pipe2(pair, O_CLOEXEC) < 0 || line.interrupt < 0)
		return -1;
	line.reader = pair[0];
	line.writer = pair[1];
	serial_init(&line.serial, line.writer, line.interrupt);
	serial_connect(&line.serial, count_rise, &line);
	*state = &line;
	return 0;
}

static int tear_down(void **state)
{
	struct line *line = *state;

	serial_finish(&line->serial);
	fd_close(&line->reader);
	fd_close(&line->writer);
	fd_close(&line->interrupt);
	return 0;
}

static uint8_t in(struct line *line, uint64_t port)
{
	uint8_t value = 0xaa;

	serial_read(&line->serial, port, &value, 1);
	return value;
}

static void out(struct line *line, uint64_t port, uint8_t value)
{
	serial_write(&line->serial, port, &value, 1);
}

static void a_driver_finds_a_16550a(void **state)
{
	struct line *line = *state;

	out(line, UART_IER, 0);
	assert_int_equal(in(line, UART_IER), 0);
	out(line, UART_IER, 0xff);
	assert_int_equal(in(line, UART_IER), 0x0f);
	out(line, UART_IER, 0);
	out(line, UART_FCR, UART_FCR_ENABLE_FIFO);
	assert_int_equal(in(line, UART_IIR), 0xc0 | UART_IIR_NO_INT);
	out(line, UART_FCR, 0);
	assert_int_equal(in(line, UART_IIR), UART_IIR_NO_INT);
	out(line, UART_SCR, 0x5a);
	assert_int_equal(in(line, UART_SCR), 0x5a);
	assert_int_equal(in(line, UART_LSR), UART_LSR_TEMT | UART_LSR_THRE);
	assert_int_equal(in(line, UART_MSR), UART_MSR_DCD | UART_MSR_DSR | UART_MSR_CTS);
}

static void loop_back_works(void **state)
{
	struct line *line = *state;

	out(line, UART_MCR, UART_MCR_LOOP | UART_MCR_OUT2 | UART_MCR_RTS);
	assert_int_equal(in(line, UART_MSR), UART_MSR_DCD | UART_MSR_CTS);
	out(line, UART_TX, 'x');
	assert_int_equal(in(line, UART_RX), 'x');
	out(line, UART_MCR, UART_MCR_LOOP | UART_MCR_OUT1 | UART_MCR_DTR);
	assert_int_equal(in(line, UART_MSR), UART_MSR_RI | UART_MSR_DSR);
	assert_int_equal(line->serial.written, 0);
}

static void the_divisor_is_no_data(void **state)
{
	struct line *line = *state;

	out(line, UART_LCR, UART_LCR_DLAB | 3);
	out(line, UART_DLL, 1);
	out(line, UART_DLM, 2);
	assert_int_equal(in(line, UART_DLL), 1);
	assert_int_equal(in(line, UART_DLM), 2);
	out(line, UART_LCR, 3);
	assert_int_equal(in(line, UART_LCR), 3);
	assert_int_equal(in(line, UART_IER), 0);
	assert_int_equal(in(line, UART_RX), 0);
	assert_int_equal(line->serial.written, 0);
}

static void bytes_go_out_at_once(void **state)
{
	struct line *line = *state;
	char text[4] = "";

	for (const char *byte = "abc"; *byte; byte++)
		out(line, UART_TX, (uint8_t)*byte);
	assert_int_equal(read(line->reader, text, sizeof(text)), 3);
	assert_string_equal(text, "abc");
	assert_int_equal(line->serial.written, 3);
	assert_int_equal(line->serial.dropped, 0);
}

/* What comes after the bound is dropped and counted, and the guest is told that it has gone. */
static void output_ends_at_its_bound(void **state)
{
	enum { BOUND_LIMIT_S = 20 };
	static const char page[4096];
	struct line *line = *state;
	char text[8] = "";

	serial_bound(&line->serial, 3);
	for (const char *byte = "abcde"; *byte; byte++)
		out(line, UART_TX, (uint8_t)*byte);
	assert_int_equal(read(line->reader, text, sizeof(text)), 3);
	assert_string_equal(text, "abc");
	assert_int_equal(line->serial.written, 3);
	assert_int_equal(line->serial.dropped, 2);
	assert_true(in(line, UART_LSR) & UART_LSR_THRE);
	/* Nobody reads from here on, and yet the guest is not held back: nothing would wake it. */
	assert_int_equal(fcntl(line->writer, F_SETPIPE_SZ, sizeof(page)), sizeof(page));
	assert_int_equal(write(line->writer, page, sizeof(page)), sizeof(page));
	alarm(BOUND_LIMIT_S);
	out(line, UART_TX, 'f');
	alarm(0);
	assert_int_equal(line->serial.dropped, 3);
}

static void input_waits_to_a_bound(void **state)
{
	struct line *line = *state;
	uint8_t bytes[SERIAL_FIFO + 5];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(serial_input(&line->serial, bytes, sizeof(bytes)), SERIAL_FIFO);
	assert_true(in(line, UART_LSR) & UART_LSR_DR);
	out(line, UART_IER, UART_IER_RDI);
	assert_int_equal(in(line, UART_IIR), UART_IIR_RDI);
	assert_int_equal(in(line, UART_RX), 0);
	assert_int_equal(in(line, UART_RX), 1);
	assert_int_equal(serial_input(&line->serial, bytes, 3), 2); /* around the end of the ring */
	for (unsigned i = 2; i < SERIAL_FIFO; i++)
		assert_int_equal(in(line, UART_RX), i);
	assert_int_equal(in(line, UART_RX), 0);
	assert_int_equal(in(line, UART_RX), 1);
	assert_false(in(line, UART_LSR) & UART_LSR_DR);
	assert_int_equal(in(line, UART_RX), 0);
	assert_int_equal(in(line, UART_IIR), UART_IIR_NO_INT);
	serial_input(&line->serial, bytes, 3);
	out(line, UART_FCR, UART_FCR_CLEAR_RCVR);
	assert_false(in(line, UART_LSR) & UART_LSR_DR);
}

/* As Linux's serial8250_do_startup tests a port: enabled again, the reason is there again. */
static void the_empty_transmitter_is_told_once(void **state)
{
	struct line *line = *state;
	char byte;

	out(line, UART_MCR, UART_MCR_OUT2);
	assert_int_equal(line->rises, 0);
	for (unsigned i = 1; i <= 2; i++) {
		out(line, UART_IER, UART_IER_THRI);
		assert_int_equal(line->rises, i);
		assert_int_equal(in(line, UART_IIR), UART_IIR_THRI);
		assert_int_equal(in(line, UART_IIR), UART_IIR_NO_INT);
		out(line, UART_IER, UART_IER_THRI); /* it was enabled: no new reason */
		assert_int_equal(in(line, UART_IIR), UART_IIR_NO_INT);
		out(line, UART_IER, 0);
	}
	out(line, UART_TX, 'x');
	assert_int_equal(line->rises, 2); /* not enabled */
	out(line, UART_IER, UART_IER_THRI);
	assert_int_equal(line->rises, 3);
	out(line, UART_TX, 'y'); /* takes the reason away, and brings it back */
	assert_int_equal(line->rises, 4);
	assert_int_equal(in(line, UART_IIR), UART_IIR_THRI);
	out(line, UART_TX, 'z');
	assert_int_equal(line->rises, 5);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(read(line->reader, &byte, 1), 1);
}

static void what_is_received_interrupts_until_it_is_read(void **state)
{
	struct line *line = *state;
	const uint8_t bytes[] = {'a', 'b'};

	out(line, UART_MCR, UART_MCR_OUT2);
	serial_input(&line->serial, bytes, 1);
	assert_int_equal(line->rises, 0); /* not enabled */
	out(line, UART_IER, UART_IER_RDI | UART_IER_THRI);
	assert_int_equal(line->rises, 1);
	assert_int_equal(in(line, UART_IIR), UART_IIR_RDI); /* the more urgent one, which stays */
	assert_int_equal(in(line, UART_IIR), UART_IIR_RDI);
	serial_input(&line->serial, bytes + 1, 1);
	assert_int_equal(line->rises, 1); /* high already */
	assert_int_equal(in(line, UART_RX), 'a');
	assert_int_equal(in(line, UART_IIR), UART_IIR_RDI);
	assert_int_equal(in(line, UART_RX), 'b');
	assert_int_equal(in(line, UART_IIR), UART_IIR_THRI);
	assert_int_equal(in(line, UART_IIR), UART_IIR_NO_INT);
	assert_int_equal(line->rises, 1);
	serial_input(&line->serial, bytes, 1);
	assert_int_equal(line->rises, 2);
	out(line, UART_FCR, UART_FCR_CLEAR_RCVR);
	assert_int_equal(in(line, UART_IIR), UART_IIR_NO_INT);
}

/* As on a PC; in loop-back the output is not there. */
static void out2_lets_the_interrupt_through(void **state)
{
	struct line *line = *state;
	const uint8_t byte = 'a';

	out(line, UART_IER, 0x0f);
	serial_input(&line->serial, &byte, 1);
	assert_int_equal(in(line, UART_IIR), UART_IIR_RDI);
	out(line, UART_MCR, UART_MCR_OUT1 | UART_MCR_RTS | UART_MCR_DTR);
	out(line, UART_MCR, UART_MCR_OUT2 | UART_MCR_LOOP);
	assert_int_equal(line->rises, 0);
	out(line, UART_MCR, UART_MCR_OUT2);
	assert_int_equal(line->rises, 1);
	out(line, UART_MCR, UART_MCR_LOOP);
	out(line, UART_MCR, UART_MCR_OUT2);
	assert_int_equal(line->rises, 2);
}

static void other_widths_are_nothing(void **state)
{
	struct line *line = *state;
	uint8_t data[8];

	for (uint64_t port = 0; port < 8; port++)
		for (uint32_t length = 2; length <= 8; length *= 2) {
			memset(data, 0, sizeof(data));
			serial_write(&line->serial, port, data, length);
			serial_read(&line->serial, port, data, length);
			for (uint32_t i = 0; i < length; i++)
				assert_int_equal(data[i], 0xff);
		}
	assert_int_equal(line->serial.written, 0);
}

static void a_reader_that_does_not_read_holds_nobody_at_the_end(void **state)
{
	struct line *line = *state;
	static const char page[4096];

	assert_int_equal(fcntl(line->writer, F_SETPIPE_SZ, sizeof(page)), sizeof(page));
	assert_int_equal(write(line->writer, page, sizeof(page)), sizeof(page));
	/* Without this the next byte would wait for ever. */
	assert_int_equal(eventfd_write(line->interrupt, 1), 0);
	out(line, UART_TX, 'y');
	assert_int_equal(line->serial.dropped, 1);
	assert_int_equal(line->serial.written, 0);
}

enum { WRITERS = 8, BYTES_EACH = 20, BYTES_READ = 10, LIMIT_S = 20 };

static void *write_bytes(void *argument)
{
	for (unsigned i = 0; i < BYTES_EACH; i++)
		out(argument, UART_TX, 'x');
	return NULL;
}

/* Room for one byte is seen by all of them, and only one may go on: the others would wait where nothing wakes
 * them. (Without O_DIRECT a pipe takes 4096 bytes where it takes one.) */
static void several_cpus_write_and_none_is_held_at_the_end(void **state)
{
	struct line *line = *state;
	pthread_t threads[WRITERS];
	char byte;

	assert_int_equal(fcntl(line->writer, F_SETPIPE_SZ, 4096), 4096);
	assert_int_equal(fcntl(line->writer, F_SETFL, O_DIRECT), 0);
	alarm(LIMIT_S);
	for (unsigned i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_bytes, line), 0);
	for (unsigned i = 0; i < BYTES_READ; i++)
		assert_int_equal(read(line->reader, &byte, 1), 1);
	assert_int_equal(eventfd_write(line->interrupt, 1), 0);
	for (unsigned i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	alarm(0);
	assert_true(line->serial.written >= BYTES_READ);
	assert_int_equal(line->serial.written + line->serial.dropped, WRITERS * BYTES_EACH);
}

static void a_reader_that_is_gone_costs_only_the_bytes(void **state)
{
	struct line *line = *state;

	signal(SIGPIPE, SIG_IGN);
	fd_close(&line->reader);
	out(line, UART_TX, 'x');
	assert_int_equal(line->serial.dropped, 1);
}

/* --- snapshots --- */

enum { STATE_MAX = 128, REGISTER_BYTES = 7 };

static int load(struct line *line, const uint8_t *bytes, size_t length)
{
	struct state_reader reader;

	serial_finish(&line->serial);
	serial_init(&line->serial, line->writer, line->interrupt);
	serial_connect(&line->serial, count_rise, line);
	state_reader_init(&reader, bytes, length);
	serial_load(&line->serial, &reader);
	return state_reader_finish(&reader);
}

/* Registers of their own values, and a receive buffer that begins in its middle. */
static size_t save(struct line *line, uint8_t bytes[STATE_MAX])
{
	static const uint8_t values[] = {0x03, 0x07, 0x1b, 0x5a};
	static const uint8_t offsets[] = {UART_LCR, UART_IER, UART_MCR, UART_SCR};
	struct state_writer writer;
	uint8_t byte = 0x77;

	for (int i = 0; i < 40; i++)
		serial_input(&line->serial, &byte, 1);
	for (int i = 0; i < 40; i++)
		serial_read(&line->serial, UART_RX, &byte, 1);
	for (uint8_t i = 0; i < SERIAL_FIFO; i++)
		serial_input(&line->serial, &i, 1);
	for (size_t i = 0; i < sizeof(values); i++)
		serial_write(&line->serial, offsets[i], &values[i], 1);
	state_writer_init(&writer, bytes, STATE_MAX);
	serial_save(&line->serial, &writer);
	assert_int_equal(writer.error, 0);
	return writer.length;
}

static void a_snapshot_brings_everything_back(void **state)
{
	struct line *line = *state;
	uint8_t bytes[STATE_MAX], again[STATE_MAX], byte;
	size_t length = save(line, bytes);
	struct state_writer writer;

	assert_int_equal(length, REGISTER_BYTES + 4 + SERIAL_FIFO);
	assert_int_equal(load(line, bytes, length), 0);
	state_writer_init(&writer, again, sizeof(again));
	serial_save(&line->serial, &writer);
	assert_int_equal(writer.length, length);
	assert_memory_equal(bytes, again, length);
	serial_read(&line->serial, UART_SCR, &byte, 1);
	assert_int_equal(byte, 0x5a);
	serial_read(&line->serial, UART_LCR, &byte, 1);
	assert_int_equal(byte, 0x03);
	for (uint8_t i = 0; i < SERIAL_FIFO; i++) {
		serial_read(&line->serial, UART_RX, &byte, 1);
		assert_int_equal(byte, i);
	}
}

/* Whether it had been told is not in there: it is told again, and a driver finds nothing to do. */
static void a_restored_line_that_is_high_rises(void **state)
{
	struct line *line = *state;
	uint8_t bytes[STATE_MAX], byte = 'a';
	struct state_writer writer;

	out(line, UART_MCR, UART_MCR_OUT2);
	for (unsigned enabled = 0; enabled <= UART_IER_THRI; enabled++) {
		out(line, UART_IER, (uint8_t)enabled);
		(void)in(line, UART_IIR);
		state_writer_init(&writer, bytes, STATE_MAX);
		serial_save(&line->serial, &writer);
		line->rises = 0;
		assert_int_equal(load(line, bytes, writer.length), 0);
		assert_int_equal(line->rises, enabled == UART_IER_THRI);
	}
	assert_int_equal(in(line, UART_IIR), UART_IIR_THRI);
	out(line, UART_IER, UART_IER_RDI);
	serial_input(&line->serial, &byte, 1);
	state_writer_init(&writer, bytes, STATE_MAX);
	serial_save(&line->serial, &writer);
	line->rises = 0;
	assert_int_equal(load(line, bytes, writer.length), 0);
	assert_int_equal(line->rises, 1);
	line->rises = 0;
	bytes[2] = 0x10; /* refused: nothing is told */
	assert_int_equal(load(line, bytes, writer.length), -EBADMSG);
	assert_int_equal(line->rises, 0);
}

static void a_snapshot_that_could_not_be_is_refused(void **state)
{
	struct line *line = *state;
	uint8_t bytes[STATE_MAX], changed[STATE_MAX];
	size_t length = save(line, bytes);

	for (size_t cut = 0; cut < length; cut++)
		assert_int_equal(load(line, bytes, cut), -EBADMSG);
	memcpy(changed, bytes, sizeof(bytes));
	changed[2] = 0x10; /* interrupts that do not exist */
	assert_int_equal(load(line, changed, length), -EBADMSG);
	memcpy(changed, bytes, sizeof(bytes));
	changed[5] = 0x20; /* a line that does not exist */
	assert_int_equal(load(line, changed, length), -EBADMSG);
	memcpy(changed, bytes, sizeof(bytes));
	changed[REGISTER_BYTES] = SERIAL_FIFO + 1;
	assert_int_equal(load(line, changed, length), -EBADMSG);
	assert_int_equal(load(line, bytes, length), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_driver_finds_a_16550a, set_up, tear_down),
		cmocka_unit_test_setup_teardown(loop_back_works, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_divisor_is_no_data, set_up, tear_down),
		cmocka_unit_test_setup_teardown(bytes_go_out_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(output_ends_at_its_bound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_snapshot_brings_everything_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_snapshot_that_could_not_be_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_empty_transmitter_is_told_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_is_received_interrupts_until_it_is_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(out2_lets_the_interrupt_through, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_restored_line_that_is_high_rises, set_up, tear_down),
		cmocka_unit_test_setup_teardown(input_waits_to_a_bound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(other_widths_are_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_reader_that_does_not_read_holds_nobody_at_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			several_cpus_write_and_none_is_held_at_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_reader_that_is_gone_costs_only_the_bytes, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
