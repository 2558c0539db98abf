/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/state.h"
#include <errno.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are copied without swapping bytes");

void state_writer_init(struct state_writer *writer, void *data, size_t capacity)
{
	*writer = (struct state_writer){.data = data, .capacity = capacity};
}

void state_put_bytes(struct state_writer *writer, const void *data, size_t length)
{
	if (length > writer->capacity - writer->length)
		writer->error = -ENOSPC;
	if (writer->error || length == 0)
		return;
	memcpy(writer->data + writer->length, data, length);
	writer->length += length;
}

void state_fail(struct state_writer *writer, int error)
{
	if (!writer->error)
		writer->error = error;
}

void state_put_u8(struct state_writer *writer, uint8_t value)
{
	state_put_bytes(writer, &value, sizeof(value));
}

void state_put_u16(struct state_writer *writer, uint16_t value)
{
	state_put_bytes(writer, &value, sizeof(value));
}

void state_put_u32(struct state_writer *writer, uint32_t value)
{
	state_put_bytes(writer, &value, sizeof(value));
}

void state_put_u64(struct state_writer *writer, uint64_t value)
{
	state_put_bytes(writer, &value, sizeof(value));
}

void state_put_bool(struct state_writer *writer, bool value)
{
	state_put_u8(writer, value);
}

void state_reader_init(struct state_reader *reader, const void *data, size_t length)
{
	*reader = (struct state_reader){.data = data, .length = length};
}

bool state_reader_is_empty(const struct state_reader *reader)
{
	return reader->offset == reader->length;
}

void state_refuse(struct state_reader *reader)
{
	reader->error = -EBADMSG;
}

void state_get_bytes(struct state_reader *reader, void *data, size_t length)
{
	if (length > reader->length - reader->offset)
		state_refuse(reader);
	if (length == 0)
		return;
	if (reader->error) {
		memset(data, 0, length);
		return;
	}
	memcpy(data, reader->data + reader->offset, length);
	reader->offset += length;
}

uint8_t state_get_u8(struct state_reader *reader)
{
	uint8_t value;

	state_get_bytes(reader, &value, sizeof(value));
	return value;
}

uint16_t state_get_u16(struct state_reader *reader)
{
	uint16_t value;

	state_get_bytes(reader, &value, sizeof(value));
	return value;
}

uint32_t state_get_u32(struct state_reader *reader)
{
	uint32_t value;

	state_get_bytes(reader, &value, sizeof(value));
	return value;
}

uint64_t state_get_u64(struct state_reader *reader)
{
	uint64_t value;

	state_get_bytes(reader, &value, sizeof(value));
	return value;
}

bool state_get_bool(struct state_reader *reader)
{
	uint8_t value = state_get_u8(reader);

	if (value > 1)
		state_refuse(reader);
	return value == 1;
}

uint32_t state_get_count(struct state_reader *reader, uint32_t most)
{
	uint32_t value = state_get_u32(reader);

	if (value <= most)
		return value;
	state_refuse(reader);
	return 0;
}

int state_reader_finish(const struct state_reader *reader)
{
	return reader->error || reader->offset != reader->length ? -EBADMSG : 0;
}

size_t state_begin_record(struct state_writer *writer, uint32_t tag)
{
	size_t where = writer->length;

	state_put_u32(writer, tag);
	state_put_u32(writer, 0);
	return where;
}

void state_end_record(struct state_writer *writer, size_t where)
{
	uint32_t length;

	if (writer->error)
		return;
	length = (uint32_t)(writer->length - where - STATE_RECORD_HEADER);
	memcpy(writer->data + where + sizeof(uint32_t), &length, sizeof(length));
}

void state_get_record(struct state_reader *reader, uint32_t tag, struct state_reader *record)
{
	uint32_t length;

	if (state_get_u32(reader) != tag)
		state_refuse(reader);
	length = state_get_u32(reader);
	if (length > reader->length - reader->offset)
		state_refuse(reader);
	if (reader->error) {
		*record = (struct state_reader){.error = -EBADMSG};
		return;
	}
	state_reader_init(record, reader->data + reader->offset, length);
	reader->offset += length;
}
