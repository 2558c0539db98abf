/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a guest tells a vmm that traces it (docs/trace.md) how far it has come: one byte to one port, which is
 * there with --trace only. Elsewhere nobody answers, and nothing is written unless the word is given.
 */
#ifndef COMMON_TRACE_MARKS_H
#define COMMON_TRACE_MARKS_H

/* On the kernel's command line; having no dot, Linux hands it to init as a variable of its environment. */
#define TRACE_MARKS_WORD "tinderbox_trace"

enum { TRACE_MARKS_PORT = 0x5b0 };

/* What guest-init writes; other values are another guest's own. */
enum trace_mark {
	TRACE_MARK_INIT = 1, /* in user space */
	TRACE_MARK_MOUNTED,  /* /proc, /sys and /dev are there */
	TRACE_MARK_ROOT,     /* the root is mounted and moved to */
	TRACE_MARK_SYSTEM,   /* so is the rest, and the loopback link is up */
	TRACE_MARK_AGENT,    /* the agent listens, and asks for the stream to the host next */
	TRACE_MARK_COUNT
};

#endif
