/* SPDX-License-Identifier: Apache-2.0 */
/* One event, and what it shares with the totals: names, accesses, numbers. */
#include "host-ctl/report/trace_reader.h"
#include "host-ctl/support/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_AT_FIRST = 1024, NS_PER_US = 1000, ADDRESS_DIGITS = 18 };

/* ---- names ---- */

/* The array with room for one more, which takes its place; NULL (said): there is no memory, and it stays. */
static void *make_room(struct trace_reader *reader, void *array, size_t count, size_t size, size_t *room)
{
	size_t larger = *room ? 2 * *room : ROOM_AT_FIRST;
	void *grown;

	if (count < *room)
		return array;
	grown = realloc(array, larger * size);
	if (grown)
		*room = larger;
	else
		trace_refuse_memory(reader);
	return grown;
}

int trace_keep_name(struct trace_reader *reader, const char *name, uint32_t *place)
{
	struct trace *trace = reader->trace;
	char clean[TRACE_NAME_MAX], (*names)[TRACE_NAME_MAX];
	json_t *known;

	text_copy_printable(clean, sizeof(clean), name, strlen(name));
	/* The empty one is the first, and of what has no name. */
	if (!clean[0] && trace->name_count > 0)
		snprintf(clean, sizeof(clean), "?");
	known = json_object_get(reader->index, clean);
	if (known) {
		*place = (uint32_t)json_integer_value(known);
		return 0;
	}
	if (trace->name_count == TRACE_NAMES_MAX)
		return trace_refuse(reader, TRACE_MEND,
			"it has more than the %d different names that are kept", TRACE_NAMES_MAX);
	names = make_room(
		reader, trace->names, trace->name_count, sizeof(trace->names[0]), &reader->name_room);
	if (!names)
		return -1;
	trace->names = names;
	*place = (uint32_t)trace->name_count;
	memcpy(trace->names[trace->name_count++], clean, sizeof(clean));
	if (json_object_set_new(reader->index, clean, json_integer(*place)) < 0)
		return trace_refuse_memory(reader);
	return 0;
}

int trace_keep_access(struct trace_reader *reader, const char *reason, const json_t *object, uint32_t *place)
{
	const json_t *port = json_object_get(object, "port"), *address = json_object_get(object, "address");
	const json_t *write = json_object_get(object, "write");
	const char *where = json_string_value(port ? port : address);
	char access[TRACE_NAME_MAX];

	if (!port && !address) {
		*place = 0;
		return 0;
	}
	/* The row of what found none of its own has neither. */
	snprintf(access, sizeof(access), "%.16s %.*s%s", reason, ADDRESS_DIGITS, where ? where : "elsewhere",
		json_is_true(write)    ? " write"
		: json_is_false(write) ? " read"
				       : "");
	return trace_keep_name(reader, access, place);
}

bool trace_read_us(const json_t *number, uint64_t *ns)
{
	double us = json_number_value(number);

	if (!json_is_number(number) || !(us >= 0) || us * NS_PER_US > (double)TRACE_TIME_MAX_NS)
		return false;
	*ns = (uint64_t)(us * NS_PER_US + 0.5);
	return true;
}

bool trace_read_count(const json_t *number, uint64_t *count)
{
	if (!json_is_integer(number) || json_integer_value(number) < 0)
		return false;
	*count = (uint64_t)json_integer_value(number);
	return true;
}

/* ---- events ---- */

static int refuse_event(struct trace_reader *reader, const char *what)
{
	return trace_refuse(reader, TRACE_MEND, "event %zu %s", reader->taken, what);
}

/* False: the category is none of ours. */
static bool find_kind(const char *category, enum trace_kind *kind)
{
	static const char *const names[TRACE_KINDS] = {
		[TRACE_PHASE] = "phase",
		[TRACE_IOCTL] = "ioctl",
		[TRACE_EXIT] = "exit",
		[TRACE_IRQ] = "irq",
		[TRACE_NOTIFY] = "notify",
		[TRACE_MARK] = "mark",
		[TRACE_INITCALL] = "initcall",
	};

	for (size_t i = 0; i < TRACE_KINDS; i++) {
		if (strcmp(names[i], category) != 0)
			continue;
		*kind = (enum trace_kind)i;
		return true;
	}
	return false;
}

static int take_times(
	struct trace_reader *reader, const json_t *object, bool lasts, struct trace_event *event)
{
	if (!trace_read_us(json_object_get(object, "ts"), &event->start))
		return refuse_event(reader, "has a ts that is no time from 0 us to 24 h");
	if (lasts && !trace_read_us(json_object_get(object, "dur"), &event->duration))
		return refuse_event(reader, "has a dur that is no time from 0 us to 24 h");
	return 0;
}

/* The device where there is one, and what of it was touched. */
static int take_exit(
	struct trace_reader *reader, const char *reason, const json_t *arguments, struct trace_event *event)
{
	const char *device = json_string_value(json_object_get(arguments, "device"));
	const json_t *guest = json_object_get(arguments, "guest_us");

	if (guest && !trace_read_us(guest, &event->guest))
		return refuse_event(reader, "has a guest_us that is no time from 0 us to 24 h");
	if (trace_keep_access(reader, reason, arguments, &event->detail) < 0)
		return -1;
	return trace_keep_name(reader, device ? device : event->detail ? "nobody" : reason, &event->name);
}

static int keep_event(struct trace_reader *reader, const struct trace_event *event)
{
	struct trace *trace = reader->trace;
	struct trace_event *events;

	if (trace->event_count == TRACE_EVENTS_MAX)
		return trace_refuse(reader, "trace a shorter time",
			"it has more than the %d events that are read", TRACE_EVENTS_MAX);
	events =
		make_room(reader, trace->events, trace->event_count, sizeof(trace->events[0]), &reader->room);
	if (!events)
		return -1;
	trace->events = events;
	trace->events[trace->event_count++] = *event;
	return 0;
}

int trace_take_event(struct trace_reader *reader, const json_t *object)
{
	const char *phase = json_string_value(json_object_get(object, "ph"));
	const char *category = json_string_value(json_object_get(object, "cat"));
	const char *name = json_string_value(json_object_get(object, "name"));
	const json_t *arguments = json_object_get(object, "args");
	struct trace_event event = {0};
	uint64_t lane = 0;
	bool lasts;

	reader->taken++;
	if (!phase || !name)
		return refuse_event(reader, json_is_object(object) ? "has no ph or no name" : "is no object");
	lasts = strcmp(phase, "X") == 0;
	if ((!lasts && strcmp(phase, "i") != 0) || !category || !find_kind(category, &event.kind))
		return 0;
	if (take_times(reader, object, lasts, &event) < 0)
		return -1;
	if (!trace_read_count(json_object_get(object, "tid"), &lane) || lane > UINT32_MAX)
		return refuse_event(reader, "has a tid that is no number of a thread");
	event.lane = (uint32_t)lane;
	if (event.kind == TRACE_EXIT ? take_exit(reader, name, arguments, &event) < 0
				     : trace_keep_name(reader, name, &event.name) < 0)
		return -1;
	return keep_event(reader, &event);
}
