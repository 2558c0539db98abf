/* SPDX-License-Identifier: Apache-2.0 */
/* Typed values in a bounded buffer, and records of them. */
#include "tests/support/unit.h"

#include "vmm/state.h"
#include <errno.h>
#include <string.h>

enum { ROOM = 128, TAG = 0x41424344 };

static void put_one_of_each(struct state_writer *writer)
{
	state_put_u8(writer, 0x11);
	state_put_u16(writer, 0x2233);
	state_put_u32(writer, 0x44556677);
	state_put_u64(writer, 0x8899aabbccddeeff);
	state_put_bool(writer, true);
	state_put_bytes(writer, "bytes", 5);
}

/* Bytes that one of each takes. */
enum { ONE_OF_EACH = 1 + 2 + 4 + 8 + 1 + 5 };

static void values_come_back_as_they_were_put(void **state)
{
	static const uint8_t bytes[ONE_OF_EACH] = {0x11, 0x33, 0x22, 0x77, 0x66, 0x55, 0x44, 0xff, 0xee, 0xdd,
		0xcc, 0xbb, 0xaa, 0x99, 0x88, 1, 'b', 'y', 't', 'e', 's'};
	uint8_t buffer[ROOM], text[5];
	struct state_writer writer;
	struct state_reader reader;

	(void)state;
	state_writer_init(&writer, buffer, sizeof(buffer));
	put_one_of_each(&writer);
	assert_int_equal(writer.error, 0);
	assert_int_equal(writer.length, ONE_OF_EACH);
	assert_memory_equal(buffer, bytes, sizeof(bytes));
	state_reader_init(&reader, buffer, writer.length);
	assert_int_equal(state_get_u8(&reader), 0x11);
	assert_int_equal(state_get_u16(&reader), 0x2233);
	assert_int_equal(state_get_u32(&reader), 0x44556677);
	assert_true(state_get_u64(&reader) == 0x8899aabbccddeeff);
	assert_true(state_get_bool(&reader));
	assert_int_equal(state_reader_finish(&reader), -EBADMSG); /* some are left */
	state_get_bytes(&reader, text, sizeof(text));
	assert_memory_equal(text, "bytes", 5);
	assert_int_equal(state_reader_finish(&reader), 0);
}

static void a_full_buffer_is_an_error_that_sticks(void **state)
{
	(void)state;
	for (size_t room = 0; room < ONE_OF_EACH; room++) {
		uint8_t buffer[ROOM];
		struct state_writer writer;

		memset(buffer, 0x5a, sizeof(buffer));
		state_writer_init(&writer, buffer, room);
		put_one_of_each(&writer);
		assert_int_equal(writer.error, -ENOSPC);
		state_put_bytes(&writer, NULL, 0);
		assert_int_equal(writer.error, -ENOSPC);
		assert_true(writer.length <= room);
		for (size_t i = room; i < sizeof(buffer); i++)
			assert_int_equal(buffer[i], 0x5a);
	}
}

static void too_few_bytes_give_zeros_and_an_error(void **state)
{
	uint8_t buffer[ROOM];
	struct state_writer writer;

	(void)state;
	state_writer_init(&writer, buffer, sizeof(buffer));
	put_one_of_each(&writer);
	for (size_t length = 0; length < ONE_OF_EACH; length++) {
		uint8_t text[5] = "xxxxx";
		struct state_reader reader;

		state_reader_init(&reader, buffer, length);
		state_get_u8(&reader);
		state_get_u16(&reader);
		state_get_u32(&reader);
		state_get_u64(&reader);
		state_get_bool(&reader);
		state_get_bytes(&reader, text, sizeof(text));
		assert_memory_equal(text, "\0\0\0\0\0", 5);
		assert_int_equal(state_get_u8(&reader), 0); /* one that would fit gives zero as well */
		assert_int_equal(state_reader_finish(&reader), -EBADMSG);
	}
}

static void a_truth_is_one_or_zero(void **state)
{
	(void)state;
	for (unsigned value = 0; value < 256; value++) {
		uint8_t byte = (uint8_t)value;
		struct state_reader reader;

		state_reader_init(&reader, &byte, 1);
		assert_int_equal(state_get_bool(&reader), value == 1);
		assert_int_equal(state_reader_finish(&reader), value <= 1 ? 0 : -EBADMSG);
	}
}

static void counts_have_a_bound(void **state)
{
	static const uint8_t five[] = {5, 0, 0, 0}, huge[] = {0xff, 0xff, 0xff, 0xff};
	struct state_reader reader;

	(void)state;
	state_reader_init(&reader, five, 4);
	assert_int_equal(state_get_count(&reader, 5), 5);
	assert_int_equal(state_reader_finish(&reader), 0);
	state_reader_init(&reader, five, 4);
	assert_int_equal(state_get_count(&reader, 4), 0);
	assert_int_equal(state_reader_finish(&reader), -EBADMSG);
	state_reader_init(&reader, huge, 4);
	assert_int_equal(state_get_count(&reader, 4), 0);
	assert_int_equal(state_reader_finish(&reader), -EBADMSG);
}

static void a_record_is_read_apart(void **state)
{
	uint8_t buffer[ROOM];
	struct state_writer writer;
	struct state_reader reader, record;
	size_t where;

	(void)state;
	state_writer_init(&writer, buffer, sizeof(buffer));
	where = state_begin_record(&writer, TAG);
	state_put_u16(&writer, 7);
	state_end_record(&writer, where);
	where = state_begin_record(&writer, TAG + 1);
	state_end_record(&writer, where);
	state_reader_init(&reader, buffer, writer.length);
	state_get_record(&reader, TAG, &record);
	assert_int_equal(state_get_u16(&record), 7);
	assert_int_equal(state_reader_finish(&record), 0);
	state_get_u8(&record); /* the next record is out of reach */
	assert_int_equal(state_reader_finish(&record), -EBADMSG);
	state_get_record(&reader, TAG + 1, &record);
	assert_int_equal(state_reader_finish(&record), 0);
	assert_int_equal(state_reader_finish(&reader), 0);
	state_get_record(&reader, TAG, &record);
	assert_int_equal(state_reader_finish(&record), -EBADMSG);
	assert_int_equal(state_reader_finish(&reader), -EBADMSG);
}

static void a_record_of_another_kind_or_length_is_refused(void **state)
{
	uint8_t buffer[ROOM];
	struct state_writer writer;
	struct state_reader reader, record;
	size_t where;

	(void)state;
	state_writer_init(&writer, buffer, sizeof(buffer));
	where = state_begin_record(&writer, TAG);
	state_put_u32(&writer, 1);
	state_end_record(&writer, where);
	state_reader_init(&reader, buffer, writer.length);
	state_get_record(&reader, TAG + 1, &record);
	assert_int_equal(state_reader_finish(&record), -EBADMSG);
	assert_int_equal(state_get_u32(&record), 0);
	for (uint32_t length = 0; length < 16; length++) {
		buffer[4] = (uint8_t)length;
		state_reader_init(&reader, buffer, writer.length);
		state_get_record(&reader, TAG, &record);
		state_get_u32(&record);
		assert_int_equal(!state_reader_finish(&record) && !state_reader_finish(&reader), length == 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_come_back_as_they_were_put),
		cmocka_unit_test(a_full_buffer_is_an_error_that_sticks),
		cmocka_unit_test(too_few_bytes_give_zeros_and_an_error),
		cmocka_unit_test(a_truth_is_one_or_zero),
		cmocka_unit_test(counts_have_a_bound),
		cmocka_unit_test(a_record_is_read_apart),
		cmocka_unit_test(a_record_of_another_kind_or_length_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
