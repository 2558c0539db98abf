/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace of `vmm --trace`, read into memory: Chrome's trace events as JSON (docs/trace.md).
 *
 * The file may be anybody's. It is read event by event, so that its whole tree is never in memory; names are
 * kept once, as printable ASCII (whatever else was in them is '?'), and cut off at TRACE_NAME_MAX. Times are
 * nanoseconds since the trace began. Each bound is one of those below; what is beyond it is refused in a
 * sentence that names the file, the event, the cause and the mend.
 */
#ifndef HOST_CTL_TRACE_H
#define HOST_CTL_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	TRACE_FORMAT = 1,
	TRACE_FILE_MAX = 512 * 1024 * 1024,
	/* Of one event, and of a member beside the events, otherData the largest: as a tree in memory a value
	 * takes up to 16 times its text. */
	TRACE_EVENT_MAX = 64 * 1024,
	TRACE_MEMBER_MAX = 32 * 1024 * 1024,
	TRACE_EVENTS_MAX = 2000000,
	TRACE_NAMES_MAX = 65536, /* different ones */
	TRACE_NAME_MAX = 96,	 /* with the NUL */
	TRACE_ROWS_MAX = 16384,	 /* of one list of totals */
	TRACE_REGIONS_MAX = 16,
	TRACE_BLOCKS_MAX = 1 << 20, /* of memory, in all regions */
	TRACE_NOTE_MAX = 1024,	    /* with the NUL; of a command line, longer ones are cut off */
	TRACE_ERROR_MAX = 512,
	TRACE_HOURS_MAX = 24,
};
#define TRACE_TIME_MAX_NS (TRACE_HOURS_MAX * UINT64_C(3600000000000))

/* What an event is: its category. */
enum trace_kind {
	TRACE_PHASE,	/* a part of what vmm does */
	TRACE_IOCTL,	/* a call of KVM, but KVM_RUN */
	TRACE_EXIT,	/* KVM_RUN has returned: what vmm did until the guest was entered again */
	TRACE_IRQ,	/* a device raised its interrupt */
	TRACE_NOTIFY,	/* a device served a queue that the guest had kicked */
	TRACE_MARK,	/* a moment of vmm's or the guest's */
	TRACE_INITCALL, /* of the guest's kernel */
	TRACE_KINDS
};

struct trace_event {
	uint64_t start, duration; /* ns; a moment has no duration */
	uint64_t guest;		  /* of an exit: ns in KVM_RUN before it */
	uint32_t name;	 /* in trace->names; of an exit the device, or the reason where there is none */
	uint32_t detail; /* the same: of an exit the register or port; 0: none */
	uint32_t lane;	 /* thread: 0 vmm's own, 1 + N that of CPU N */
	enum trace_kind kind;
};

/* Totals of otherData, which count what was dropped too. */
enum trace_list {
	TRACE_EXITS,
	TRACE_IOCTLS,
	TRACE_IRQS,
	TRACE_NOTIFICATIONS,
	TRACE_COUNTERS, /* of KVM and of the process */
	TRACE_LISTS
};

/* Up to the agent's hello, and up to the trace's end. */
enum trace_scope { TRACE_BOOT, TRACE_ALL, TRACE_SCOPES };

struct trace_row {
	uint32_t name, detail; /* as of an event */
	uint32_t reason;       /* of exits */
	uint64_t count[TRACE_SCOPES], ns[TRACE_SCOPES], guest_ns[TRACE_SCOPES];
	uint64_t before_run; /* of ioctls: how many came before the first KVM_RUN */
};

struct trace_rows {
	struct trace_row *rows;
	size_t count;
};

/* A piece of guest memory, and how many pages of each of its blocks are there. */
struct trace_region {
	uint64_t address, size;
	size_t first, count; /* in trace->blocks */
};

struct trace {
	char (*names)[TRACE_NAME_MAX]; /* the first is empty */
	struct trace_event *events;    /* in the order of their starts */
	size_t name_count, event_count;
	struct trace_rows lists[TRACE_LISTS];
	struct trace_region regions[TRACE_REGIONS_MAX];
	uint32_t *blocks;
	size_t region_count, block_count;
	uint64_t page, block, touched; /* bytes, bytes, pages; 0: the host did not tell */
	uint64_t returns[TRACE_SCOPES], dropped, memory, cpus, hello;
	bool has_hello;
	/* Empty where the trace has none. */
	char kind[TRACE_NAME_MAX], vmm[TRACE_NAME_MAX], host[TRACE_NAME_MAX], host_kernel[TRACE_NAME_MAX];
	char end[TRACE_NOTE_MAX], kernel_cmdline[TRACE_NOTE_MAX], command[TRACE_NOTE_MAX];
};

/* 0; or -1 with a sentence in error. Finish it in either case. */
int trace_load(struct trace *trace, const char *path, char error[TRACE_ERROR_MAX]);
/* The same of bytes in memory; path is what sentences call them. */
int trace_parse(
	struct trace *trace, const char *path, const char *text, size_t length, char error[TRACE_ERROR_MAX]);
void trace_finish(struct trace *trace);

#endif
