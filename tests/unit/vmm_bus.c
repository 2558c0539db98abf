/* SPDX-License-Identifier: Apache-2.0 */
/* The bus: who answers an access, what happens where nobody does, and the registers by which a guest ends. */
#include "tests/support/unit.h"

#include "vmm/bus.h"
#include "vmm/ends.h"
#include "vmm/layout.h"
#include <errno.h>
#include <string.h>

/* A device that notes the last access. */
struct probe {
	uint64_t offset;
	uint32_t length;
	uint64_t value;
	unsigned reads, writes;
};

static void probe_read(void *context, uint64_t offset, void *data, uint32_t length)
{
	struct probe *probe = context;

	probe->reads++;
	probe->offset = offset;
	probe->length = length;
	memset(data, 0x5a, length);
}

static void probe_write(void *context, uint64_t offset, const void *data, uint32_t length)
{
	struct probe *probe = context;

	probe->writes++;
	probe->offset = offset;
	probe->length = length;
	probe->value = 0;
	memcpy(&probe->value, data, length);
}

static const struct bus_ops probe_ops = {.read = probe_read, .write = probe_write};
static const struct bus_ops deaf_ops = {0};

static int set_up(void **state)
{
	static struct bus bus;

	bus_init(&bus);
	*state = &bus;
	return 0;
}

static int tear_down(void **state)
{
	bus_finish(*state);
	return 0;
}

static void windows_do_not_overlap(void **state)
{
	struct bus *bus = *state;
	static const struct {
		uint64_t base, size;
		int result;
	} cases[] = {
		{0x1000, 0x100, 0},
		{0x1000, 0x100, -EEXIST},
		{0x10ff, 1, -EEXIST},
		{0x0fff, 2, -EEXIST},
		{0x0f00, 0x1000, -EEXIST},
		{0x1010, 1, -EEXIST},
		{0x1100, 1, 0},
		{0x0fff, 1, 0},
		{0x2000, 0, -EINVAL},
		{UINT64_MAX, 2, -EINVAL},
		{UINT64_MAX, 1, 0},
		{UINT64_MAX - 9, 10, -EEXIST},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(bus_add(bus, cases[i].base, cases[i].size, &probe_ops, NULL, "probe"),
			cases[i].result);
	assert_int_equal(bus->count, 4);
	for (unsigned i = 1; i < bus->count; i++)
		assert_true(bus->windows[i - 1].base < bus->windows[i].base);
}

static void windows_have_a_bound(void **state)
{
	struct bus *bus = *state;

	for (unsigned i = 0; i < BUS_WINDOWS_MAX; i++)
		assert_int_equal(bus_add(bus, i * 16, 16, &probe_ops, NULL, "probe"), 0);
	assert_int_equal(bus_add(bus, 0x10000, 16, &probe_ops, NULL, "probe"), -ENOSPC);
}

static void an_access_reaches_its_device(void **state)
{
	struct bus *bus = *state;
	struct probe first = {0}, second = {0};
	uint64_t value = 0;

	assert_int_equal(bus_add(bus, 0x2000, 0x10, &probe_ops, &second, "second"), 0);
	assert_int_equal(bus_add(bus, 0x1000, 0x10, &probe_ops, &first, "first"), 0);
	bus_read(bus, 0x100c, &value, 4);
	assert_int_equal(value, 0x5a5a5a5a);
	assert_int_equal(first.reads, 1);
	assert_int_equal(first.offset, 0xc);
	assert_int_equal(first.length, 4);
	value = 0x1122334455667788;
	bus_write(bus, 0x2008, &value, 8);
	assert_int_equal(second.writes, 1);
	assert_int_equal(second.offset, 8);
	assert_true(second.value == value);
	assert_int_equal(bus->windows[0].reads, 1);
	assert_int_equal(bus->windows[1].writes, 1);
	assert_int_equal(bus->stray_count, 0);
}

/* Each address and width around and across a window's ends: only what lies wholly within is answered. */
static void only_what_lies_within_is_answered(void **state)
{
	struct bus *bus = *state;
	struct probe probe = {0};
	unsigned answered = 0;

	assert_int_equal(bus_add(bus, 0x1000, 6, &probe_ops, &probe, "probe"), 0);
	for (uint64_t address = 0xff0; address < 0x1010; address++)
		for (uint32_t length = 0; length <= 8; length++) {
			int whole = address >= 0x1000 && address + length <= 0x1006 &&
				    (length == 1 || length == 2 || length == 4);
			uint8_t data[9];

			memset(data, 0, sizeof(data));
			bus_read(bus, address, data, length);
			for (uint32_t i = 0; i < sizeof(data); i++)
				assert_int_equal(data[i], i >= length ? 0 : whole ? 0x5a : 0xff);
			bus_write(bus, address, data, length);
			answered += whole;
			assert_int_equal(probe.reads, answered);
			assert_int_equal(probe.writes, answered);
		}
	assert_int_equal(answered, 6 + 5 + 3);
}

static void the_last_byte_of_the_space_does_not_wrap(void **state)
{
	struct bus *bus = *state;
	struct probe probe = {0};
	uint64_t value = 0;

	assert_int_equal(bus_add(bus, 0, 8, &probe_ops, &probe, "bottom"), 0);
	assert_int_equal(bus_add(bus, UINT64_MAX - 7, 8, &probe_ops, &probe, "top"), 0);
	bus_read(bus, UINT64_MAX - 3, &value, 8);
	assert_true(value == UINT64_MAX);
	assert_int_equal(probe.reads, 0);
	bus_read(bus, UINT64_MAX - 7, &value, 8);
	assert_int_equal(probe.reads, 1);
}

static void a_missing_function_is_nobody(void **state)
{
	struct bus *bus = *state;
	uint32_t value = 0;

	assert_int_equal(bus_add(bus, 0, 4, &deaf_ops, NULL, "deaf"), 0);
	bus_read(bus, 0, &value, 4);
	assert_int_equal(value, UINT32_MAX);
	bus_write(bus, 0, &value, 4);
	assert_int_equal(bus->windows[0].reads, 1);
	assert_int_equal(bus->windows[0].writes, 1);
}

static void strays_are_counted_to_a_bound(void **state)
{
	struct bus *bus = *state;
	uint8_t byte = 0;

	for (unsigned round = 0; round < 2; round++)
		for (uint64_t address = 0; address < BUS_STRAYS_MAX + 3; address++)
			bus_write(bus, address, &byte, 1);
	assert_int_equal(bus->stray_count, BUS_STRAYS_MAX);
	for (unsigned i = 0; i < BUS_STRAYS_MAX; i++)
		assert_int_equal(bus->strays[i].count, 2);
	assert_int_equal(bus->strays_other, 6);
}

/* How a guest ends. */
struct outcome {
	int end;
	unsigned count;
};

static void note_end(void *context, enum vmm_end end, const char *reason)
{
	struct outcome *outcome = context;

	assert_non_null(reason);
	outcome->end = (int)end;
	outcome->count++;
}

static void only_the_exact_value_and_width_ends(void **state)
{
	struct outcome outcome = {.end = -1};
	struct ends ends = {.end = note_end, .context = &outcome};
	struct bus *mmio = *state, ports;
	static const struct {
		int port;
		uint64_t address;
		uint64_t value;
		uint32_t length;
		int end; /* -1: nothing happens */
	} cases[] = {
		{0, LAYOUT_POWEROFF_BASE, LAYOUT_POWEROFF_VALUE, 4, VMM_END_POWEROFF},
		{0, LAYOUT_POWEROFF_BASE, LAYOUT_POWEROFF_VALUE, 1, -1},
		{0, LAYOUT_POWEROFF_BASE, LAYOUT_POWEROFF_VALUE, 2, -1},
		{0, LAYOUT_POWEROFF_BASE, LAYOUT_POWEROFF_VALUE, 8, -1},
		{0, LAYOUT_POWEROFF_BASE, LAYOUT_POWEROFF_VALUE | 0x100, 4, -1},
		{0, LAYOUT_POWEROFF_BASE, 0, 4, -1},
		{0, LAYOUT_POWEROFF_BASE + 4, LAYOUT_POWEROFF_VALUE, 4, -1},
		{0, LAYOUT_PVPANIC_BASE, 1, 1, VMM_END_PANIC},
		{0, LAYOUT_PVPANIC_BASE, 3, 1, VMM_END_PANIC},
		{0, LAYOUT_PVPANIC_BASE, 2, 1, -1}, /* a crash kernel runs now */
		{0, LAYOUT_PVPANIC_BASE, 1, 2, -1},
		{0, LAYOUT_PVPANIC_BASE, 1, 4, -1},
		{0, LAYOUT_PVPANIC_BASE + 1, 1, 1, -1},
		{1, LAYOUT_RESET_PORT, LAYOUT_RESET_VALUE, 1, VMM_END_REBOOT},
		{1, LAYOUT_RESET_PORT, 0xff, 1, -1},
		{1, LAYOUT_RESET_PORT, LAYOUT_RESET_VALUE, 2, -1},
		{1, LAYOUT_RESET_PORT - 1, 0xfefe, 2, -1},
	};

	bus_init(&ports);
	assert_int_equal(ends_add(&ends, &ports, mmio), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		outcome = (struct outcome){.end = -1};
		bus_write(cases[i].port ? &ports : mmio, cases[i].address, &cases[i].value, cases[i].length);
		assert_int_equal(outcome.end, cases[i].end);
		assert_int_equal(outcome.count, cases[i].end < 0 ? 0 : 1);
	}
	bus_finish(&ports);
}

static void the_registers_read_as_drivers_expect(void **state)
{
	struct outcome outcome = {.end = -1};
	struct ends ends = {.end = note_end, .context = &outcome};
	struct bus *mmio = *state, ports;
	uint32_t value = 1;
	uint8_t byte = 0xff;

	bus_init(&ports);
	assert_int_equal(ends_add(&ends, &ports, mmio), 0);
	bus_read(mmio, LAYOUT_POWEROFF_BASE, &value, 4);
	assert_int_equal(value, 0);
	bus_read(mmio, LAYOUT_PVPANIC_BASE, &byte, 1);
	assert_int_equal(byte, 3);
	bus_read(&ports, LAYOUT_RESET_PORT, &byte, 1);
	assert_int_equal(byte, 0);
	assert_int_equal(outcome.count, 0);
	bus_finish(&ports);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(windows_do_not_overlap, set_up, tear_down),
		cmocka_unit_test_setup_teardown(windows_have_a_bound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_access_reaches_its_device, set_up, tear_down),
		cmocka_unit_test_setup_teardown(only_what_lies_within_is_answered, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_last_byte_of_the_space_does_not_wrap, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_missing_function_is_nobody, set_up, tear_down),
		cmocka_unit_test_setup_teardown(strays_are_counted_to_a_bound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(only_the_exact_value_and_width_ends, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_registers_read_as_drivers_expect, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
