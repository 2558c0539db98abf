/* SPDX-License-Identifier: Apache-2.0 */
/* From a VM whose commands are done to a template's two files: parked, paused, saved. And that a guest notes
 * its files, before that, or as a clone of one that was saved at work. */
#include "common/io.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/text.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void ask(struct vm *vm, enum vmm_message_type type, const int *fds, size_t count, enum vm_state next)
{
	struct vmm_message message = {.type = type, .sequence = ++vm->sequence};

	loop_set_timer(vm->timer, vm_boot_timeout_ms(vm) * CLOCK_NS_PER_MS);
	if (io_send_fds(vm->control, &message, sizeof message, fds, count) < 0)
		vm_lose(vm, "the vmm takes no request");
	else
		vm_move(vm, next);
}

void vm_park(struct vm *vm)
{
	vm_move(vm, VM_PARKING);
	if (vm->build->step)
		vm->build->step(vm->build->context, 0);
	loop_set_timer(vm->timer, vm_boot_timeout_ms(vm) * CLOCK_NS_PER_MS);
	if (vm_tell_agent(vm, AGENT_BASELINE, NULL, 0) < 0)
		vm_lose(vm, "the agent's stream takes no request");
}

void vm_note(struct vm *vm)
{
	vm_move(vm, VM_NOTING);
	if (vm_tell_agent(vm, AGENT_BASELINE, NULL, 0) < 0)
		vm_lose(vm, "the agent's stream takes no request");
}

/* What such a frame says, in which a guest gives an errno and no text. False: it is none. */
static bool read_status(const struct frame *frame, uint8_t type, int *error)
{
	struct agent_status status = {.text_length = 1};

	if (frame->type == type && frame->length == sizeof status)
		memcpy(&status, frame->payload, sizeof status);
	*error = status.status;
	return !status.text_length && status.status >= 0 && status.status <= -VMM_STATUS_MIN;
}

static void fail_of_guest(struct vm *vm, const char *what, int error)
{
	char cause[VM_CAUSE_MAX];

	/* The kernel's words would be taken for the host's disk. */
	snprintf(cause, sizeof cause, "%s: %s", what,
		error == ENOSPC ? "the guest's disk is full" : strerror(error));
	vm_end(vm, cause);
}

static void rest(struct vm *vm)
{
	vm->parked = true;
	loop_set_timer(vm->timer, VM_PARK_MS * CLOCK_NS_PER_MS);
}

/* The disk alone is to have the files: others are booted from it, and the first power cut of a clone would
 * lose what only the memory of all of them has. */
static void bring_to_disk(struct vm *vm)
{
	if (!vm_source_has_disk(vm->source)) {
		rest(vm);
		return;
	}
	/* As much as the lines may have written. */
	loop_set_timer(vm->timer, vm->build->command_timeout_ms * CLOCK_NS_PER_MS);
	if (vm_tell_agent(vm, AGENT_HOLD, NULL, 0) < 0)
		vm_lose(vm, "the agent's stream takes no request");
}

/* One whose root is not an overlay has nothing to note, and never tells of changes. */
void vm_noted(struct vm *vm, const struct frame *frame)
{
	int error;

	if (!read_status(frame, AGENT_BASELINE_DONE, &error)) {
		vm_end(vm, "the agent did not answer whether it has noted the guest's files");
	} else if (error && error != EOPNOTSUPP) {
		fail_of_guest(vm, "the agent could not note the guest's files", error);
	} else if (vm->state == VM_NOTING) {
		vm_go_on(vm);
	} else {
		vm->noted = true;
		bring_to_disk(vm);
	}
}

void vm_brought(struct vm *vm, const struct frame *frame)
{
	int error;

	if (!read_status(frame, AGENT_HELD, &error))
		vm_end(vm, "the agent did not answer whether the guest's files are on its disk");
	else if (error)
		fail_of_guest(vm, "the guest's files could not be brought to its disk", error);
	else
		rest(vm);
}

void vm_pause(struct vm *vm)
{
	ask(vm, VMM_PAUSE, NULL, 0, VM_PAUSING);
}

static void fail(struct vm *vm, const char *what, const struct vmm_message *message)
{
	char cause[VM_CAUSE_MAX], text[VMM_MESSAGE_TEXT + 1];

	text_copy_printable(text, sizeof text, message->text, strnlen(message->text, sizeof message->text));
	snprintf(cause, sizeof cause, "the guest could not be %s: %s", what,
		text[0] ? text : strerror(-message->status));
	vm_end(vm, cause);
}

void vm_build_replied(struct vm *vm, const struct vmm_message *message)
{
	bool pausing = message->type == (VMM_PAUSE | VMM_REPLY);

	if (vm->state != (pausing ? VM_PAUSING : VM_SAVING) || message->sequence != vm->sequence) {
		vm_end(vm, "the vmm replied to what was not asked");
	} else if (message->status) {
		fail(vm, pausing ? "paused" : "saved", message);
	} else if (pausing) {
		const int fds[] = {vm->build->state, vm->build->memory};

		ask(vm, VMM_SAVE, fds, 2, VM_SAVING);
	} else {
		vm->build->saved(vm->build->context, message->arg0, message->arg1);
		vm_end(vm, "it is saved");
	}
}
