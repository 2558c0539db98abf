/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks for a vmm that traces the boot (common/trace_marks.h): each is one write to a port. They are made
 * only when the kernel's command line has the word, which Linux hands to init in its environment; without it
 * nothing at all is done. A kernel without CONFIG_X86_IOPL_IOPERM refuses the port, and then there are none.
 */
#ifndef GUEST_INIT_MARKS_H
#define GUEST_INIT_MARKS_H

#include "common/trace_marks.h"
#include <stdbool.h>

struct marks {
	bool on;
};

/* Asks for the port, and takes the word out of the environment: it is no command's. */
void marks_open(struct marks *marks);
void marks_set(const struct marks *marks, enum trace_mark mark);
/* Gives the port back, so that no child has it. */
void marks_close(struct marks *marks);

#endif
