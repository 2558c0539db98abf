/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --trace writes down (docs/trace.md): when things happened and how long they took, in a bounded buffer
 * in memory, and totals of all of it. trace_json.c writes it out, vm_trace.c says what things are called.
 *
 * There is one trace in a process, as there is one log: trace_active is NULL, or set once before there are
 * threads. Each hook below is a test of it; nothing else happens, and no clock is read, while it is NULL.
 *
 * Any thread; the buffer has a lock. What a guest can do is write more than the bounds: events over
 * TRACE_EVENTS_MAX are counted and not kept; rows of totals over TRACE_ROWS_MAX are one for each reason; of
 * marks the first TRACE_MARKS_MAX are kept, of the text of its initcalls TRACE_STRINGS_MAX bytes.
 */
#ifndef VMM_TRACE_H
#define VMM_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json;
struct kvm_run;
struct trace;

enum {
	TRACE_FORMAT = 1, /* otherData.format */
	TRACE_EVENTS_MAX = 131072,
	TRACE_ROWS_MAX = 512,
	TRACE_MARKS_MAX = 64,
	TRACE_STRINGS_MAX = 65536,
	TRACE_IOCTLS_MAX = 64, /* kinds of them: the VMM has fewer */
	TRACE_QUEUES_MAX = 64, /* of all devices */
	TRACE_PINS_MAX = 32,
	TRACE_CPUS_MAX = 8,
	TRACE_LINE_MAX = 256, /* of the console; longer ones are cut */
};

extern struct trace *trace_active;

/* CLOCK_MONOTONIC in ns. */
uint64_t trace_clock(void);

/*
 * Begins the trace of this process; began: trace_clock() at its start, cpu: ns of CPU time it had used by
 * then. events: how many are kept, at most TRACE_EVENTS_MAX. Before any other thread. 0 or -ENOMEM.
 */
int trace_start(uint64_t began, uint64_t cpu, size_t events);
/* began. */
uint64_t trace_started(const struct trace *trace);
/* Forgets it: when no other thread is left. Takes none. */
void trace_stop(void);

/* What the guest's first entry is called, a constant; "kernel" if not this. Before it. */
void trace_name_entry(struct trace *trace, const char *mark);

/* Nothing is kept or counted any more. True for the first caller. */
bool trace_close(struct trace *trace);

/* Names of what is known by number, asked for when it is written out. context: the VM. */
struct trace_names {
	void *context;
	const char *(*reason)(unsigned reason);
	/* NULL: nobody answers there. */
	const char *(*window)(void *context, bool port, uint64_t address, unsigned size);
	const char *(*pin)(void *context, unsigned pin);
	const char *(*device)(void *context, const void *device, unsigned *number);
};

/*
 * trace_json.c: writes a closed trace as values of an open object: the key traceEvents; then, in another, the
 * keys of otherData from "start_ns" on that need no more than the trace and names.
 */
void trace_put_events(const struct trace *trace, const struct trace_names *names, struct json *json);
void trace_put_totals(const struct trace *trace, const struct trace_names *names, struct json *json);

/* What the hooks call when there is a trace. */
void trace_add_phase(struct trace *trace, uint64_t began, const char *name);
void trace_add_ioctl(
	struct trace *trace, uint64_t began, unsigned long request, unsigned long argument, int result);
void trace_add_entry(struct trace *trace, unsigned cpu, const struct kvm_run *run);
void trace_add_stand(struct trace *trace, unsigned cpu, const struct kvm_run *run);
void trace_add_return(struct trace *trace, unsigned cpu, const struct kvm_run *run, int result);
void trace_add_irq(struct trace *trace, unsigned pin, int vector);
void trace_add_notify(struct trace *trace, uint64_t began, const void *device, unsigned queue);
void trace_add_mark(struct trace *trace, const char *name);
void trace_add_guest_mark(struct trace *trace, uint8_t value);
void trace_add_byte(struct trace *trace, uint8_t byte);
void trace_add_hello(struct trace *trace);

static inline bool trace_is_on(void)
{
	return __builtin_expect(trace_active != NULL, false);
}

/* The start of what one of the next three ends; 0: there is no trace. */
static inline uint64_t trace_begin(void)
{
	return trace_is_on() ? trace_clock() : 0;
}

/* name: a constant. */
static inline void trace_phase(uint64_t began, const char *name)
{
	if (__builtin_expect(began != 0, false))
		trace_add_phase(trace_active, began, name);
}

/* argument: what was handed to the ioctl, of which only numbers are shown. */
static inline void trace_ioctl(uint64_t began, unsigned long request, unsigned long argument, int result)
{
	if (__builtin_expect(began != 0, false))
		trace_add_ioctl(trace_active, began, request, argument, result);
}

/* A device has served a queue; device: whatever tells it from others when the trace is written. */
static inline void trace_notify(uint64_t began, const void *device, unsigned queue)
{
	if (__builtin_expect(began != 0, false))
		trace_add_notify(trace_active, began, device, queue);
}

/* On the vCPU's thread, right before KVM_RUN: what the last exit asked for has been done. cpu: below
 * TRACE_CPUS_MAX. */
static inline void trace_entry(unsigned cpu, const struct kvm_run *run)
{
	if (trace_is_on())
		trace_add_entry(trace_active, cpu, run);
}

/* Right after it; result: 0 or -errno. */
static inline void trace_return(unsigned cpu, const struct kvm_run *run, int result)
{
	if (trace_is_on())
		trace_add_return(trace_active, cpu, run, result);
}

/* When the vCPU leaves the loop of these two. */
static inline void trace_stand(unsigned cpu, const struct kvm_run *run)
{
	if (trace_is_on())
		trace_add_stand(trace_active, cpu, run);
}

#endif
