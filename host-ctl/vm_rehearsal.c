/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sample command: a shell that starts cat, with a line of stdin that comes back on stdout. So the program
 * loader, the pipes, both directions of the stream, the session's cgroup and its end have all been at work
 * once. A base without the two is found here, and not by each user.
 */
#include "host-ctl/run_check.h"
#include "host-ctl/vm_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { REHEARSAL_SESSION = 2, REHEARSAL_FRAME_MAX = 8192 };

static const char strings[] =
	"sh\0-c\0cat && :\0\0"; /* argv, no env, empty cwd and user: the user's NUL ends it */
static const char input[] = "rehearsal\n";

int vm_rehearsal_start(struct vm *vm)
{
	const struct agent_new request = {.session = REHEARSAL_SESSION,
		.flags = AGENT_NEW_STDIN,
		.argc = 3,
		.strings_length = sizeof strings};
	struct frame_queue queue;
	int status = frame_reader_init(&vm->session_reader, REHEARSAL_FRAME_MAX);

	if (status)
		return status;
	vm->session_reader.flags = MSG_DONTWAIT;
	frame_queue_init(&queue, REHEARSAL_FRAME_MAX);
	status = frame_queue_put(&queue, AGENT_NEW, &request, sizeof request, strings, sizeof strings);
	if (!status)
		status = frame_queue_put(&queue, AGENT_STDIN, input, sizeof input - 1, NULL, 0);
	if (!status)
		status = frame_queue_put(&queue, AGENT_STDIN_EOF, NULL, 0, NULL, 0);
	/* A new stream takes so little at once. */
	if (!status)
		status = frame_queue_flush(&queue, vm->session) == 0 ? 0 : -EPIPE;
	frame_queue_finish(&queue);
	return status;
}

static void fail(struct vm *vm, const struct agent_exit *ending)
{
	char cause[VM_CAUSE_MAX];

	switch (ending->kind) {
	case AGENT_FAILED_TO_START:
		snprintf(cause, sizeof cause,
			"the sample command could not start: %s; is --image a usable base?",
			strerror(ending->code));
		break;
	case AGENT_EXITED:
		snprintf(cause, sizeof cause,
			"the sample command exited with status %d; is --image a usable base?",
			(int)ending->code);
		break;
	case AGENT_SIGNALLED:
		snprintf(cause, sizeof cause,
			"the sample command was ended by signal %d (%s); is --image a usable base?",
			(int)ending->code, strsignal(ending->code));
		break;
	case AGENT_OUT_OF_MEMORY:
		snprintf(cause, sizeof cause, "the sample command ran out of memory; is --mem too small?");
		break;
	default:
		snprintf(cause, sizeof cause, "the guest ended the sample command");
	}
	vm_end(vm, cause);
}

static void finish(struct vm *vm, const struct frame *frame)
{
	const uint64_t output[2] = {0, 0}; /* not counted */
	struct agent_exit ending;

	if (run_check_exit(frame, output, &ending)) {
		vm_end(vm, "the agent sent a malformed EXIT of the sample command");
		return;
	}
	if (ending.kind != AGENT_EXITED || ending.code != 0) {
		fail(vm, &ending);
		return;
	}
	frame_reader_finish(&vm->session_reader);
	vm_close_session(vm);
	vm_connect_session(vm);
}

void vm_rehearsal_ready(struct vm *vm)
{
	struct frame frame;
	int got = frame_reader_fill(&vm->session_reader, vm->session), status;

	if (got == -EAGAIN)
		return;
	if (got <= 0) {
		vm_lose(vm, "the agent ended its stream in the sample command");
		return;
	}
	/* What comes before the end is of no interest; the boot's time-out bounds it. */
	while ((status = frame_reader_next(&vm->session_reader, &frame)) > 0) {
		if (frame.type == AGENT_EXIT) {
			finish(vm, &frame);
			return;
		}
		if (frame.type == AGENT_ERROR) {
			vm_end(vm, "the agent refused the sample command");
			return;
		}
	}
	if (status < 0)
		vm_end(vm, "the agent sent a malformed frame in the sample command");
}
