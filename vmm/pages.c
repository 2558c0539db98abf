/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pages.h"
#include "common/io.h"
#include "vmm/checksum.h"
#include "vmm/pages_file.h"
#include "vmm/reason.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WORD_BITS = 64 };

static const char magic[8] = {'T', 'N', 'D', 'X', 'P', 'A', 'G', 'E'};

static uint64_t map_bytes(uint64_t memory_pages)
{
	return memory_pages / WORD_BITS * sizeof(uint64_t);
}

/* Header and maps are made and read in one piece. */
static uint64_t start_of(uint64_t memory_pages)
{
	uint64_t bytes = PAGES_HEADER + 2 * map_bytes(memory_pages);

	return (bytes + SNAPSHOT_PAGE - 1) / SNAPSHOT_PAGE * SNAPSHOT_PAGE;
}

int pages_table_init(struct pages_table *table, uint64_t memory_bytes)
{
	uint64_t pages = memory_bytes / SNAPSHOT_PAGE;

	*table = (struct pages_table){.memory_pages = pages, .start = start_of(pages)};
	table->stored = calloc(2, map_bytes(pages));
	if (!table->stored) {
		pages_table_finish(table);
		return -ENOMEM;
	}
	table->zero = table->stored + pages / WORD_BITS;
	return 0;
}

void pages_table_finish(struct pages_table *table)
{
	free(table->stored);
	*table = (struct pages_table){0};
}

bool pages_has(const uint64_t *map, uint64_t page)
{
	return map[page / WORD_BITS] >> page % WORD_BITS & 1;
}

uint64_t pages_run(const uint64_t *map, uint64_t page, uint64_t end)
{
	uint64_t from = page;

	while (page < end && pages_has(map, page))
		page++;
	return page - from;
}

/* --- writing --- */

int pages_put_table(
	const struct pages_table *table, const struct snapshot_memory *base, int fd, uint64_t *sum)
{
	uint8_t *data = calloc(1, table->start);
	struct state_writer writer;
	int r;

	if (!data)
		return -ENOMEM;
	state_writer_init(&writer, data, table->start);
	state_put_bytes(&writer, magic, sizeof(magic));
	state_put_u32(&writer, PAGES_VERSION);
	state_put_u32(&writer, PAGES_HEADER);
	state_put_u64(&writer, base->size);
	state_put_u64(&writer, base->sum);
	state_put_u64(&writer, table->stored_count);
	state_put_u64(&writer, table->zero_count);
	state_put_u64(&writer, table->start);
	for (uint64_t i = 0; i < 2 * table->memory_pages / WORD_BITS; i++)
		state_put_u64(&writer, table->stored[i]);
	*sum = checksum(data, table->start);
	r = writer.error ? writer.error : io_pwrite_all(fd, data, table->start, 0);
	free(data);
	return r;
}

/* --- reading --- */

static int check_size(int fd, const struct pages_what *what, uint64_t start, char *why)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return reason_set(why, SNAPSHOT_WHY_MAX, -errno, "cannot be looked at: %s", strerror(errno));
	if (!S_ISREG(status.st_mode))
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL, "is no regular file");
	if ((uint64_t)status.st_size != what->bytes)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL, "has %llu bytes, not %llu",
			(unsigned long long)status.st_size, (unsigned long long)what->bytes);
	if (what->bytes < start)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG, "has %llu bytes, too few for its maps",
			(unsigned long long)what->bytes);
	return 0;
}

/* What comes before the counts. */
static int check_kind(struct state_reader *reader, const struct snapshot_memory *base, char *why)
{
	char found[sizeof(magic)];
	uint32_t version, header;
	uint64_t memory, sum;

	state_get_bytes(reader, found, sizeof(found));
	if (memcmp(found, magic, sizeof(magic)) != 0)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL, "is not a file of private pages");
	version = state_get_u32(reader);
	if (version != PAGES_VERSION)
		return reason_set(why, SNAPSHOT_WHY_MAX, -ENOTSUP,
			"has version %u of the format and this vmm knows version %d", version, PAGES_VERSION);
	header = state_get_u32(reader);
	if (header != PAGES_HEADER)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG, "has a header of %u bytes, not %d", header,
			PAGES_HEADER);
	memory = state_get_u64(reader);
	if (memory != base->size)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL, "is of a memory of %llu bytes, not %llu",
			(unsigned long long)memory, (unsigned long long)base->size);
	sum = state_get_u64(reader);
	if (sum != base->sum)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL,
			"lies upon a memory with the checksum %016llx, not %016llx", (unsigned long long)sum,
			(unsigned long long)base->sum);
	return 0;
}

static uint64_t count_bits(const uint64_t *map, uint64_t pages)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < pages / WORD_BITS; i++)
		count += (uint64_t)__builtin_popcountll(map[i]);
	return count;
}

static int check_maps(
	const struct pages_table *table, uint64_t stored, uint64_t zeros, uint64_t bytes, char *why)
{
	for (uint64_t i = 0; i < table->memory_pages / WORD_BITS; i++)
		if (table->stored[i] & table->zero[i])
			return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG,
				"has page %llu twice, as itself and as zeros",
				(unsigned long long)(i * WORD_BITS) +
					(unsigned)__builtin_ctzll(table->stored[i] & table->zero[i]));
	if (table->stored_count != stored || table->zero_count != zeros)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG,
			"speaks of %llu pages and %llu of zeros, and its maps have %llu and %llu",
			(unsigned long long)stored, (unsigned long long)zeros,
			(unsigned long long)table->stored_count, (unsigned long long)table->zero_count);
	if ((bytes - table->start) / SNAPSHOT_PAGE != stored || (bytes - table->start) % SNAPSHOT_PAGE != 0)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG,
			"has %llu bytes behind its maps, not those of %llu pages",
			(unsigned long long)(bytes - table->start), (unsigned long long)stored);
	return 0;
}

static int parse(const uint8_t *data, const struct pages_what *what, const struct snapshot_memory *base,
	struct pages_table *table, char *why)
{
	struct state_reader reader;
	uint64_t stored, zeros, start;
	int r;

	state_reader_init(&reader, data, table->start);
	r = check_kind(&reader, base, why);
	if (r < 0)
		return r;
	if (checksum(data, table->start) != what->table_sum)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG,
			"is damaged, or not the one that was saved with this state: the checksum of its maps "
			"is another");
	stored = state_get_u64(&reader);
	zeros = state_get_u64(&reader);
	start = state_get_u64(&reader);
	if (start != table->start)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG, "has its first page at %llu, not %llu",
			(unsigned long long)start, (unsigned long long)table->start);
	for (uint64_t i = 0; i < 2 * table->memory_pages / WORD_BITS; i++)
		table->stored[i] = state_get_u64(&reader);
	table->stored_count = count_bits(table->stored, table->memory_pages);
	table->zero_count = count_bits(table->zero, table->memory_pages);
	return check_maps(table, stored, zeros, what->bytes, why);
}

int pages_open(int fd, const struct pages_what *what, const struct snapshot_memory *base,
	struct pages_table *table, char *why)
{
	uint8_t *data = NULL;
	ssize_t got;
	int r = pages_table_init(table, base->size);

	if (r == 0)
		data = malloc(table->start);
	if (!data)
		r = reason_set(why, SNAPSHOT_WHY_MAX, -ENOMEM, "cannot be read: %s", strerror(ENOMEM));
	if (r == 0)
		r = check_size(fd, what, table->start, why);
	if (r == 0) {
		got = io_pread_full(fd, data, table->start, 0);
		if (got != (ssize_t)table->start) {
			r = got < 0 ? (int)got : -EIO;
			reason_set(why, SNAPSHOT_WHY_MAX, r, "cannot be read: %s", strerror(-r));
		}
	}
	if (r == 0)
		r = parse(data, what, base, table, why);
	free(data);
	if (r < 0)
		pages_table_finish(table);
	return r;
}
