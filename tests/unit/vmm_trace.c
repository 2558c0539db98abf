/* SPDX-License-Identifier: Apache-2.0 */
/* The trace: what is kept, what is counted, and its bounds. */
#include "tests/unit/vmm_trace_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct trace_event *last_event(void)
{
	assert_true(trace_active->count > 0);
	return &trace_active->events[trace_active->count - 1];
}

static const struct trace_row *find_row(uint8_t reason, uint64_t address)
{
	for (unsigned i = 0; i < TRACE_ROW_SLOTS; i++)
		if (trace_active->rows[i].used && trace_active->rows[i].key.reason == reason &&
			trace_active->rows[i].key.address == address)
			return &trace_active->rows[i];
	fail_msg("no row for reason %u at 0x%llx", reason, (unsigned long long)address);
	return NULL;
}

static void without_a_trace_no_clock_is_read(void **state)
{
	uint64_t before;

	(void)state;
	trace_stop();
	before = clock_ns;
	assert_int_equal(trace_begin(), 0);
	trace_phase(trace_begin(), "phase");
	trace_ioctl(trace_begin(), KVM_CREATE_VM, 0, 0);
	trace_notify(trace_begin(), &page, 0);
	trace_entry(0, &page.run);
	trace_return(0, &page.run, 0);
	trace_stand(0, &page.run);
	assert_int_equal(clock_ns, before);
}

static void an_exit_has_its_handling_and_the_guest_before_it(void **state)
{
	const struct trace_event *event;

	(void)state;
	trace_entry(0, &page.run);
	assert_string_equal(last_event()->mark.name, "kernel");
	clock_ns += 40000;
	return_mmio(0xd0000070, true, 3);
	clock_ns += 7000;
	trace_entry(0, &page.run);
	event = last_event();
	assert_int_equal(event->kind, TRACE_EXIT);
	assert_int_equal(event->thread, 1);
	assert_int_equal(event->exit.guest_ns, 41000);
	assert_int_equal(event->took, 8000);
	assert_int_equal(event->exit.reason, KVM_EXIT_MMIO);
	assert_int_equal(event->exit.space, TRACE_MMIO);
	assert_int_equal(event->exit.address, 0xd0000070);
	assert_int_equal(event->exit.size, 4);
	assert_int_equal(event->exit.value, 3);
	assert_true(event->exit.write);
	assert_int_equal(find_row(KVM_EXIT_MMIO, 0xd0000070)->total.count, 1);
	assert_int_equal(find_row(KVM_EXIT_MMIO, 0xd0000070)->total.guest_ns, 41000);
	assert_int_equal(find_row(KVM_EXIT_MMIO, 0xd0000070)->total.handle_ns, 8000);
}

/* The answer is there only when it has been handled. */
static void a_read_shows_what_it_got(void **state)
{
	uint32_t answer = 0x74726976;

	(void)state;
	trace_entry(0, &page.run);
	return_mmio(0xd0000000, false, 0);
	memcpy(page.run.mmio.data, &answer, sizeof(answer));
	trace_entry(0, &page.run);
	assert_int_equal(last_event()->exit.value, answer);
	assert_false(last_event()->exit.write);
	return_port(0x64, KVM_EXIT_IO_IN, 0, 1);
	page.data[0] = 0x5a;
	trace_stand(0, &page.run);
	assert_int_equal(last_event()->exit.value, 0x5a);
	assert_int_equal(last_event()->exit.space, TRACE_PORTS);
}

static void a_string_instruction_is_one_exit_of_several_items(void **state)
{
	(void)state;
	trace_entry(0, &page.run);
	return_port(0x3f8, KVM_EXIT_IO_OUT, 'a', 12);
	trace_entry(0, &page.run);
	assert_int_equal(last_event()->exit.items, 12);
	assert_int_equal(last_event()->exit.value, 'a');
	assert_int_equal(find_row(KVM_EXIT_IO, 0x3f8)->total.count, 1);
	assert_int_equal(find_row(KVM_EXIT_IO, 0x3f8)->total.items, 12);
}

static void reads_and_writes_of_an_address_are_two_rows(void **state)
{
	(void)state;
	trace_entry(0, &page.run);
	for (unsigned i = 0; i < 5; i++) {
		return_mmio(0xfec00010, i % 2, 0);
		trace_entry(0, &page.run);
	}
	assert_int_equal(trace_active->row_count, 2);
	for (unsigned i = 0; i < TRACE_ROW_SLOTS; i++)
		if (trace_active->rows[i].used)
			assert_int_equal(
				trace_active->rows[i].total.count, trace_active->rows[i].key.write ? 2 : 3);
}

/* Interrupted: whatever the page says is of the exit before. */
static void an_interrupted_run_has_no_address(void **state)
{
	(void)state;
	trace_entry(0, &page.run);
	page.run.exit_reason = KVM_EXIT_MMIO;
	page.run.mmio.phys_addr = 0x1234;
	trace_return(0, &page.run, -EINTR);
	trace_stand(0, &page.run);
	assert_int_equal(last_event()->exit.reason, KVM_EXIT_INTR);
	assert_int_equal(last_event()->exit.space, TRACE_NO_SPACE);
	assert_int_equal(find_row(KVM_EXIT_INTR, 0)->total.count, 1);
	/* It stood: nothing is pending. */
	trace_entry(0, &page.run);
	assert_int_equal(trace_active->count, 2);
}

static void events_over_the_bound_are_counted(void **state)
{
	(void)state;
	trace_stop();
	start(4);
	trace_entry(0, &page.run);
	for (unsigned i = 0; i < 10; i++) {
		return_mmio(0xfec00000, true, i);
		trace_entry(0, &page.run);
	}
	assert_int_equal(trace_active->count, 4);
	assert_int_equal(trace_active->dropped, 7);
	assert_int_equal(last_event()->exit.value, 2);
	assert_int_equal(find_row(KVM_EXIT_MMIO, 0xfec00000)->total.count, 10);
}

static void rows_over_the_bound_are_one_a_reason(void **state)
{
	enum { MORE = 100 };
	uint64_t sum = 0;

	(void)state;
	trace_entry(0, &page.run);
	for (unsigned i = 0; i < TRACE_ROWS_MAX + MORE; i++) {
		return_mmio(0x1000 + i * 4, true, 0);
		trace_entry(0, &page.run);
	}
	/* One that has a row keeps it. */
	return_mmio(0x1000, true, 0);
	trace_entry(0, &page.run);
	return_port(0x80, KVM_EXIT_IO_OUT, 0, 1);
	trace_entry(0, &page.run);
	assert_int_equal(trace_active->row_count, TRACE_ROWS_MAX);
	for (unsigned i = 0; i < TRACE_ROW_SLOTS; i++)
		sum += trace_active->rows[i].total.count;
	assert_int_equal(sum, TRACE_ROWS_MAX + 1);
	assert_int_equal(trace_active->others[KVM_EXIT_MMIO].total.count, MORE);
	assert_int_equal(trace_active->others[KVM_EXIT_IO].total.count, 1);
	assert_true(trace_active->others[KVM_EXIT_MMIO].other);
}

static void marks_over_the_bound_are_counted(void **state)
{
	(void)state;
	for (unsigned i = 0; i < TRACE_MARKS_MAX + 3; i++)
		trace_add_guest_mark(trace_active, (uint8_t)i);
	assert_int_equal(trace_active->mark_count, TRACE_MARKS_MAX);
	assert_int_equal(trace_active->marks_dropped, 3);
	assert_int_equal(trace_active->marks[TRACE_MARKS_MAX - 1].value, TRACE_MARKS_MAX - 1);
	/* As events they are bounded with the others. */
	assert_int_equal(trace_active->count, TRACE_MARKS_MAX + 3);
}

static void the_hello_parts_boot_from_the_rest(void **state)
{
	(void)state;
	trace_entry(0, &page.run);
	for (unsigned i = 0; i < 3; i++) {
		if (i == 1)
			trace_add_hello(trace_active);
		return_mmio(0xfec00000, true, 0);
		trace_ioctl(trace_begin(), KVM_SET_GSI_ROUTING, 0, 0);
		trace_notify(trace_begin(), &page, 1);
		trace_add_irq(trace_active, 2, 33);
		trace_entry(0, &page.run);
	}
	/* Only the first. */
	trace_add_hello(trace_active);
	assert_int_equal(trace_active->mark_count, 2);
	assert_int_equal(find_row(KVM_EXIT_MMIO, 0xfec00000)->boot.count, 1);
	assert_int_equal(find_row(KVM_EXIT_MMIO, 0xfec00000)->total.count, 3);
	assert_int_equal(trace_active->ioctls[0].boot.count, 1);
	assert_int_equal(trace_active->ioctls[0].total.count, 3);
	assert_int_equal(trace_active->queues[0].boot.count, 1);
	assert_int_equal(trace_active->queues[0].total.count, 3);
	assert_int_equal(trace_active->pins[2].boot, 1);
	assert_int_equal(trace_active->pins[2].total, 3);
}

static void calls_before_the_guest_are_told_from_those_after(void **state)
{
	(void)state;
	trace_ioctl(trace_begin(), KVM_CREATE_VM, 0, 5);
	trace_ioctl(trace_begin(), KVM_SET_GSI_ROUTING, 0, -EINVAL);
	assert_int_equal(last_event()->ioctl.result, -EINVAL);
	trace_entry(0, &page.run);
	trace_ioctl(trace_begin(), KVM_SET_GSI_ROUTING, 0, 0);
	/* The vCPU's thread by now. */
	assert_int_equal(last_event()->thread, 1);
	assert_int_equal(trace_active->ioctls[0].before_run, 1);
	assert_int_equal(trace_active->ioctls[1].before_run, 1);
	assert_int_equal(trace_active->ioctls[1].total.count, 2);
}

static void a_closed_trace_changes_no_more(void **state)
{
	struct trace *before = malloc(sizeof(*before));

	(void)state;
	assert_non_null(before);
	trace_entry(0, &page.run);
	return_mmio(0xfec00000, true, 0);
	assert_true(trace_close(trace_active));
	assert_false(trace_close(trace_active));
	memcpy(before, trace_active, sizeof(*before));
	trace_entry(0, &page.run);
	return_port(0x80, KVM_EXIT_IO_OUT, 0, 1);
	trace_stand(0, &page.run);
	trace_phase(trace_begin(), "late");
	trace_ioctl(trace_begin(), KVM_CREATE_VM, 0, 0);
	trace_notify(trace_begin(), &page, 0);
	trace_add_irq(trace_active, 0, 0);
	trace_add_mark(trace_active, "late");
	trace_add_guest_mark(trace_active, 1);
	trace_add_hello(trace_active);
	trace_add_byte(trace_active, '\n');
	assert_int_equal(trace_active->count, before->count);
	assert_int_equal(trace_active->dropped, 0);
	assert_memory_equal(trace_active->rows, before->rows, sizeof(before->rows));
	assert_int_equal(trace_active->mark_count, before->mark_count);
	assert_int_equal(trace_active->ioctl_count, 0);
	free(before);
}

/* --- initcalls --- */

static const struct {
	const char *line, *name;
	int returned;
	uint64_t usecs;
} lines[] = {
	{"initcall a_init+0x0/0x10 returned 0 after 12 usecs", "a_init+0x0/0x10", 0, 12},
	{"[    0.010000] initcall 0xffffffff81a2b3c4 returned -19 after 0 usecs, irqs_disabled() 0",
		"0xffffffff81a2b3c4", -19, 0},
	{"initcall a b returned 1 after 18446744073709551615 usecs", "a b", 1, UINT64_MAX},
	{"initcall returned 0 after 12 usecs", NULL, 0, 0},
	{"initcall  returned 0 after 12 usecs", NULL, 0, 0},
	{"initcall a returned 0 after 12", NULL, 0, 0},
	{"initcall a returned x after 12 usecs", NULL, 0, 0},
	{"initcall a returned 0 after -1 usecs", NULL, 0, 0},
	{"initcall a returned 0 after usecs", NULL, 0, 0},
	{"initcall a returned 99999999999 after 12 usecs", NULL, 0, 0},
	{"initcall a returned 0 after 18446744073709551616 usecs", NULL, 0, 0},
	{"calling  a_init+0x0/0x10 @ 1", NULL, 0, 0},
	{"", NULL, 0, 0},
};

static void lines_of_initcalls_are_found(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		const char *name;
		size_t length;
		int returned;
		uint64_t usecs;

		assert_int_equal(trace_parse_initcall(lines[i].line, &name, &length, &returned, &usecs),
			lines[i].name != NULL);
		if (!lines[i].name)
			continue;
		assert_int_equal(length, strlen(lines[i].name));
		assert_memory_equal(name, lines[i].name, length);
		assert_int_equal(returned, lines[i].returned);
		assert_int_equal(usecs, lines[i].usecs);
	}
}

static void an_initcall_ends_when_its_line_does(void **state)
{
	(void)state;
	clock_ns += 100000;
	send("noise\r\n[ 0.1] initcall x returned 0 after 20 usecs\r\n");
	assert_int_equal(trace_active->count, 1);
	assert_int_equal(last_event()->took, 20000);
	assert_int_equal(last_event()->at, clock_ns - START - 20000);
	/* Longer than the machine has run: the guest's own idea. */
	send("initcall y returned 0 after 18446744073709551615 usecs\n");
	assert_int_equal(last_event()->at, 0);
	assert_int_equal(last_event()->took, clock_ns - START);
}

static void a_long_line_is_cut_and_a_byte_of_zero_left_out(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2 * TRACE_LINE_MAX; i++)
		send("x");
	assert_int_equal(trace_active->line_length, TRACE_LINE_MAX - 1);
	send(" initcall a returned 0 after 1 usecs\n");
	assert_int_equal(trace_active->count, 0);
	send("init");
	trace_add_byte(trace_active, 0);
	send("call b returned 0 after 1 usecs\n");
	assert_int_equal(trace_active->count, 1);
	assert_string_equal(trace_active->strings + last_event()->initcall.name, "b");
}

static void names_over_the_bound_are_counted(void **state)
{
	enum { NAME = 199, ROOM = TRACE_STRINGS_MAX / (NAME + 1) };
	char line[TRACE_LINE_MAX];

	(void)state;
	snprintf(line, sizeof(line), "initcall %0*d returned 0 after 1 usecs\n", NAME, 1);
	for (unsigned i = 0; i < ROOM + 5; i++)
		send(line);
	assert_int_equal(trace_active->count, ROOM);
	assert_int_equal(trace_active->dropped, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_a_trace_no_clock_is_read),
		TEST(an_exit_has_its_handling_and_the_guest_before_it),
		TEST(a_read_shows_what_it_got),
		TEST(a_string_instruction_is_one_exit_of_several_items),
		TEST(reads_and_writes_of_an_address_are_two_rows),
		TEST(an_interrupted_run_has_no_address),
		TEST(events_over_the_bound_are_counted),
		TEST(rows_over_the_bound_are_one_a_reason),
		TEST(marks_over_the_bound_are_counted),
		TEST(the_hello_parts_boot_from_the_rest),
		TEST(calls_before_the_guest_are_told_from_those_after),
		TEST(a_closed_trace_changes_no_more),
		TEST(lines_of_initcalls_are_found),
		TEST(an_initcall_ends_when_its_line_does),
		TEST(a_long_line_is_cut_and_a_byte_of_zero_left_out),
		TEST(names_over_the_bound_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
