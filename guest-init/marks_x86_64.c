/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __x86_64__
#include "guest-init/marks.h"
#include <stdlib.h>
#include <sys/io.h>

void marks_open(struct marks *marks)
{
	marks->on = getenv(TRACE_MARKS_WORD) != NULL && ioperm(TRACE_MARKS_PORT, 1, 1) == 0;
	unsetenv(TRACE_MARKS_WORD);
}

void marks_set(const struct marks *marks, enum trace_mark mark)
{
	if (marks->on)
		outb((unsigned char)mark, TRACE_MARKS_PORT);
}

void marks_close(struct marks *marks)
{
	if (marks->on)
		(void)ioperm(TRACE_MARKS_PORT, 1, 0);
	marks->on = false;
}
#endif
