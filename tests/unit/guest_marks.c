/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks of a traced boot: one byte each to one port, and nothing at all without the word. Here nobody may use
 * ports: the instruction faults, and the handler notes what it would have written.
 */
#include "tests/support/unit.h"

#include "guest-init/marks.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { OUT_DX_AL = 0xee, WRITES_MAX = 8 };

static struct {
	unsigned ports[WRITES_MAX], values[WRITES_MAX];
	volatile unsigned writes;
	unsigned asked; /* for how many ports, by now */
	int answer;	/* of ioperm */
} machine;

int __wrap_ioperm(unsigned long from, unsigned long count, int on);
int __wrap_ioperm(unsigned long from, unsigned long count, int on)
{
	assert_int_equal(from, TRACE_MARKS_PORT);
	assert_int_equal(count, 1);
	machine.asked += on ? 1 : -1;
	errno = -machine.answer;
	return machine.answer ? -1 : 0;
}

static void note_write(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)info;
	if (*(const uint8_t *)registers[REG_RIP] != OUT_DX_AL || machine.writes == WRITES_MAX) {
		(void)sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
		return;
	}
	machine.ports[machine.writes] = (unsigned)registers[REG_RDX] & 0xffff;
	machine.values[machine.writes++] = (unsigned)registers[REG_RAX] & 0xff;
	registers[REG_RIP]++;
}

static int set_up(void **state)
{
	(void)state;
	memset(&machine, 0, sizeof(machine));
	return unsetenv(TRACE_MARKS_WORD);
}

static void without_the_word_nothing_is_done(void **state)
{
	struct marks marks;

	(void)state;
	machine.answer = -EPERM;
	marks_open(&marks);
	marks_set(&marks, TRACE_MARK_INIT);
	marks_close(&marks);
	assert_false(marks.on);
	assert_int_equal(machine.asked, 0);
	assert_int_equal(machine.writes, 0);
}

static void each_mark_is_one_byte(void **state)
{
	struct sigaction action = {.sa_sigaction = note_write, .sa_flags = SA_SIGINFO};
	struct marks marks;

	(void)state;
	/* In place of cmocka's. */
	assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
	setenv(TRACE_MARKS_WORD, "1", 1);
	marks_open(&marks);
	assert_int_equal(machine.asked, 1);
	/* It is no command's. */
	assert_null(getenv(TRACE_MARKS_WORD));
	marks_set(&marks, TRACE_MARK_INIT);
	marks_set(&marks, TRACE_MARK_AGENT);
	assert_int_equal(machine.writes, 2);
	assert_int_equal(machine.ports[0], TRACE_MARKS_PORT);
	assert_int_equal(machine.values[0], TRACE_MARK_INIT);
	assert_int_equal(machine.ports[1], TRACE_MARKS_PORT);
	assert_int_equal(machine.values[1], TRACE_MARK_AGENT);
	marks_close(&marks);
	assert_int_equal(machine.asked, 0);
	marks_set(&marks, TRACE_MARK_ROOT);
	assert_int_equal(machine.writes, 2);
}

static void a_kernel_that_refuses_the_port_gets_none(void **state)
{
	struct marks marks;

	(void)state;
	machine.answer = -ENOSYS;
	setenv(TRACE_MARKS_WORD, "1", 1);
	marks_open(&marks);
	marks_set(&marks, TRACE_MARK_INIT);
	marks_close(&marks);
	assert_int_equal(machine.writes, 0);
	assert_null(getenv(TRACE_MARKS_WORD));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(without_the_word_nothing_is_done, set_up),
		cmocka_unit_test_setup(each_mark_is_one_byte, set_up),
		cmocka_unit_test_setup(a_kernel_that_refuses_the_port_gets_none, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
