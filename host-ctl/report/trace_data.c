/* SPDX-License-Identifier: Apache-2.0 */
/* otherData: the totals, and what they are of. */
#include "host-ctl/report/trace_reader.h"
#include "host-ctl/support/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8 }; /* the most that spend time at once */
/* So that no sum of rows can overflow. */
#define ROW_COUNT_MAX (UINT64_MAX / TRACE_ROWS_MAX / 4)

static int refuse_field(struct trace_reader *reader, const char *where, const char *field, const char *wanted)
{
	return trace_refuse(
		reader, TRACE_MEND, "otherData: %s%s%s is no %s", where, where[0] ? ": " : "", field, wanted);
}

/* A number that may be missing, which is 0 then. */
static int read_number(struct trace_reader *reader, const json_t *object, const char *where,
	const char *field, uint64_t *number)
{
	const json_t *value = json_object_get(object, field);

	*number = 0;
	if (value && !json_is_null(value) && !trace_read_count(value, number))
		return refuse_field(reader, where, field, "whole number from 0 on");
	return 0;
}

static void copy_text(char *to, size_t size, const json_t *value)
{
	const char *text = json_string_value(value);

	if (text)
		text_copy_printable(to, size, text, strlen(text));
}

/* ---- lists ---- */

/* How a list of otherData is laid out. Several may make one list here. */
static const struct layout {
	const char *field;
	enum trace_list list;
	const char *name;   /* the member that names a row */
	const char *prefix; /* before each name */
	const char *count[TRACE_SCOPES];
	const char *ns[TRACE_SCOPES], *guest[TRACE_SCOPES]; /* NULL: it has no times */
} layouts[] = {
	{"exits", TRACE_EXITS, "device", "", {"boot_count", "count"}, {"boot_handle_ns", "handle_ns"},
		{"boot_guest_ns", "guest_ns"}},
	{"ioctls", TRACE_IOCTLS, "name", "", {"boot_count", "count"}, {"boot_ns", "ns"}, {NULL, NULL}},
	{"irqs", TRACE_IRQS, "device", "", {"boot_count", "count"}, {NULL, NULL}, {NULL, NULL}},
	{"notifications", TRACE_NOTIFICATIONS, "device", "", {"boot_count", "count"}, {"boot_ns", "ns"},
		{NULL, NULL}},
	{"kvm", TRACE_COUNTERS, "name", "kvm ", {"boot", "total"}, {NULL, NULL}, {NULL, NULL}},
	{"process", TRACE_COUNTERS, "name", "process ", {"boot", "total"}, {NULL, NULL}, {NULL, NULL}},
};

/* Which of several devices of one name: its pin, its queue. */
static int name_place(
	struct trace_reader *reader, const struct layout *layout, const json_t *object, struct trace_row *row)
{
	const json_t *pin = json_object_get(object, "pin"), *queue = json_object_get(object, "queue");
	long long number = json_integer_value(json_object_get(object, "number"));
	char place[TRACE_NAME_MAX];

	if (layout->list == TRACE_IRQS && pin)
		snprintf(place, sizeof(place), "pin %lld", (long long)json_integer_value(pin));
	else if (layout->list == TRACE_NOTIFICATIONS && queue)
		snprintf(place, sizeof(place), "device %lld queue %lld", number,
			(long long)json_integer_value(queue));
	else
		return 0;
	return trace_keep_name(reader, place, &row->detail);
}

static int name_row(
	struct trace_reader *reader, const struct layout *layout, const json_t *object, struct trace_row *row)
{
	const char *name = json_string_value(json_object_get(object, layout->name));
	const char *reason = json_string_value(json_object_get(object, "reason"));
	char whole[TRACE_NAME_MAX];

	if (layout->list == TRACE_EXITS) {
		if (!reason)
			return refuse_field(reader, layout->field, "reason", "string");
		if (trace_keep_name(reader, reason, &row->reason) < 0 ||
			trace_keep_access(reader, reason, object, &row->detail) < 0)
			return -1;
		name = name ? name : row->detail ? "nobody" : reason;
	}
	if (!name)
		return refuse_field(reader, layout->field, layout->name, "string");
	if (name_place(reader, layout, object, row) < 0)
		return -1;
	snprintf(whole, sizeof(whole), "%s%.*s", layout->prefix, TRACE_NAME_MAX - 16, name);
	return trace_keep_name(reader, whole, &row->name);
}

static int take_row(
	struct trace_reader *reader, const struct layout *layout, const json_t *object, struct trace_row *row)
{
	if (!json_is_object(object))
		return refuse_field(reader, layout->field, "a row", "object");
	if (name_row(reader, layout, object, row) < 0 ||
		read_number(reader, object, layout->field, "before_run", &row->before_run) < 0)
		return -1;
	if (row->before_run > ROW_COUNT_MAX)
		return refuse_field(reader, layout->field, "a total", "number that can be");
	for (size_t scope = 0; scope < TRACE_SCOPES; scope++) {
		if (read_number(reader, object, layout->field, layout->count[scope], &row->count[scope]) < 0)
			return -1;
		if (layout->ns[scope] &&
			read_number(reader, object, layout->field, layout->ns[scope], &row->ns[scope]) < 0)
			return -1;
		if (layout->guest[scope] && read_number(reader, object, layout->field, layout->guest[scope],
						    &row->guest_ns[scope]) < 0)
			return -1;
		/* So that no sum of rows can overflow. */
		if (row->ns[scope] > TRACE_TIME_MAX_NS * LANES ||
			row->guest_ns[scope] > TRACE_TIME_MAX_NS * LANES || row->count[scope] > ROW_COUNT_MAX)
			return refuse_field(reader, layout->field, "a total", "number that can be");
	}
	return 0;
}

static int take_list(struct trace_reader *reader, const struct layout *layout, const json_t *data)
{
	const json_t *array = json_object_get(data, layout->field), *object;
	struct trace_rows *list = &reader->trace->lists[layout->list];
	size_t i, count = json_array_size(array);
	struct trace_row *rows;

	if (!array)
		return 0;
	if (!json_is_array(array) || count > TRACE_ROWS_MAX - list->count)
		return refuse_field(reader, "", layout->field, "array of at most 16384 rows");
	rows = realloc(list->rows, (list->count + count + 1) * sizeof(rows[0]));
	if (!rows)
		return trace_refuse_memory(reader);
	list->rows = rows;
	json_array_foreach(array, i, object)
	{
		rows[list->count] = (struct trace_row){0};
		if (take_row(reader, layout, object, &rows[list->count]) < 0)
			return -1;
		list->count++;
	}
	return 0;
}

/* ---- memory ---- */

static bool read_hex(const json_t *value, uint64_t *number)
{
	const char *text = json_string_value(value);
	char *end;

	if (!text || strncmp(text, "0x", 2) != 0 || strlen(text) < 3 || strlen(text) > 18)
		return false;
	*number = strtoull(text + 2, &end, 16);
	return *end == '\0' && text[2] != '-' && text[2] != '+' && text[2] != ' ';
}

static int take_blocks(struct trace_reader *reader, const json_t *array, struct trace_region *region)
{
	struct trace *trace = reader->trace;
	uint64_t most = trace->block / trace->page, pages;
	size_t i, count = json_array_size(array);
	const json_t *number;
	uint32_t *blocks;

	if (!json_is_array(array) || count > TRACE_BLOCKS_MAX - trace->block_count)
		return refuse_field(reader, "memory", "touched", "array of at most 1048576 blocks");
	blocks = realloc(trace->blocks, (trace->block_count + count + 1) * sizeof(blocks[0]));
	if (!blocks)
		return trace_refuse_memory(reader);
	trace->blocks = blocks;
	region->first = trace->block_count;
	region->count = count;
	json_array_foreach(array, i, number)
	{
		if (!trace_read_count(number, &pages) || pages > most)
			return refuse_field(reader, "memory", "touched", "number of pages of a block");
		blocks[trace->block_count++] = (uint32_t)pages;
	}
	return 0;
}

static int take_region(struct trace_reader *reader, const json_t *object)
{
	struct trace *trace = reader->trace;
	struct trace_region *region = &trace->regions[trace->region_count];

	if (trace->region_count == TRACE_REGIONS_MAX)
		return refuse_field(reader, "memory", "regions", "array of at most 16 regions");
	if (!read_hex(json_object_get(object, "address"), &region->address))
		return refuse_field(reader, "memory", "address", "hexadecimal number");
	if (read_number(reader, object, "memory", "size", &region->size) < 0 ||
		take_blocks(reader, json_object_get(object, "touched"), region) < 0)
		return -1;
	trace->region_count++;
	return 0;
}

static int take_memory(struct trace_reader *reader, const json_t *memory)
{
	enum { PAGE_LEAST = 4096, BLOCK_MOST = 1 << 30 };
	struct trace *trace = reader->trace;
	const json_t *region;
	size_t i;

	if (!json_is_object(memory))
		return 0;
	if (read_number(reader, memory, "memory", "page", &trace->page) < 0 ||
		read_number(reader, memory, "memory", "block", &trace->block) < 0 ||
		read_number(reader, memory, "memory", "touched", &trace->touched) < 0)
		return -1;
	if (trace->page < PAGE_LEAST || trace->block < trace->page || trace->block > BLOCK_MOST)
		return refuse_field(reader, "memory", "block", "size from a page to 1 GiB");
	json_array_foreach(
		json_object_get(memory, "regions"), i, region) if (take_region(reader, region) < 0) return -1;
	return 0;
}

/* ---- what it is of ---- */

/* The command line with spaces between; a word that has one is in quotes. */
static void join_command(char command[TRACE_NOTE_MAX], const json_t *words)
{
	size_t i, length = 0;
	json_t *word;

	json_array_foreach(words, i, word)
	{
		const char *text = json_string_value(word), *quote;

		if (!text || length >= TRACE_NOTE_MAX)
			continue;
		quote = text[0] == '\0' || strpbrk(text, " \t\"\\$`*?<>|&;()") ? "'" : "";
		length += (size_t)snprintf(command + length, TRACE_NOTE_MAX - length, "%s%s%s%s",
			i ? " " : "", quote, text, quote);
	}
	text_make_printable(command);
}

static void take_notes(struct trace *trace, const json_t *data)
{
	const json_t *host = json_object_get(data, "host"), *config = json_object_get(data, "config");

	copy_text(trace->kind, sizeof(trace->kind), json_object_get(config, "kind"));
	copy_text(trace->vmm, sizeof(trace->vmm), json_object_get(data, "vmm"));
	copy_text(trace->host, sizeof(trace->host), json_object_get(host, "cpu"));
	copy_text(trace->host_kernel, sizeof(trace->host_kernel), json_object_get(host, "kernel"));
	copy_text(trace->end, sizeof(trace->end), json_object_get(json_object_get(data, "end"), "reason"));
	copy_text(trace->kernel_cmdline, sizeof(trace->kernel_cmdline),
		json_object_get(data, "kernel_cmdline"));
	join_command(trace->command, json_object_get(data, "command"));
}

static int take_numbers(struct trace_reader *reader, const json_t *data)
{
	const json_t *returns = json_object_get(data, "returns"), *config = json_object_get(data, "config");
	const json_t *hello = json_object_get(data, "hello_us");
	struct trace *trace = reader->trace;

	if (read_number(reader, returns, "returns", "boot", &trace->returns[TRACE_BOOT]) < 0 ||
		read_number(reader, returns, "returns", "total", &trace->returns[TRACE_ALL]) < 0 ||
		read_number(reader, data, "", "dropped", &trace->dropped) < 0 ||
		read_number(reader, config, "config", "memory", &trace->memory) < 0 ||
		read_number(reader, config, "config", "cpus", &trace->cpus) < 0)
		return -1;
	trace->has_hello = hello && !json_is_null(hello);
	if (trace->has_hello && !trace_read_us(hello, &trace->hello))
		return refuse_field(reader, "", "hello_us", "time from 0 us to 24 h");
	return 0;
}

int trace_take_data(struct trace_reader *reader, const json_t *data)
{
	uint64_t format = 0;

	if (!trace_read_count(json_object_get(data, "format"), &format))
		return trace_refuse(reader, TRACE_MEND, "it is no trace of vmm: otherData has no format");
	if (format != TRACE_FORMAT)
		return trace_refuse(reader, "take the host-ctl that belongs to its vmm",
			"its format is %llu, and this host-ctl reads %d", (unsigned long long)format,
			TRACE_FORMAT);
	take_notes(reader->trace, data);
	if (take_numbers(reader, data) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (take_list(reader, &layouts[i], data) < 0)
			return -1;
	return take_memory(reader, json_object_get(data, "memory"));
}
