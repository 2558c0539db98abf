/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a sandbox that was taken back, and of one that is resumed, to READY. */
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_private.h"

#include <stddef.h>

void sandbox_come_up(struct sandbox *sandbox)
{
	sandbox->comes_up = !vm_is_identified(sandbox->vm);
	if (!sandbox->comes_up) {
		sandbox_move(sandbox, SANDBOX_READY, NULL);
		return;
	}
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_RETURN_MS);
	vm_ask_stream(sandbox->vm, &sandbox->knock);
}

void sandbox_knocked(struct vm_request *request, int status, int fd)
{
	struct sandbox *sandbox = (struct sandbox *)((char *)request - offsetof(struct sandbox, knock));

	fd_close(&sandbox->stream);
	if (!status)
		sandbox->stream = fd;
}

void sandbox_identified(void *context)
{
	struct sandbox *sandbox = context;

	if (sandbox->state == SANDBOX_RESUMING && sandbox->comes_up)
		sandbox_come_up(sandbox);
}

/* The vmm says so by itself: of one that was taken back, which may have been asked to pause or resume just
 * before its daemon ended. What we ask for ourselves is told by its reply. */
void sandbox_stands(void *context, bool paused)
{
	struct sandbox *sandbox = context;

	if (sandbox->state == SANDBOX_RESUMING && (!sandbox->seen || sandbox->comes_up)) {
		if (paused && sandbox->interrupted && !vm_ask_resume(sandbox->vm, &sandbox->request))
			sandbox_set_clock(sandbox, SANDBOX_CLOCK_PATIENCE, SANDBOX_PATIENCE_MS);
		else if (paused)
			sandbox_move(sandbox, SANDBOX_PAUSED, NULL);
		else if (!sandbox->comes_up)
			sandbox_come_up(sandbox);
	} else if (sandbox->state == SANDBOX_READY && paused) {
		sandbox_move(sandbox, SANDBOX_PAUSING, NULL);
		sandbox_move(sandbox, SANDBOX_PAUSED, NULL);
	} else if (sandbox->state == SANDBOX_PAUSED && !paused) {
		sandbox_move(sandbox, SANDBOX_RESUMING, NULL);
		sandbox_come_up(sandbox);
	}
	sandbox->seen = true;
}
