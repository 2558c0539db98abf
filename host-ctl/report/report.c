/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/report/report.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 8 };

const struct report_shape report_shapes[REPORT_LISTS] = {
	[REPORT_STAGES] = {"stages", "From mark to mark", "stage", .times = true, .starts = true},
	[REPORT_PHASES] = {"phases", "Phases of vmm", "phase", .times = true, .starts = true},
	[REPORT_DEVICES] = {"exits_by_device", "Returns of KVM_RUN by device", "device or reason",
		.counts = true, .times = true, .guest = true},
	[REPORT_REGISTERS] = {"exits_by_register", "Returns of KVM_RUN by register and port", "register",
		.counts = true, .times = true, .guest = true},
	[REPORT_IOCTLS] = {"ioctls", "ioctls of KVM, but KVM_RUN", "ioctl", .counts = true, .times = true,
		.by_time = true},
	[REPORT_IRQS] = {"interrupts", "Interrupts raised", "device", .counts = true},
	[REPORT_NOTIFICATIONS] = {"notifications", "Queues served after a kick", "device", .counts = true,
		.times = true},
	[REPORT_INITCALLS] = {"initcalls", "Initcalls of the guest's kernel", "initcall", .times = true,
		.starts = true},
	[REPORT_COUNTERS] = {"counters", "Counters", "counter", .counts = true},
};

static struct report_row *add_row(struct report_rows *list)
{
	size_t room = list->room ? 2 * list->room : 64;
	struct report_row *grown;

	if (list->count == list->room) {
		grown = realloc(list->rows, room * sizeof(grown[0]));
		if (!grown)
			return NULL;
		list->rows = grown;
		list->room = room;
	}
	list->rows[list->count] = (struct report_row){.detail = ""};
	return &list->rows[list->count++];
}

/* ---- orders ---- */

static int by_name(const void *left, const void *right)
{
	const struct report_row *a = left, *b = right;
	int order = strcmp(a->name, b->name);

	return order ? order : strcmp(a->detail, b->detail);
}

static int by_time(const void *left, const void *right)
{
	const struct report_row *a = left, *b = right;

	return a->ns != b->ns ? (a->ns < b->ns ? 1 : -1) : by_name(left, right);
}

static int by_count(const void *left, const void *right)
{
	const struct report_row *a = left, *b = right;

	return a->count != b->count ? (a->count < b->count ? 1 : -1) : by_time(left, right);
}

static void sort(struct report_rows *list, int (*order)(const void *, const void *))
{
	if (list->count > 1)
		qsort(list->rows, list->count, sizeof(list->rows[0]), order);
}

/* Rows of one name and detail become one. */
static void merge(struct report_rows *list)
{
	size_t kept = 0;

	sort(list, by_name);
	for (size_t i = 0; i < list->count; i++) {
		struct report_row *row = &list->rows[i], *last = &list->rows[kept ? kept - 1 : 0];

		if (kept == 0 || by_name(row, last) != 0) {
			list->rows[kept++] = *row;
			continue;
		}
		last->count += row->count;
		last->ns += row->ns;
		last->guest_ns += row->guest_ns;
	}
	list->count = kept;
}

/* ---- of events ---- */

static bool is_full(struct report_rows *list)
{
	if (list->count < REPORT_ROWS_MAX)
		return false;
	list->left_out++;
	return true;
}

static int add_event(struct report *report, enum report_list list, const struct trace_event *event)
{
	struct report_row *row;

	if (is_full(&report->lists[list]))
		return 0;
	row = add_row(&report->lists[list]);
	if (!row)
		return -ENOMEM;
	snprintf(row->name, sizeof(row->name), "%s", report->trace->names[event->name]);
	row->start = event->start;
	row->ns = event->duration;
	row->count = 1;
	return 0;
}

/* Longer ones first where several start at once, so that what lies in another comes after it. */
static int by_start(const void *left, const void *right)
{
	const struct report_row *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->ns != b->ns ? (a->ns < b->ns ? 1 : -1) : 0;
}

static void nest_phases(struct report_rows *list)
{
	uint64_t ends[DEPTH_MAX] = {0};
	unsigned depth = 0;

	sort(list, by_start);
	for (size_t i = 0; i < list->count; i++) {
		struct report_row *row = &list->rows[i];

		while (depth > 0 && row->start >= ends[depth - 1])
			depth--;
		row->depth = depth;
		if (depth < DEPTH_MAX)
			ends[depth++] = row->start + row->ns;
	}
}

/* One stage for each two marks: "kernel to init". The first begins with the process. */
static int add_stages(struct report *report)
{
	const struct trace *trace = report->trace;
	const char *from = "start";
	uint64_t since = 0;

	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];
		struct report_row *row;

		if (event->kind != TRACE_MARK || event->start > report->end ||
			is_full(&report->lists[REPORT_STAGES]))
			continue;
		row = add_row(&report->lists[REPORT_STAGES]);
		if (!row)
			return -ENOMEM;
		snprintf(row->name, sizeof(row->name), "%.90s to %.90s", from, trace->names[event->name]);
		row->start = since;
		row->ns = event->start - since;
		row->count = 1;
		since = event->start;
		from = trace->names[event->name];
	}
	return 0;
}

static int add_events(struct report *report)
{
	const struct trace *trace = report->trace;
	int r = add_stages(report);

	for (size_t i = 0; r == 0 && i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];

		if (event->start > report->end)
			break;
		if (event->kind == TRACE_PHASE)
			r = add_event(report, REPORT_PHASES, event);
		else if (event->kind == TRACE_INITCALL)
			r = add_event(report, REPORT_INITCALLS, event);
	}
	nest_phases(&report->lists[REPORT_PHASES]);
	sort(&report->lists[REPORT_INITCALLS], by_time);
	return r;
}

/* ---- of totals ---- */

static int add_total(
	struct report *report, enum report_list list, const struct trace_row *from, bool detailed)
{
	const struct trace *trace = report->trace;
	enum trace_scope scope = report->scope;
	struct report_row *row;

	if (from->count[scope] == 0)
		return 0;
	row = add_row(&report->lists[list]);
	if (!row)
		return -ENOMEM;
	snprintf(row->name, sizeof(row->name), "%s", trace->names[from->name]);
	row->detail = detailed ? trace->names[from->detail] : "";
	row->count = from->count[scope];
	row->ns = from->ns[scope];
	row->guest_ns = from->guest_ns[scope];
	return 0;
}

static int add_exits(struct report *report)
{
	const struct trace_rows *list = &report->trace->lists[TRACE_EXITS];
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->count; i++) {
		report->handle_ns += list->rows[i].ns[report->scope];
		report->guest_ns += list->rows[i].guest_ns[report->scope];
		r = add_total(report, REPORT_DEVICES, &list->rows[i], false);
		if (r == 0)
			r = add_total(report, REPORT_REGISTERS, &list->rows[i], true);
	}
	merge(&report->lists[REPORT_DEVICES]);
	merge(&report->lists[REPORT_REGISTERS]);
	sort(&report->lists[REPORT_DEVICES], by_count);
	sort(&report->lists[REPORT_REGISTERS], by_count);
	return r;
}

static int add_ioctls(struct report *report)
{
	const struct trace *trace = report->trace;
	const struct trace_rows *list = &trace->lists[TRACE_IOCTLS];
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->count; i++) {
		const struct trace_row *row = &list->rows[i];

		/* That is the guest itself. */
		if (strcmp(trace->names[row->name], "KVM_RUN") == 0)
			continue;
		report->ioctls += row->count[report->scope];
		report->ioctl_ns += row->ns[report->scope];
		report->before_run += row->before_run;
		r = add_total(report, REPORT_IOCTLS, row, false);
	}
	merge(&report->lists[REPORT_IOCTLS]);
	sort(&report->lists[REPORT_IOCTLS], by_time);
	return r;
}

/* *sum: of their counts. */
static int add_list(struct report *report, enum trace_list from, enum report_list to, uint64_t *sum)
{
	const struct trace_rows *list = &report->trace->lists[from];
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->count; i++) {
		*sum += list->rows[i].count[report->scope];
		r = add_total(report, to, &list->rows[i], true);
	}
	merge(&report->lists[to]);
	sort(&report->lists[to], by_count);
	return r;
}

static int add_counter(struct report *report, const char *name, uint64_t value)
{
	struct report_row *row = add_row(&report->lists[REPORT_COUNTERS]);

	if (!row)
		return -ENOMEM;
	snprintf(row->name, sizeof(row->name), "%s", name);
	row->count = value;
	return 0;
}

static int add_counters(struct report *report)
{
	const struct trace *trace = report->trace;
	uint64_t sum = 0;
	int r = add_list(report, TRACE_COUNTERS, REPORT_COUNTERS, &sum);

	if (r == 0 && trace->page)
		r = add_counter(report, "pages of guest memory touched", trace->touched);
	if (r == 0)
		r = add_counter(report, "ioctls of KVM before the first KVM_RUN", report->before_run);
	if (r == 0)
		r = add_counter(report, "events dropped", trace->dropped);
	return r;
}

/* The last moment of any event; where nothing was dropped, that is all there was. */
static uint64_t last_moment(const struct trace *trace)
{
	uint64_t last = 1;

	for (size_t i = 0; i < trace->event_count; i++) {
		uint64_t end = trace->events[i].start + trace->events[i].duration;

		last = end > last ? end : last;
	}
	return last;
}

int report_init(struct report *report, const struct trace *trace, const char *file, bool whole)
{
	int r;

	*report = (struct report){.trace = trace, .file = file};
	report->scope = trace->has_hello && !whole ? TRACE_BOOT : TRACE_ALL;
	report->end = report->scope == TRACE_BOOT ? trace->hello : last_moment(trace);
	if (report->end == 0)
		report->end = 1;
	report->returns = trace->returns[report->scope];
	r = add_events(report);
	if (r == 0)
		r = add_exits(report);
	if (r == 0)
		r = add_ioctls(report);
	if (r == 0)
		r = add_list(report, TRACE_IRQS, REPORT_IRQS, &report->irqs);
	if (r == 0)
		r = add_list(report, TRACE_NOTIFICATIONS, REPORT_NOTIFICATIONS, &report->notifications);
	return r == 0 ? add_counters(report) : r;
}

void report_finish(struct report *report)
{
	for (size_t i = 0; i < REPORT_LISTS; i++)
		free(report->lists[i].rows);
	*report = (struct report){0};
}

bool report_find_counter(const struct report *report, const char *name, uint64_t *value)
{
	const struct report_rows *list = &report->lists[REPORT_COUNTERS];

	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->rows[i].name, name) != 0)
			continue;
		*value = list->rows[i].count;
		return true;
	}
	return false;
}
