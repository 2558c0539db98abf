/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace says, in lists that terminal, page, JSON and comparison all show: each row has a name, perhaps
 * a detail, and those of count, time and start that its list has.
 *
 * A report is of the boot, up to the agent's hello; or of the whole trace, where it is asked for or there was
 * no hello. Counts and times of exits, ioctls, interrupts and notifications are totals that the vmm counted
 * itself, so they are whole even where events were dropped.
 */
#ifndef HOST_CTL_REPORT_H
#define HOST_CTL_REPORT_H

#include "host-ctl/report/trace.h"

enum report_list {
	REPORT_STAGES,	  /* from mark to mark */
	REPORT_PHASES,	  /* of vmm's set-up */
	REPORT_DEVICES,	  /* returns of KVM_RUN by device, or reason where there is none */
	REPORT_REGISTERS, /* the same by register and port */
	REPORT_IOCTLS,	  /* but KVM_RUN */
	REPORT_IRQS,
	REPORT_NOTIFICATIONS,
	REPORT_INITCALLS,
	REPORT_COUNTERS, /* of KVM, of the process, of memory */
	REPORT_LISTS
};

/* What a list is called, and which columns it has. */
struct report_shape {
	const char *key;   /* in JSON */
	const char *title; /* for people */
	const char *one;   /* what a row names */
	bool counts, times, guest, starts;
	bool by_time; /* sorted by that, though it has counts */
};
extern const struct report_shape report_shapes[REPORT_LISTS];

enum {
	REPORT_NAME_MAX = 2 * TRACE_NAME_MAX,
	REPORT_ROWS_MAX = 65536, /* of a list; events beyond are left out, and counted */
};

struct report_row {
	char name[REPORT_NAME_MAX];
	const char *detail; /* empty: none; lives as long as the trace */
	uint64_t count, ns, guest_ns, start;
	unsigned depth; /* of phases: in how many others it lies */
};

struct report_rows {
	struct report_row *rows;
	size_t count, room;
	size_t left_out;
};

struct report {
	const struct trace *trace;
	const char *file;
	enum trace_scope scope;
	const struct report *palette; /* whose devices have which colour; NULL: its own */
	uint64_t end;		      /* ns: what is later is not part of it; at least 1 */
	struct report_rows lists[REPORT_LISTS];
	/* Sums. */
	uint64_t returns, handle_ns, guest_ns, ioctls, ioctl_ns, before_run, irqs, notifications;
};

/* file: what it is called; lives as long as the report, as the trace does. 0 or -ENOMEM; finish in either
 * case. */
int report_init(struct report *report, const struct trace *trace, const char *file, bool whole);
void report_finish(struct report *report);

/* The counter of that name; false: there is none. */
bool report_find_counter(const struct report *report, const char *name, uint64_t *value);

#endif
