/* SPDX-License-Identifier: Apache-2.0 */
/* What reading a trace takes; for trace*.c alone. */
#ifndef HOST_CTL_TRACE_READER_H
#define HOST_CTL_TRACE_READER_H

#include "host-ctl/report/trace.h"
#include <jansson.h>

struct trace_reader {
	struct trace *trace;
	const char *path; /* for sentences */
	char *error;	  /* TRACE_ERROR_MAX */
	const char *text;
	size_t length, at;
	json_t *index;		/* name -> its place in trace->names */
	size_t taken;		/* events read, of every kind */
	size_t room, name_room; /* of trace->events and ->names */
	bool has_events, has_data;
};

/* Fills the sentence: the path, what is wrong, and the mend. Returns -1. */
int trace_refuse(struct trace_reader *reader, const char *mend, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

int trace_refuse_memory(struct trace_reader *reader);

/* The place of a name among trace->names, made fit to be shown. 0 or -1 (said). */
int trace_keep_name(struct trace_reader *reader, const char *name, uint32_t *place);
/* What the guest touched, for people: "mmio 0xfec00000 write"; the empty name where an exit touched nothing.
 */
int trace_keep_access(struct trace_reader *reader, const char *reason, const json_t *object, uint32_t *place);
/* A number of microseconds, or of anything counted. False: it is none, is below 0, or beyond the bound. */
bool trace_read_us(const json_t *number, uint64_t *ns);
bool trace_read_count(const json_t *number, uint64_t *count);

/* One element of traceEvents. 0 or -1 (said). */
int trace_take_event(struct trace_reader *reader, const json_t *object);
/* otherData. 0 or -1 (said). */
int trace_take_data(struct trace_reader *reader, const json_t *data);

#define TRACE_MEND "make it again with vmm --trace"

#endif
