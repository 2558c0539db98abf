/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/snapshot.h"
#include "common/io.h"
#include "vmm/checksum.h"
#include "vmm/reason.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'T', 'N', 'D', 'X', 'S', 'N', 'A', 'P'};

static void put_header(struct state_writer *writer, uint64_t records, const struct snapshot_memory *memory)
{
	state_put_bytes(writer, magic, sizeof(magic));
	state_put_u32(writer, memory->is_base ? SNAPSHOT_VERSION_PAGES : SNAPSHOT_VERSION);
	state_put_u32(writer, SNAPSHOT_HEADER);
	state_put_u64(writer, records);
	state_put_u64(writer, memory->size);
	state_put_u64(writer, memory->sum);
}

void snapshot_begin(struct state_writer *writer, void *buffer)
{
	static const struct snapshot_memory none;

	state_writer_init(writer, buffer, SNAPSHOT_STATE_MAX);
	put_header(writer, 0, &none);
}

int snapshot_finish(struct state_writer *writer, const struct snapshot_memory *memory)
{
	struct state_writer header;

	if (writer->error)
		return writer->error;
	state_writer_init(&header, writer->data, SNAPSHOT_HEADER);
	put_header(&header, writer->length - SNAPSHOT_HEADER, memory);
	state_put_u64(writer, checksum(writer->data, writer->length));
	return writer->error;
}

/* 0, or what snapshot_parse says. Sets *records to their bytes by the header. */
static int parse_header(
	struct state_reader *reader, struct snapshot_memory *memory, uint64_t *records, char *why)
{
	char found[sizeof(magic)];
	uint32_t version, header;

	state_get_bytes(reader, found, sizeof(found));
	if (reader->error || memcmp(found, magic, sizeof(magic)) != 0)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL, "is not the state file of a snapshot");
	version = state_get_u32(reader);
	header = state_get_u32(reader);
	if (!reader->error && version != SNAPSHOT_VERSION && version != SNAPSHOT_VERSION_PAGES)
		return reason_set(why, SNAPSHOT_WHY_MAX, -ENOTSUP,
			"has version %u of the format and this vmm knows versions %d and %d", version,
			SNAPSHOT_VERSION, SNAPSHOT_VERSION_PAGES);
	memory->is_base = version == SNAPSHOT_VERSION_PAGES;
	*records = state_get_u64(reader);
	memory->size = state_get_u64(reader);
	memory->sum = state_get_u64(reader);
	if (reader->error)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG, "is cut off in its header");
	if (header != SNAPSHOT_HEADER)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG, "has a header of %u bytes, not %d", header,
			SNAPSHOT_HEADER);
	return 0;
}

int snapshot_parse(const void *data, size_t length, struct snapshot_memory *memory,
	struct state_reader *records, char *why)
{
	struct state_reader reader;
	uint64_t wanted = 0, sum;
	int r;

	state_reader_init(&reader, data, length);
	r = parse_header(&reader, memory, &wanted, why);
	if (r < 0)
		return r;
	if (wanted > SNAPSHOT_STATE_MAX || length != SNAPSHOT_HEADER + wanted + SNAPSHOT_CHECKSUM)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG,
			"has %zu bytes and its header speaks of %llu", length,
			(unsigned long long)wanted + SNAPSHOT_HEADER + SNAPSHOT_CHECKSUM);
	reader.offset = length - SNAPSHOT_CHECKSUM;
	sum = state_get_u64(&reader);
	if (sum != checksum(data, length - SNAPSHOT_CHECKSUM))
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG, "is damaged: its checksum is another");
	state_reader_init(records, (const uint8_t *)data + SNAPSHOT_HEADER, (size_t)wanted);
	return 0;
}

int snapshot_read_file(int fd, uint8_t **data, size_t *length)
{
	uint8_t *buffer = malloc(SNAPSHOT_STATE_MAX + 1);
	ssize_t got;

	if (!buffer)
		return -ENOMEM;
	got = io_pread_full(fd, buffer, SNAPSHOT_STATE_MAX + 1, 0);
	if (got < 0 || got > SNAPSHOT_STATE_MAX) {
		free(buffer);
		return got < 0 ? (int)got : -EFBIG;
	}
	*data = buffer;
	*length = (size_t)got;
	return 0;
}
