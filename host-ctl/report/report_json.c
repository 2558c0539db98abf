/* SPDX-License-Identifier: Apache-2.0 */
/* Reports for programs. Times are whole nanoseconds. */
#include "host-ctl/report/report_show.h"

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *row_to_json(const struct report_shape *shape, const struct report_row *row)
{
	json_t *object = json_object();

	json_object_set_new(object, "name", json_string(row->name));
	if (row->detail[0])
		json_object_set_new(object, "detail", json_string(row->detail));
	if (shape->counts)
		json_object_set_new(object, "count", number(row->count));
	if (shape->starts)
		json_object_set_new(object, "start_ns", number(row->start));
	if (shape->times)
		json_object_set_new(object, "ns", number(row->ns));
	if (shape->guest)
		json_object_set_new(object, "guest_ns", number(row->guest_ns));
	return object;
}

json_t *report_to_json(const struct report *report)
{
	const struct trace *trace = report->trace;
	json_t *object =
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I}",
			"file", report->file, "kind", trace->kind, "vmm", trace->vmm, "host", trace->host,
			"host_kernel", trace->host_kernel, "command", trace->command, "memory",
			(json_int_t)trace->memory, "cpus", (json_int_t)trace->cpus, "hello", trace->has_hello,
			"end_ns", (json_int_t)report->end, "guest_ns", (json_int_t)report->guest_ns,
			"handle_ns", (json_int_t)report->handle_ns, "ioctl_ns", (json_int_t)report->ioctl_ns,
			"returns", (json_int_t)report->returns, "dropped", (json_int_t)trace->dropped);

	for (size_t i = 0; object && i < REPORT_LISTS; i++) {
		const struct report_rows *list = &report->lists[i];
		json_t *array = json_array();

		for (size_t j = 0; j < list->count; j++)
			json_array_append_new(array, row_to_json(&report_shapes[i], &list->rows[j]));
		json_object_set_new(object, report_shapes[i].key, array);
	}
	return object;
}

json_t *changes_to_json(const struct changes *changes)
{
	json_t *array = json_array();

	for (size_t i = 0; i < changes->count; i++) {
		const struct change *change = &changes->changes[i];

		json_array_append_new(array,
			json_pack("{s:s, s:s, s:s*, s:s, s:I, s:I, s:b}", "list", changes_place_key(change),
				"name", change->name, "detail", change->detail[0] ? change->detail : NULL,
				"unit", change->unit == CHANGE_NS ? "ns" : "count", "before",
				(json_int_t)change->before, "after", (json_int_t)change->after, "small",
				change->small));
	}
	return json_pack("{s:s, s:s, s:i, s:o}", "before", changes->before->file, "after",
		changes->after->file, "bound_percent", (int)changes->bound, "changes", array);
}
