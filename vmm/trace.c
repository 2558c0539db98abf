/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/trace_parts.h"
#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NS_PER_S = 1000000000, NS_PER_US = 1000 };

struct trace *trace_active;

uint64_t trace_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

int trace_start(uint64_t began, uint64_t cpu, size_t events)
{
	struct trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return -ENOMEM;
	trace->room = events < TRACE_EVENTS_MAX ? events : TRACE_EVENTS_MAX;
	/* Only what is used becomes memory. */
	trace->events = calloc(trace->room, sizeof(trace->events[0]));
	if (!trace->events) {
		free(trace);
		return -ENOMEM;
	}
	trace->entry_mark = "kernel";
	trace->start = began;
	trace->cpu = cpu;
	pthread_mutex_init(&trace->lock, NULL);
	trace_active = trace;
	return 0;
}

uint64_t trace_started(const struct trace *trace)
{
	return trace->start;
}

void trace_stop(void)
{
	struct trace *trace = trace_active;

	if (!trace)
		return;
	trace_active = NULL;
	pthread_mutex_destroy(&trace->lock);
	free(trace->events);
	free(trace);
}

void trace_name_entry(struct trace *trace, const char *mark)
{
	trace->entry_mark = mark;
}

bool trace_close(struct trace *trace)
{
	bool first;

	pthread_mutex_lock(&trace->lock);
	first = !trace->closed;
	trace->closed = true;
	pthread_mutex_unlock(&trace->lock);
	return first;
}

/* Since the start. */
static uint64_t now(const struct trace *trace)
{
	return trace_clock() - trace->start;
}

/* Whose thread this is; under the lock. */
static uint8_t find_thread(const struct trace *trace)
{
	pthread_t self = pthread_self();

	for (unsigned i = 0; i < TRACE_CPUS_MAX; i++)
		if (trace->lanes[i].has_thread && pthread_equal(trace->lanes[i].thread, self))
			return (uint8_t)(i + 1);
	return 0;
}

/* True, with the lock held: it is kept and counted. */
static bool enter(struct trace *trace)
{
	pthread_mutex_lock(&trace->lock);
	if (!trace->closed)
		return true;
	pthread_mutex_unlock(&trace->lock);
	return false;
}

static void leave(struct trace *trace)
{
	pthread_mutex_unlock(&trace->lock);
}

static void keep(struct trace *trace, const struct trace_event *event)
{
	if (trace->count == trace->room) {
		trace->dropped++;
		return;
	}
	trace->events[trace->count++] = *event;
}

static void add(struct trace_count *count, uint64_t ns)
{
	count->count++;
	count->ns += ns;
}

void trace_add_phase(struct trace *trace, uint64_t began, const char *name)
{
	struct trace_event event = {.kind = TRACE_PHASE, .at = began - trace->start, .phase = name};

	event.took = now(trace) - event.at;
	if (!enter(trace))
		return;
	keep(trace, &event);
	leave(trace);
}

/* NULL: there are more kinds than the VMM has. */
static struct trace_ioctl_row *find_ioctl(struct trace *trace, unsigned long request)
{
	unsigned i = 0;

	while (i < trace->ioctl_count && trace->ioctls[i].request != request)
		i++;
	if (i == TRACE_IOCTLS_MAX)
		return NULL;
	if (i == trace->ioctl_count)
		trace->ioctls[trace->ioctl_count++].request = request;
	return &trace->ioctls[i];
}

void trace_add_ioctl(
	struct trace *trace, uint64_t began, unsigned long request, unsigned long argument, int result)
{
	struct trace_event event = {.kind = TRACE_IOCTL,
		.at = began - trace->start,
		.ioctl = {.request = request, .argument = argument, .result = result}};
	struct trace_ioctl_row *row;

	event.took = now(trace) - event.at;
	if (!enter(trace))
		return;
	event.thread = find_thread(trace);
	row = find_ioctl(trace, request);
	if (row) {
		add(&row->total, event.took);
		row->before_run += !trace->ran;
	}
	keep(trace, &event);
	leave(trace);
}

/* Under the lock. */
static void keep_mark(struct trace *trace, const char *name, uint8_t value, uint64_t at)
{
	struct trace_event event = {.kind = TRACE_MARK,
		.thread = find_thread(trace),
		.at = at,
		.mark = {.name = name, .value = value}};

	/* That each is kept does not hang on how many events there were before. */
	if (trace->mark_count < TRACE_MARKS_MAX)
		trace->marks[trace->mark_count++] =
			(struct trace_mark_row){.name = name, .value = value, .at = at};
	else
		trace->marks_dropped++;
	keep(trace, &event);
}

/* --- exits --- */

static uint64_t get_value(const void *data, unsigned size)
{
	uint64_t value = 0;

	memcpy(&value, data, size < sizeof(value) ? size : sizeof(value));
	return value;
}

/* An item of a port, or the bytes of memory-mapped access: what is written, or what has been read. */
static uint64_t value_of(const struct kvm_run *run, const struct trace_exit *exit)
{
	if (exit->space == TRACE_MMIO)
		return get_value(run->mmio.data, exit->size);
	return get_value((const uint8_t *)run + run->io.data_offset, exit->size);
}

static void describe(const struct kvm_run *run, int result, struct trace_exit *exit)
{
	uint32_t reason = result < 0 ? KVM_EXIT_INTR : run->exit_reason;

	exit->reason = (uint8_t)(reason < TRACE_REASONS_MAX ? reason : TRACE_REASONS_MAX - 1);
	if (result < 0)
		return;
	if (reason == KVM_EXIT_IO) {
		exit->space = TRACE_PORTS;
		exit->address = run->io.port;
		exit->size = run->io.size;
		exit->items = run->io.count;
		exit->write = run->io.direction == KVM_EXIT_IO_OUT;
	} else if (reason == KVM_EXIT_MMIO) {
		exit->space = TRACE_MMIO;
		exit->address = run->mmio.phys_addr;
		exit->size = (uint8_t)run->mmio.len;
		exit->items = 1;
		exit->write = run->mmio.is_write;
	}
	if (exit->write)
		exit->value = value_of(run, exit);
}

static bool same_row(const struct trace_exit *a, const struct trace_exit *b)
{
	return a->reason == b->reason && a->address == b->address && a->write == b->write &&
	       a->size == b->size;
}

/* Where a row of the table is, or would be. */
static struct trace_row *place_of(struct trace *trace, const struct trace_exit *exit)
{
	uint64_t hash = ((exit->address * 2 + exit->write) * 16 + exit->size) * 64 + exit->reason;
	/* Knuth's multiplicative hash: addresses of a device differ in few bits. */
	size_t i = (size_t)((hash * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % TRACE_ROW_SLOTS;

	while (trace->rows[i].used && !same_row(&trace->rows[i].key, exit))
		i = (i + 1) % TRACE_ROW_SLOTS;
	return &trace->rows[i];
}

static struct trace_row *find_row(struct trace *trace, const struct trace_exit *exit)
{
	struct trace_row *row = place_of(trace, exit);

	if (row->used)
		return row;
	if (trace->row_count == TRACE_ROWS_MAX) {
		row = &trace->others[exit->reason];
		row->other = true;
	} else {
		trace->row_count++;
	}
	if (!row->used)
		row->key = *exit;
	row->used = true;
	return row;
}

void trace_add_return(struct trace *trace, unsigned cpu, const struct kvm_run *run, int result)
{
	struct trace_lane *lane = &trace->lanes[cpu];
	struct trace_exit exit = {0};

	lane->left = now(trace);
	exit.guest_ns = lane->left - lane->entered;
	describe(run, result, &exit);
	if (!enter(trace))
		return;
	lane->exit = exit;
	lane->row = find_row(trace, &exit);
	lane->row->total.count++;
	lane->row->total.items += exit.items;
	lane->row->total.guest_ns += exit.guest_ns;
	lane->pending = true;
	leave(trace);
}

/* The exit that was handled, if there was one; under the lock. */
static void finish_exit(struct trace *trace, unsigned cpu, uint64_t at, const struct kvm_run *run)
{
	struct trace_lane *lane = &trace->lanes[cpu];
	struct trace_event event = {.kind = TRACE_EXIT,
		.thread = (uint8_t)(cpu + 1),
		.at = lane->left,
		.took = at - lane->left,
		.exit = lane->exit};

	if (!lane->pending)
		return;
	lane->pending = false;
	if (event.exit.space != TRACE_NO_SPACE && !event.exit.write)
		event.exit.value = value_of(run, &event.exit);
	lane->row->total.handle_ns += event.took;
	keep(trace, &event);
}

void trace_add_stand(struct trace *trace, unsigned cpu, const struct kvm_run *run)
{
	uint64_t at = now(trace);

	if (!enter(trace))
		return;
	finish_exit(trace, cpu, at, run);
	leave(trace);
}

void trace_add_entry(struct trace *trace, unsigned cpu, const struct kvm_run *run)
{
	struct trace_lane *lane = &trace->lanes[cpu];
	uint64_t at = now(trace);

	if (!enter(trace))
		return;
	if (!lane->has_thread)
		lane->thread = pthread_self();
	lane->has_thread = true;
	finish_exit(trace, cpu, at, run);
	/* The others wait in KVM for this one to start them. */
	if (cpu == 0 && !trace->ran) {
		trace->ran = true;
		keep_mark(trace, trace->entry_mark, 0, at);
	}
	leave(trace);
	lane->entered = now(trace);
}

/* --- the rest --- */

void trace_add_irq(struct trace *trace, unsigned pin, int vector)
{
	struct trace_event event = {
		.kind = TRACE_IRQ, .at = now(trace), .irq = {.pin = pin, .vector = vector}};

	if (!enter(trace))
		return;
	event.thread = find_thread(trace);
	if (pin < TRACE_PINS_MAX)
		trace->pins[pin].total++;
	keep(trace, &event);
	leave(trace);
}

static struct trace_queue_row *find_queue(struct trace *trace, const void *device, unsigned queue)
{
	unsigned i = 0;

	while (i < trace->queue_count &&
		(trace->queues[i].device != device || trace->queues[i].queue != queue))
		i++;
	if (i == TRACE_QUEUES_MAX)
		return NULL;
	if (i == trace->queue_count)
		trace->queues[trace->queue_count++] =
			(struct trace_queue_row){.device = device, .queue = queue};
	return &trace->queues[i];
}

void trace_add_notify(struct trace *trace, uint64_t began, const void *device, unsigned queue)
{
	struct trace_event event = {.kind = TRACE_NOTIFY,
		.at = began - trace->start,
		.notify = {.device = device, .queue = queue}};
	struct trace_queue_row *row;

	event.took = now(trace) - event.at;
	if (!enter(trace))
		return;
	row = find_queue(trace, device, queue);
	if (row)
		add(&row->total, event.took);
	keep(trace, &event);
	leave(trace);
}

static void add_mark(struct trace *trace, const char *name, uint8_t value)
{
	uint64_t at = now(trace);

	if (!enter(trace))
		return;
	keep_mark(trace, name, value, at);
	leave(trace);
}

void trace_add_mark(struct trace *trace, const char *name)
{
	add_mark(trace, name, 0);
}

void trace_add_guest_mark(struct trace *trace, uint8_t value)
{
	add_mark(trace, NULL, value);
}

/* What is called boot ends here. */
static void copy_totals(struct trace *trace)
{
	for (unsigned i = 0; i < TRACE_ROW_SLOTS; i++)
		trace->rows[i].boot = trace->rows[i].total;
	for (unsigned i = 0; i < TRACE_REASONS_MAX; i++)
		trace->others[i].boot = trace->others[i].total;
	for (unsigned i = 0; i < trace->ioctl_count; i++)
		trace->ioctls[i].boot = trace->ioctls[i].total;
	for (unsigned i = 0; i < trace->queue_count; i++)
		trace->queues[i].boot = trace->queues[i].total;
	for (unsigned i = 0; i < TRACE_PINS_MAX; i++)
		trace->pins[i].boot = trace->pins[i].total;
}

void trace_add_hello(struct trace *trace)
{
	uint64_t at = now(trace);

	if (!enter(trace))
		return;
	if (trace->hello == 0) {
		trace->hello = at;
		keep_mark(trace, "hello", 0, at);
		copy_totals(trace);
	}
	leave(trace);
}

/* A line of the console is whole; under the lock. */
static void take_line(struct trace *trace, uint64_t at)
{
	struct trace_event event = {.kind = TRACE_INITCALL};
	const char *name;
	uint64_t usecs;
	size_t length;

	if (!trace_parse_initcall(trace->line, &name, &length, &event.initcall.returned, &usecs))
		return;
	if (length >= TRACE_STRINGS_MAX - trace->string_used) {
		trace->dropped++;
		return;
	}
	memcpy(trace->strings + trace->string_used, name, length);
	event.initcall.name = (uint32_t)trace->string_used;
	trace->string_used += length;
	trace->strings[trace->string_used++] = '\0';
	/* What the guest says it took may be anything. */
	event.took = usecs < at / NS_PER_US ? usecs * NS_PER_US : at;
	event.at = at - event.took;
	keep(trace, &event);
}

void trace_add_byte(struct trace *trace, uint8_t byte)
{
	uint64_t at = now(trace);

	if (!enter(trace))
		return;
	if (byte == '\n') {
		trace->line[trace->line_length] = '\0';
		take_line(trace, at);
		trace->line_length = 0;
	} else if (trace->line_length < TRACE_LINE_MAX - 1 && byte != '\0') {
		trace->line[trace->line_length++] = (char)byte;
	}
	leave(trace);
}
