/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of the daemon's own, before a VM is warm or saved: those that prepare a template, then sample
 * commands.
 *
 * The sample command is a shell that starts cat, with a line of stdin that comes back on stdout. So the
 * program loader, the pipes, both directions of the stream, the session's cgroup and its end have all been at
 * work once. A base without the two is found here, and not by each user.
 */
#include "host-ctl/support/clock.h"
#include "host-ctl/support/text.h"
#include "host-ctl/vm/agent_check.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
	/* Ids of sessions: this one and up. That of a user's run is below. */
	COMMAND_SESSION_FIRST = 2,
	SAMPLE_FRAME_MAX = 8192,
	SHOWN_MAX = 120, /* bytes of a command in a sentence */
};

static const char sample[] = "cat && :", sample_input[] = "rehearsal\n";

bool vm_has_commands(const struct vm *vm)
{
	return (vm->build && vm->prepared < vm->build->count) || vm->rehearsed < vm->source->rehearsals;
}

/* argv `sh -c line`, no env, empty cwd and user. */
static int put_new(struct frame_queue *queue, const struct agent_new *fixed, const char *line)
{
	static const char shell[] = "sh\0-c", end[] = "\0";
	struct agent_new request = *fixed;
	char strings[AGENT_STRINGS_MAX];
	size_t length = strlen(line) + 1;

	if (sizeof shell + length + sizeof end > sizeof strings)
		return -E2BIG;
	memcpy(strings, shell, sizeof shell);
	memcpy(strings + sizeof shell, line, length);
	memcpy(strings + sizeof shell + length, end, sizeof end);
	request.argc = 3;
	request.strings_length = (uint32_t)(sizeof shell + length + sizeof end);
	return frame_queue_put(queue, AGENT_NEW, &request, sizeof request, strings, request.strings_length);
}

static int send_command(struct vm *vm, const char *line, const char *input)
{
	const struct agent_new request = {.session = COMMAND_SESSION_FIRST + vm->prepared + vm->rehearsed,
		.flags = input ? AGENT_NEW_STDIN : 0};
	struct frame_queue queue;
	int status;

	frame_queue_init(&queue, AGENT_FRAME_MAX + SAMPLE_FRAME_MAX);
	status = put_new(&queue, &request, line);
	if (!status && input)
		status = frame_queue_put(&queue, AGENT_STDIN, input, strlen(input), NULL, 0);
	if (!status && input)
		status = frame_queue_put(&queue, AGENT_STDIN_EOF, NULL, 0, NULL, 0);
	/* A new stream takes so little at once. */
	if (!status)
		status = frame_queue_flush(&queue, vm->session) == 0 ? 0 : -EPIPE;
	frame_queue_finish(&queue);
	return status;
}

static int start_preparing(struct vm *vm)
{
	int status = frame_reader_init(&vm->session_reader, AGENT_FRAME_MAX);

	if (!status)
		status = send_command(vm, vm->build->commands[vm->prepared], NULL);
	vm->prepared++;
	vm_move(vm, VM_PREPARING);
	if (vm->build->step)
		vm->build->step(vm->build->context, vm->prepared);
	loop_set_timer(vm->timer, vm->build->command_timeout_ms * CLOCK_NS_PER_MS);
	return status;
}

static int start_sample(struct vm *vm)
{
	int status = frame_reader_init(&vm->session_reader, SAMPLE_FRAME_MAX);

	if (!status)
		status = send_command(vm, sample, sample_input);
	vm->rehearsed++;
	vm_move(vm, VM_REHEARSING);
	if (vm->build)
		loop_set_timer(vm->timer, vm_boot_timeout_ms(vm) * CLOCK_NS_PER_MS);
	return status;
}

bool vm_command_start(struct vm *vm)
{
	int status;

	if (!vm_has_commands(vm))
		return false;
	vm->command_output[0] = vm->command_output[1] = 0;
	if (vm->build && vm->prepared < vm->build->count)
		status = start_preparing(vm);
	else
		status = start_sample(vm);
	vm->session_reader.flags = MSG_DONTWAIT;
	if (status < 0)
		vm_lose(vm, "the agent's stream took no command");
	return true;
}

/* What people know the present command by. */
static void name_command(const struct vm *vm, char *name, size_t size)
{
	char shown[SHOWN_MAX + 1];
	const char *line;

	if (vm->state == VM_REHEARSING) {
		snprintf(name, size, "the sample command");
		return;
	}
	line = vm->build->commands[vm->prepared - 1];
	text_copy_printable(shown, sizeof shown, line, strnlen(line, SHOWN_MAX));
	snprintf(name, size, "command %u ('%s')", vm->prepared, shown);
}

static void fail(struct vm *vm, const struct agent_exit *ending)
{
	const char *mend = vm->state == VM_REHEARSING ? "; is --image a usable base?" : "";
	char cause[VM_CAUSE_MAX], name[SHOWN_MAX + 32];

	name_command(vm, name, sizeof name);
	switch (ending->kind) {
	case AGENT_FAILED_TO_START:
		snprintf(cause, sizeof cause, "%s could not start: %s%s", name, strerror(ending->code), mend);
		break;
	case AGENT_EXITED:
		snprintf(cause, sizeof cause, "%s exited with status %d%s", name, (int)ending->code, mend);
		break;
	case AGENT_SIGNALLED:
		snprintf(cause, sizeof cause, "%s was ended by signal %d (%s)%s", name, (int)ending->code,
			strsignal(ending->code), mend);
		break;
	case AGENT_OUT_OF_MEMORY:
		snprintf(cause, sizeof cause, "%s ran out of memory; is --mem too small?", name);
		break;
	default:
		snprintf(cause, sizeof cause, "the guest ended %s", name);
	}
	vm_end(vm, cause);
}

static void malformed(struct vm *vm, const char *what)
{
	char cause[VM_CAUSE_MAX], name[SHOWN_MAX + 32];

	name_command(vm, name, sizeof name);
	snprintf(cause, sizeof cause, "the agent sent a malformed %s of %s", what, name);
	vm_end(vm, cause);
}

static void finish(struct vm *vm, const struct frame *frame)
{
	struct agent_exit ending;

	if (agent_check_exit(frame, vm->command_output, &ending)) {
		malformed(vm, "EXIT");
		return;
	}
	if (ending.kind != AGENT_EXITED || ending.code != 0) {
		fail(vm, &ending);
		return;
	}
	frame_reader_finish(&vm->session_reader);
	vm_close_session(vm);
	vm_go_on(vm);
}

static void take_output(struct vm *vm, const struct frame *frame)
{
	const size_t skip = sizeof(struct agent_output);
	bool is_stderr = frame->type == AGENT_STDERR;

	if (agent_check_output(frame, vm->command_output[is_stderr])) {
		malformed(vm, is_stderr ? "STDERR" : "STDOUT");
		return;
	}
	vm->command_output[is_stderr] += frame->length - skip;
	if (vm->state == VM_PREPARING)
		vm->build->output(vm->build->context, is_stderr, frame->payload + skip, frame->length - skip);
}

/* True: that was the last one. */
static bool take_frame(struct vm *vm, const struct frame *frame)
{
	char cause[VM_CAUSE_MAX], name[SHOWN_MAX + 32];

	switch (frame->type) {
	case AGENT_STDOUT:
	case AGENT_STDERR:
		take_output(vm, frame);
		return vm->state == VM_ENDING;
	case AGENT_EXIT:
		finish(vm, frame);
		return true;
	case AGENT_ERROR:
		name_command(vm, name, sizeof name);
		snprintf(cause, sizeof cause, "the agent refused %s", name);
		vm_end(vm, cause);
		return true;
	default:
		return false;
	}
}

/* Of a build whose output has no room nothing is read. */
static bool block(struct vm *vm)
{
	const struct vm_build *build = vm->build;

	vm->blocked = vm->state == VM_PREPARING && build->has_room && !build->has_room(build->context);
	/* Edge-triggered and nothing asked for: a hang-up does not wake again and again. */
	if (vm->blocked)
		vm_watch_session(vm, EPOLLET);
	return vm->blocked;
}

/* The time-out bounds what may come before the end. */
static void take_buffered(struct vm *vm)
{
	struct frame frame;
	int status;

	while (!block(vm)) {
		status = frame_reader_next(&vm->session_reader, &frame);
		if (status < 0)
			malformed(vm, "frame");
		if (status <= 0 || take_frame(vm, &frame))
			return;
	}
}

void vm_build_continue(struct vm *vm)
{
	if (!vm->blocked)
		return;
	take_buffered(vm);
	if (vm->state == VM_PREPARING && !vm->blocked)
		vm_watch_session(vm, EPOLLIN | EPOLLRDHUP);
}

void vm_command_ready(struct vm *vm)
{
	int got = vm->blocked ? -EAGAIN : frame_reader_fill(&vm->session_reader, vm->session);
	char cause[VM_CAUSE_MAX], name[SHOWN_MAX + 32];

	if (got == -EAGAIN)
		return;
	if (got <= 0) {
		name_command(vm, name, sizeof name);
		snprintf(cause, sizeof cause, "the agent ended its stream in %s", name);
		vm_lose(vm, cause);
		return;
	}
	take_buffered(vm);
}
