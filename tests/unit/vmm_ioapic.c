/* SPDX-License-Identifier: Apache-2.0 */
/* The IOAPIC: registers, MSI translation, and what becomes of an edge while a pin is masked. */
#include "tests/support/unit.h"

#include "vmm/ioapic.h"
#include "vmm/state.h"
#include <errno.h>
#include <string.h>

enum { PINS = 3 };

/* What KVM would have been told. */
struct fake {
	struct ioapic ioapic;
	unsigned routes, raised[IOAPIC_PINS_MAX];
	unsigned pin;
	uint64_t address;
	uint32_t data;
};

static void note_route(void *context, unsigned pin, uint64_t address, uint32_t data)
{
	struct fake *fake = context;

	fake->routes++;
	fake->pin = pin;
	fake->address = address;
	fake->data = data;
}

static void note_raise(void *context, unsigned pin)
{
	struct fake *fake = context;

	/* An interrupt may be raised only once its route is in effect. */
	assert_true(fake->routes > 0);
	fake->raised[pin]++;
}

static const struct ioapic_ops ops = {.route = note_route, .raise = note_raise};

static int set_up(void **state)
{
	static struct fake fake;

	memset(&fake, 0, sizeof(fake));
	*state = &fake;
	return ioapic_init(&fake.ioapic, PINS, &ops, &fake);
}

static int tear_down(void **state)
{
	struct fake *fake = *state;

	ioapic_finish(&fake->ioapic);
	return 0;
}

static uint32_t read_index(struct fake *fake, uint32_t index)
{
	uint32_t value = 0xdeadbeef;

	ioapic_write(&fake->ioapic, IOAPIC_REGSEL, &index, 4);
	ioapic_read(&fake->ioapic, IOAPIC_WINDOW, &value, 4);
	return value;
}

static void write_index(struct fake *fake, uint32_t index, uint32_t value)
{
	ioapic_write(&fake->ioapic, IOAPIC_REGSEL, &index, 4);
	ioapic_write(&fake->ioapic, IOAPIC_WINDOW, &value, 4);
}

/* As Linux does: the high half first. */
static void write_entry(struct fake *fake, unsigned pin, uint64_t entry)
{
	write_index(fake, IOAPIC_REG_REDIRECTION + 2 * pin + 1, (uint32_t)(entry >> 32));
	write_index(fake, IOAPIC_REG_REDIRECTION + 2 * pin, (uint32_t)entry);
}

static void counts_of_pins_are_checked(void **state)
{
	struct ioapic ioapic;

	(void)state;
	assert_int_equal(ioapic_init(&ioapic, 0, &ops, NULL), -EINVAL);
	assert_int_equal(ioapic_init(&ioapic, IOAPIC_PINS_MAX + 1, &ops, NULL), -EINVAL);
	assert_int_equal(ioapic_init(&ioapic, IOAPIC_PINS_MAX, &ops, NULL), 0);
	ioapic_finish(&ioapic);
}

static void it_says_what_it_is(void **state)
{
	struct fake *fake = *state;

	assert_int_equal(read_index(fake, IOAPIC_REG_VERSION), 0x11 | (PINS - 1) << 16);
	write_index(fake, IOAPIC_REG_ID, 0xff123456);
	assert_int_equal(read_index(fake, IOAPIC_REG_ID), 0x0f000000);
	assert_int_equal(read_index(fake, IOAPIC_REG_ARBITRATION), 0x0f000000);
	write_index(fake, IOAPIC_REG_VERSION, 0);
	assert_int_equal(read_index(fake, IOAPIC_REG_VERSION), 0x11 | (PINS - 1) << 16);
	for (unsigned pin = 0; pin < PINS; pin++) {
		assert_int_equal(read_index(fake, IOAPIC_REG_REDIRECTION + 2 * pin), 0x10000);
		assert_int_equal(read_index(fake, IOAPIC_REG_REDIRECTION + 2 * pin + 1), 0);
	}
	assert_int_equal(fake->routes, 0);
}

static void registers_that_do_not_exist_read_as_zero(void **state)
{
	struct fake *fake = *state;

	for (uint32_t index = 3; index <= 0xff; index++) {
		if (index >= IOAPIC_REG_REDIRECTION && index < IOAPIC_REG_REDIRECTION + 2 * PINS)
			continue;
		write_index(fake, index, 0xffffffff & ~(1u << 16));
		assert_int_equal(read_index(fake, index), 0);
	}
	assert_int_equal(read_index(fake, 0x100 + IOAPIC_REG_VERSION), 0x11 | (PINS - 1) << 16);
	assert_int_equal(fake->routes, 0);
}

static void odd_accesses_are_nothing(void **state)
{
	struct fake *fake = *state;
	uint8_t data[8];

	write_index(fake, IOAPIC_REG_VERSION, 0);
	for (uint64_t offset = 0; offset < 0x1000 - 8; offset++)
		for (uint32_t length = 1; length <= 8; length *= 2) {
			if (length == 4 && (offset == IOAPIC_REGSEL || offset == IOAPIC_WINDOW))
				continue;
			memset(data, 0x10, sizeof(data));
			ioapic_write(&fake->ioapic, offset, data, length);
			ioapic_read(&fake->ioapic, offset, data, length);
			for (uint32_t i = 0; i < length; i++)
				assert_int_equal(data[i], 0);
		}
	assert_int_equal(fake->ioapic.select, IOAPIC_REG_VERSION);
	assert_int_equal(fake->routes, 0);
}

static void read_only_bits_stay_zero(void **state)
{
	struct fake *fake = *state;

	write_entry(fake, 1, UINT64_MAX);
	assert_int_equal(read_index(fake, IOAPIC_REG_REDIRECTION + 2), 0x1afff);
	assert_int_equal(read_index(fake, IOAPIC_REG_REDIRECTION + 3), 0xff000000);
	assert_int_equal(fake->routes, 0); /* it is masked */
}

static void an_entry_becomes_a_message(void **state)
{
	struct fake *fake = *state;
	static const struct {
		uint64_t entry, address;
		uint32_t data;
	} cases[] = {
		{0x0000000000000031, 0xfee00000, 0x4031}, /* fixed, physical, CPU 0 */
		{0x0300000000000031, 0xfee03000, 0x4031}, /* CPU 3 */
		{0xff00000000000841, 0xfeeff004, 0x4041}, /* logical, everyone */
		{0x0100000000000951, 0xfee01004, 0x4151}, /* lowest priority */
		{0x0000000000000400, 0xfee00000, 0x4400}, /* NMI */
		{0x000000000000a061, 0xfee00000, 0x4061}, /* level and active low: an edge all the same */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_index(fake, IOAPIC_REG_REDIRECTION + 4, IOAPIC_ENTRY_MASKED);
		write_entry(fake, 2, cases[i].entry);
		assert_int_equal(fake->pin, 2);
		assert_true(fake->address == cases[i].address);
		assert_int_equal(fake->data, cases[i].data);
		assert_int_equal(fake->routes, i + 1);
	}
}

static void a_route_changes_only_while_unmasked_and_only_when_it_differs(void **state)
{
	struct fake *fake = *state;

	write_entry(fake, 0, 0x10031);
	write_entry(fake, 0, 0x10032);
	assert_int_equal(fake->routes, 0);
	write_entry(fake, 0, 0x32);
	assert_int_equal(fake->routes, 1);
	write_entry(fake, 0, 0x32);
	write_entry(fake, 0, 0x10032);
	write_entry(fake, 0, 0x10033);
	write_entry(fake, 0, 0x32);
	assert_int_equal(fake->routes, 1);
	write_entry(fake, 0, 0x33);
	assert_int_equal(fake->routes, 2);
	/* Another destination while unmasked: both halves count. */
	write_index(fake, IOAPIC_REG_REDIRECTION + 1, 0x01000000);
	assert_int_equal(fake->routes, 3);
	assert_true(fake->address == 0xfee01000);
}

static void an_edge_is_raised_while_unmasked(void **state)
{
	struct fake *fake = *state;

	write_entry(fake, 1, 0x41);
	ioapic_raise(&fake->ioapic, 1);
	ioapic_raise(&fake->ioapic, 1);
	assert_int_equal(fake->raised[1], 2);
	assert_int_equal(fake->raised[0], 0);
}

static void an_edge_is_latched_once_while_masked(void **state)
{
	struct fake *fake = *state;

	ioapic_raise(&fake->ioapic, 1); /* before the driver is there */
	ioapic_raise(&fake->ioapic, 1);
	assert_int_equal(fake->raised[1], 0);
	write_entry(fake, 1, 0x10041);
	assert_int_equal(fake->raised[1], 0);
	write_entry(fake, 1, 0x41);
	assert_int_equal(fake->raised[1], 1);
	write_entry(fake, 1, 0x10041);
	write_entry(fake, 1, 0x41);
	assert_int_equal(fake->raised[1], 1);
	write_entry(fake, 1, 0x10041);
	ioapic_raise(&fake->ioapic, 1);
	write_entry(fake, 0, 0x42); /* another pin's mask is another's */
	assert_int_equal(fake->raised[1], 1);
	write_entry(fake, 1, 0x43);
	assert_int_equal(fake->raised[1], 2);
	assert_int_equal(fake->data, 0x4043); /* by the new route */
}

static void a_line_that_does_not_exist_is_ignored(void **state)
{
	struct fake *fake = *state;

	ioapic_raise(&fake->ioapic, PINS);
	ioapic_raise(&fake->ioapic, UINT32_MAX);
	for (unsigned pin = 0; pin < PINS; pin++)
		write_entry(fake, pin, 0x31 + pin);
	for (unsigned pin = 0; pin < IOAPIC_PINS_MAX; pin++)
		assert_int_equal(fake->raised[pin], 0);
}

/* --- snapshots --- */

enum { STATE_MAX = 256, HEAD_BYTES = 12, PIN_BYTES = 18 };

struct saved {
	uint8_t bytes[STATE_MAX];
	size_t length;
};

static void save(struct fake *fake, struct saved *saved)
{
	struct state_writer writer;

	state_writer_init(&writer, saved->bytes, sizeof(saved->bytes));
	ioapic_save(&fake->ioapic, &writer);
	assert_int_equal(writer.error, 0);
	saved->length = writer.length;
	assert_int_equal(saved->length, HEAD_BYTES + PINS * PIN_BYTES);
}

/* Into a new one. */
static int load(struct fake *fake, const struct saved *saved)
{
	struct state_reader reader;

	ioapic_finish(&fake->ioapic);
	memset(fake, 0, sizeof(*fake));
	assert_int_equal(ioapic_init(&fake->ioapic, PINS, &ops, fake), 0);
	state_reader_init(&reader, saved->bytes, saved->length);
	ioapic_load(&fake->ioapic, &reader);
	return state_reader_finish(&reader);
}

/* Open, masked with another entry since, masked with an edge waiting. */
static void make_three_kinds(struct fake *fake)
{
	write_entry(fake, 0, 0x0100000000000041);
	write_entry(fake, 1, 0x42);
	write_entry(fake, 1, 0x10043);
	ioapic_raise(&fake->ioapic, 1);
	write_index(fake, IOAPIC_REG_ID, 0x05000000);
	write_index(fake, IOAPIC_REG_REDIRECTION + 3, 0x03000000);
}

static void a_snapshot_brings_everything_back(void **state)
{
	struct fake *fake = *state;
	struct saved first, second;
	uint32_t index;

	make_three_kinds(fake);
	save(fake, &first);
	assert_int_equal(load(fake, &first), 0);
	assert_int_equal(fake->routes, 2); /* those that were in effect */
	assert_int_equal(fake->pin, 1);
	assert_int_equal(fake->data, 0x4042);
	assert_int_equal(fake->raised[1], 0);
	save(fake, &second);
	assert_memory_equal(&first.bytes, &second.bytes, first.length);
	ioapic_read(&fake->ioapic, IOAPIC_REGSEL, &index, 4);
	assert_int_equal(index, IOAPIC_REG_REDIRECTION + 3);
	assert_int_equal(read_index(fake, IOAPIC_REG_ID), 0x05000000);
	ioapic_raise(&fake->ioapic, 0);
	assert_int_equal(fake->raised[0], 1);
	write_index(fake, IOAPIC_REG_REDIRECTION + 2, 0x43);
	assert_int_equal(fake->raised[1], 1); /* the edge that waited */
	assert_int_equal(fake->data, 0x4043);
	assert_true(fake->address == 0xfee03000);
	write_entry(fake, 0, 0x0100000000000041);
	assert_int_equal(fake->routes, 3); /* nothing was new about that */
}

static void expect_load(
	struct fake *fake, const struct saved *saved, size_t offset, uint64_t value, size_t size, int wanted)
{
	struct saved changed = *saved;

	memcpy(changed.bytes + offset, &value, size);
	assert_int_equal(load(fake, &changed), wanted);
}

static void a_snapshot_that_could_not_be_is_refused(void **state)
{
	struct fake *fake = *state;
	struct saved saved;
	size_t open = HEAD_BYTES, masked = open + PIN_BYTES, fresh = masked + PIN_BYTES;

	make_three_kinds(fake);
	save(fake, &saved);
	for (size_t length = 0; length < saved.length; length++) {
		struct saved cut = saved;

		cut.length = length;
		assert_int_equal(load(fake, &cut), -EBADMSG);
	}
	expect_load(fake, &saved, 0, PINS - 1, 4, -EBADMSG);
	expect_load(fake, &saved, 0, PINS + 1, 4, -EBADMSG);
	expect_load(fake, &saved, 4, 0xff, 4, 0);
	expect_load(fake, &saved, 4, 0x100, 4, -EBADMSG);		  /* index */
	expect_load(fake, &saved, 8, 0x10, 4, -EBADMSG);		  /* id */
	expect_load(fake, &saved, open, 0x0100000000001041, 8, -EBADMSG); /* a read-only bit */
	expect_load(fake, &saved, open, 0x0100000000000044, 8, -EBADMSG); /* open, with another route */
	expect_load(fake, &saved, open + 16, 0, 1, -EBADMSG);		  /* open, without one */
	expect_load(fake, &saved, open + 17, 1, 1, -EBADMSG);		  /* open, with an edge waiting */
	expect_load(fake, &saved, masked + 8, 0x10042, 8, -EBADMSG);	  /* a route of a masked entry */
	expect_load(fake, &saved, masked + 8, 0x42 | 1 << 14, 8, -EBADMSG);
	expect_load(fake, &saved, masked + 17, 2, 1, -EBADMSG);
	expect_load(fake, &saved, fresh + 8, 0x42, 8, -EBADMSG); /* a route's entry without a route */
	expect_load(fake, &saved, fresh + 17, 1, 1, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_of_pins_are_checked),
		cmocka_unit_test_setup_teardown(it_says_what_it_is, set_up, tear_down),
		cmocka_unit_test_setup_teardown(registers_that_do_not_exist_read_as_zero, set_up, tear_down),
		cmocka_unit_test_setup_teardown(odd_accesses_are_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(read_only_bits_stay_zero, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_entry_becomes_a_message, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_route_changes_only_while_unmasked_and_only_when_it_differs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_edge_is_raised_while_unmasked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_edge_is_latched_once_while_masked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_line_that_does_not_exist_is_ignored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_snapshot_brings_everything_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_snapshot_that_could_not_be_is_refused, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
