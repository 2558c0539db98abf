/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the trace: what it holds, for trace.c, which fills it, and trace_json.c, which writes it. */
#ifndef VMM_TRACE_PARTS_H
#define VMM_TRACE_PARTS_H

#include "vmm/trace.h"
#include <pthread.h>

enum trace_kind {
	TRACE_PHASE,
	TRACE_IOCTL,
	TRACE_EXIT,
	TRACE_IRQ,
	TRACE_NOTIFY,
	TRACE_MARK,
	TRACE_INITCALL,
};

/* Which of the guest's reasons have an address. */
enum trace_space { TRACE_NO_SPACE, TRACE_PORTS, TRACE_MMIO };

struct trace_exit {
	uint64_t guest_ns; /* in KVM_RUN before it */
	uint64_t address, value;
	uint32_t items; /* of one size, for one address */
	uint8_t reason, space, size;
	bool write;
};

/* Times are ns since the start. */
struct trace_event {
	uint64_t at, took;
	uint8_t kind, thread; /* 0: the VMM's own, 1 + N: CPU N's */
	union {
		const char *phase;
		struct {
			unsigned long request, argument;
			int result;
		} ioctl;
		struct trace_exit exit;
		struct {
			unsigned pin;
			int vector;
		} irq;
		struct {
			const void *device;
			unsigned queue;
		} notify;
		struct {
			const char *name; /* NULL: the guest's, by value */
			uint8_t value;
		} mark;
		struct {
			uint32_t name; /* in strings */
			int returned;
		} initcall;
	};
};

struct trace_count {
	uint64_t count, ns;
};

struct trace_exit_count {
	uint64_t count, handle_ns, guest_ns, items;
};

/* Boots are what the totals were at the hello. */
struct trace_row {
	bool used;
	bool other; /* any address: there were too many */
	struct trace_exit key;
	struct trace_exit_count total, boot;
};

struct trace_ioctl_row {
	unsigned long request;
	struct trace_count total, boot;
	uint64_t before_run;
};

struct trace_queue_row {
	const void *device;
	unsigned queue;
	struct trace_count total, boot;
};

struct trace_pin_row {
	uint64_t total, boot;
};

struct trace_mark_row {
	const char *name; /* as of an event */
	uint8_t value;
	uint64_t at;
};

/* A vCPU; its thread's alone, but for has_thread and thread. */
struct trace_lane {
	bool has_thread;
	pthread_t thread;
	uint64_t entered, left; /* ns since the start */
	bool pending;		/* an exit is being handled */
	struct trace_exit exit;
	struct trace_row *row; /* of that */
};

/* By reason, address, direction and size, in a table with open addressing, twice as large as its bound;
 * behind it the rows for what found no place, one a reason. */
enum { TRACE_ROW_SLOTS = 2 * TRACE_ROWS_MAX, TRACE_REASONS_MAX = 64 };

struct trace {
	uint64_t start; /* CLOCK_MONOTONIC, ns */
	uint64_t cpu;
	struct trace_lane lanes[TRACE_CPUS_MAX];

	pthread_mutex_t lock; /* over all that follows, and lanes' threads */
	bool closed;
	bool ran;		/* the guest has been entered */
	const char *entry_mark; /* of that */
	uint64_t hello;		/* ns since the start; 0: not yet */
	struct trace_event *events;
	size_t count, room;
	uint64_t dropped, marks_dropped;
	struct trace_row rows[TRACE_ROW_SLOTS], others[TRACE_REASONS_MAX];
	unsigned row_count;
	struct trace_ioctl_row ioctls[TRACE_IOCTLS_MAX];
	unsigned ioctl_count;
	struct trace_queue_row queues[TRACE_QUEUES_MAX];
	unsigned queue_count;
	struct trace_pin_row pins[TRACE_PINS_MAX];
	struct trace_mark_row marks[TRACE_MARKS_MAX];
	unsigned mark_count;
	char strings[TRACE_STRINGS_MAX];
	size_t string_used;
	char line[TRACE_LINE_MAX]; /* of the console, so far */
	size_t line_length;
};

/*
 * trace_lines.c: "initcall NAME returned R after N usecs", wherever it stands in the line. True: *name is a
 * part of the line of *length bytes.
 */
bool trace_parse_initcall(
	const char *line, const char **name, size_t *length, int *returned, uint64_t *usecs);

/* trace_names.c. NULL: it has no name. number: its argument is one. */
const char *trace_ioctl_name(unsigned long request, bool *number);
const char *trace_mark_name(uint8_t value);

#endif
