/* SPDX-License-Identifier: Apache-2.0 */
/* The trace as docs/trace.md has it. Keys and their order are there. */
#include "vmm/json.h"
#include "vmm/trace_parts.h"
#include <stdio.h>
#include <unistd.h>

enum { THREAD_INITCALLS = 100, NAME_MAX_SHOWN = 32 };

struct writer {
	const struct trace *trace;
	const struct trace_names *names;
	struct json *json;
	int pid;
};

static void put_key_text(struct json *json, const char *key, const char *text)
{
	json_key(json, key);
	json_text(json, text);
}

static void put_key_integer(struct json *json, const char *key, int64_t value)
{
	json_key(json, key);
	json_integer(json, value);
}

static void put_key_unsigned(struct json *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_unsigned(json, value);
}

static void put_key_us(struct json *json, const char *key, uint64_t ns)
{
	json_key(json, key);
	json_us(json, ns);
}

static void put_key_hex(struct json *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_hex(json, value);
}

static const char *name_reason(const struct writer *writer, unsigned reason, char text[NAME_MAX_SHOWN])
{
	const char *name = writer->names->reason(reason);

	snprintf(text, NAME_MAX_SHOWN, "reason %u", reason);
	return name ? name : text;
}

static const char *name_ioctl(unsigned long request, bool *number, char text[NAME_MAX_SHOWN])
{
	const char *name = trace_ioctl_name(request, number);

	snprintf(text, NAME_MAX_SHOWN, "0x%lx", request);
	return name ? name : text;
}

static const char *name_mark(const char *name, uint8_t value, char text[NAME_MAX_SHOWN])
{
	if (!name)
		name = trace_mark_name(value);
	snprintf(text, NAME_MAX_SHOWN, "mark %u", value);
	return name ? name : text;
}

static const char *name_pin(const struct writer *writer, unsigned pin, char text[NAME_MAX_SHOWN])
{
	const char *name = writer->names->pin(writer->names->context, pin);

	snprintf(text, NAME_MAX_SHOWN, "pin %u", pin);
	return name ? name : text;
}

static const char *name_device(const struct writer *writer, const void *device, unsigned *number)
{
	const char *name = writer->names->device(writer->names->context, device, number);

	return name ? name : "(none)";
}

static const char *name_window(const struct writer *writer, const struct trace_exit *exit)
{
	return writer->names->window(
		writer->names->context, exit->space == TRACE_PORTS, exit->address, exit->size);
}

/* --- events --- */

static void put_name(const struct writer *writer, const char *name, unsigned thread)
{
	struct json *json = writer->json;

	json_break(json);
	json_open(json, '{');
	put_key_text(json, "name", thread == 0 && !name ? "process_name" : "thread_name");
	put_key_text(json, "ph", "M");
	put_key_integer(json, "pid", writer->pid);
	put_key_integer(json, "tid", thread);
	json_key(json, "args");
	json_open(json, '{');
	put_key_text(json, "name", name ? name : "vmm");
	json_close(json, '}');
	json_close(json, '}');
}

static void put_threads(const struct writer *writer)
{
	put_name(writer, NULL, 0);
	put_name(writer, "vmm", 0);
	for (unsigned i = 0; i < TRACE_CPUS_MAX; i++) {
		char name[NAME_MAX_SHOWN];

		snprintf(name, sizeof(name), "cpu%u", i);
		if (writer->trace->lanes[i].has_thread)
			put_name(writer, name, i + 1);
	}
	if (writer->trace->string_used > 0)
		put_name(writer, "initcalls", THREAD_INITCALLS);
}

static void put_exit(const struct writer *writer, const struct trace_exit *exit)
{
	struct json *json = writer->json;

	put_key_us(json, "guest_us", exit->guest_ns);
	if (exit->space == TRACE_NO_SPACE)
		return;
	put_key_hex(json, exit->space == TRACE_PORTS ? "port" : "address", exit->address);
	json_key(json, "write");
	json_bool(json, exit->write);
	put_key_integer(json, "size", exit->size);
	put_key_hex(json, "value", exit->value);
	if (exit->items != 1)
		put_key_unsigned(json, "count", exit->items);
	if (name_window(writer, exit))
		put_key_text(json, "device", name_window(writer, exit));
}

static void put_arguments(const struct writer *writer, const struct trace_event *event)
{
	struct json *json = writer->json;
	unsigned number = 0;
	bool is_number;

	switch (event->kind) {
	case TRACE_IOCTL:
		put_key_integer(json, "result", event->ioctl.result);
		trace_ioctl_name(event->ioctl.request, &is_number);
		if (is_number)
			put_key_unsigned(json, "argument", event->ioctl.argument);
		break;
	case TRACE_EXIT:
		put_exit(writer, &event->exit);
		break;
	case TRACE_IRQ:
		put_key_unsigned(json, "pin", event->irq.pin);
		put_key_integer(json, "vector", event->irq.vector);
		break;
	case TRACE_NOTIFY:
		name_device(writer, event->notify.device, &number);
		put_key_unsigned(json, "number", number);
		put_key_unsigned(json, "queue", event->notify.queue);
		break;
	case TRACE_MARK:
		if (!event->mark.name)
			put_key_unsigned(json, "value", event->mark.value);
		break;
	case TRACE_INITCALL:
		put_key_integer(json, "returned", event->initcall.returned);
		break;
	default:
		break;
	}
}

static const char *name_event(
	const struct writer *writer, const struct trace_event *event, char text[NAME_MAX_SHOWN])
{
	unsigned number;
	bool is_number;

	switch (event->kind) {
	case TRACE_PHASE:
		return event->phase;
	case TRACE_IOCTL:
		return name_ioctl(event->ioctl.request, &is_number, text);
	case TRACE_EXIT:
		return name_reason(writer, event->exit.reason, text);
	case TRACE_IRQ:
		return name_pin(writer, event->irq.pin, text);
	case TRACE_NOTIFY:
		return name_device(writer, event->notify.device, &number);
	case TRACE_MARK:
		return name_mark(event->mark.name, event->mark.value, text);
	default:
		return writer->trace->strings + event->initcall.name;
	}
}

static void put_event(const struct writer *writer, const struct trace_event *event)
{
	static const struct {
		const char *category, *scope; /* scope: an instant's */
	} kinds[] = {
		[TRACE_PHASE] = {"phase", NULL},
		[TRACE_IOCTL] = {"ioctl", NULL},
		[TRACE_EXIT] = {"exit", NULL},
		[TRACE_IRQ] = {"irq", "t"},
		[TRACE_NOTIFY] = {"notify", NULL},
		[TRACE_MARK] = {"mark", "p"},
		[TRACE_INITCALL] = {"initcall", NULL},
	};
	const char *scope = kinds[event->kind].scope;
	struct json *json = writer->json;
	char text[NAME_MAX_SHOWN];

	json_break(json);
	json_open(json, '{');
	put_key_text(json, "name", name_event(writer, event, text));
	put_key_text(json, "cat", kinds[event->kind].category);
	put_key_text(json, "ph", scope ? "i" : "X");
	put_key_us(json, "ts", event->at);
	if (scope)
		put_key_text(json, "s", scope);
	else
		put_key_us(json, "dur", event->took);
	put_key_integer(json, "pid", writer->pid);
	put_key_integer(json, "tid", event->kind == TRACE_INITCALL ? THREAD_INITCALLS : event->thread);
	if (event->kind != TRACE_PHASE) {
		json_key(json, "args");
		json_open(json, '{');
		put_arguments(writer, event);
		json_close(json, '}');
	}
	json_close(json, '}');
}

void trace_put_events(const struct trace *trace, const struct trace_names *names, struct json *json)
{
	const struct writer writer = {.trace = trace, .names = names, .json = json, .pid = getpid()};

	json_key(json, "traceEvents");
	json_open(json, '[');
	put_threads(&writer);
	for (size_t i = 0; i < trace->count; i++)
		put_event(&writer, &trace->events[i]);
	json_close(json, ']');
}

/* --- totals --- */

static void put_sums(const struct writer *writer)
{
	static const struct {
		const char *name;
		int64_t value;
	} bounds[] = {{"rows", TRACE_ROWS_MAX}, {"marks", TRACE_MARKS_MAX}, {"strings", TRACE_STRINGS_MAX}};
	const struct trace *trace = writer->trace;
	struct json *json = writer->json;

	put_key_integer(json, "pid", writer->pid);
	put_key_unsigned(json, "start_ns", trace->start);
	put_key_us(json, "cpu_before_main_us", trace->cpu);
	json_key(json, "hello_us");
	if (trace->hello > 0)
		json_us(json, trace->hello);
	else
		json_null(json);
	json_key(json, "bounds");
	json_open(json, '{');
	put_key_unsigned(json, "events", trace->room);
	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
		put_key_integer(json, bounds[i].name, bounds[i].value);
	json_close(json, '}');
	put_key_unsigned(json, "events", trace->count);
	put_key_unsigned(json, "dropped", trace->dropped);
}

static void put_marks(const struct writer *writer)
{
	const struct trace *trace = writer->trace;
	struct json *json = writer->json;

	json_break(json);
	json_key(json, "marks");
	json_open(json, '[');
	for (unsigned i = 0; i < trace->mark_count; i++) {
		const struct trace_mark_row *mark = &trace->marks[i];
		char text[NAME_MAX_SHOWN];

		json_open(json, '{');
		put_key_text(json, "name", name_mark(mark->name, mark->value, text));
		put_key_us(json, "us", mark->at);
		json_key(json, "value");
		if (mark->name)
			json_null(json);
		else
			json_unsigned(json, mark->value);
		json_close(json, '}');
	}
	json_close(json, ']');
	put_key_unsigned(json, "marks_dropped", trace->marks_dropped);
}

static void put_row(const struct writer *writer, const struct trace_row *row)
{
	struct json *json = writer->json;
	const struct trace_exit *key = &row->key;
	char text[NAME_MAX_SHOWN];

	json_break(json);
	json_open(json, '{');
	put_key_text(json, "reason", name_reason(writer, key->reason, text));
	if (key->space != TRACE_NO_SPACE) {
		json_key(json, key->space == TRACE_PORTS ? "port" : "address");
		if (row->other)
			json_null(json);
		else
			json_hex(json, key->address);
		json_key(json, "write");
		if (row->other)
			json_null(json);
		else
			json_bool(json, key->write);
		json_key(json, "size");
		if (row->other)
			json_null(json);
		else
			json_integer(json, key->size);
	}
	put_key_text(
		json, "device", row->other || key->space == TRACE_NO_SPACE ? NULL : name_window(writer, key));
	put_key_unsigned(json, "boot_count", row->boot.count);
	put_key_unsigned(json, "boot_handle_ns", row->boot.handle_ns);
	put_key_unsigned(json, "boot_guest_ns", row->boot.guest_ns);
	put_key_unsigned(json, "count", row->total.count);
	put_key_unsigned(json, "handle_ns", row->total.handle_ns);
	put_key_unsigned(json, "guest_ns", row->total.guest_ns);
	put_key_unsigned(json, "accesses", row->total.items);
	json_close(json, '}');
}

/* All returns of KVM_RUN, and the time in it. */
static struct trace_count put_rows(const struct writer *writer, struct trace_count *boot)
{
	const struct trace *trace = writer->trace;
	struct trace_count total = {0, 0};

	json_break(writer->json);
	json_key(writer->json, "exits");
	json_open(writer->json, '[');
	for (unsigned i = 0; i < TRACE_ROW_SLOTS + TRACE_REASONS_MAX; i++) {
		const struct trace_row *row =
			i < TRACE_ROW_SLOTS ? &trace->rows[i] : &trace->others[i - TRACE_ROW_SLOTS];

		if (!row->used)
			continue;
		put_row(writer, row);
		total.count += row->total.count;
		total.ns += row->total.guest_ns;
		boot->count += row->boot.count;
		boot->ns += row->boot.guest_ns;
	}
	json_close(writer->json, ']');
	return total;
}

static void put_counts(struct json *json, const struct trace_count *boot, const struct trace_count *total)
{
	put_key_unsigned(json, "boot_count", boot->count);
	put_key_unsigned(json, "boot_ns", boot->ns);
	put_key_unsigned(json, "count", total->count);
	put_key_unsigned(json, "ns", total->ns);
}

static void put_ioctl(struct json *json, const char *name, const struct trace_count *boot,
	const struct trace_count *total, uint64_t before_run)
{
	json_break(json);
	json_open(json, '{');
	put_key_text(json, "name", name);
	put_counts(json, boot, total);
	put_key_unsigned(json, "before_run", before_run);
	json_close(json, '}');
}

static void put_ioctls(
	const struct writer *writer, const struct trace_count *boot, const struct trace_count *total)
{
	struct json *json = writer->json;

	json_break(json);
	json_key(json, "ioctls");
	json_open(json, '[');
	put_ioctl(json, "KVM_RUN", boot, total, 0);
	for (unsigned i = 0; i < writer->trace->ioctl_count; i++) {
		const struct trace_ioctl_row *row = &writer->trace->ioctls[i];
		char text[NAME_MAX_SHOWN];
		bool is_number;

		put_ioctl(json, name_ioctl(row->request, &is_number, text), &row->boot, &row->total,
			row->before_run);
	}
	json_close(json, ']');
}

static void put_pins(const struct writer *writer)
{
	struct json *json = writer->json;

	json_break(json);
	json_key(json, "irqs");
	json_open(json, '[');
	for (unsigned i = 0; i < TRACE_PINS_MAX; i++) {
		const struct trace_pin_row *row = &writer->trace->pins[i];
		char text[NAME_MAX_SHOWN];

		if (row->total == 0)
			continue;
		json_open(json, '{');
		put_key_text(json, "device", name_pin(writer, i, text));
		put_key_unsigned(json, "pin", i);
		put_key_unsigned(json, "boot_count", row->boot);
		put_key_unsigned(json, "count", row->total);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void put_queues(const struct writer *writer)
{
	struct json *json = writer->json;

	json_break(json);
	json_key(json, "notifications");
	json_open(json, '[');
	for (unsigned i = 0; i < writer->trace->queue_count; i++) {
		const struct trace_queue_row *row = &writer->trace->queues[i];
		unsigned number = 0;

		json_open(json, '{');
		put_key_text(json, "device", name_device(writer, row->device, &number));
		put_key_unsigned(json, "number", number);
		put_key_unsigned(json, "queue", row->queue);
		put_counts(json, &row->boot, &row->total);
		json_close(json, '}');
	}
	json_close(json, ']');
}

void trace_put_totals(const struct trace *trace, const struct trace_names *names, struct json *json)
{
	const struct writer writer = {.trace = trace, .names = names, .json = json, .pid = getpid()};
	struct trace_count boot = {0, 0}, total;

	put_sums(&writer);
	put_marks(&writer);
	total = put_rows(&writer, &boot);
	json_break(json);
	json_key(json, "returns");
	json_open(json, '{');
	put_key_unsigned(json, "boot", boot.count);
	put_key_unsigned(json, "total", total.count);
	json_close(json, '}');
	put_ioctls(&writer, &boot, &total);
	put_pins(&writer);
	put_queues(&writer);
}
