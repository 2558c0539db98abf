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

/* One whose root is not an overlay has nothing to note, and never tells of changes. */
void vm_noted(struct vm *vm, const struct frame *frame)
{
	struct agent_status status = {.text_length = 1};
	char cause[VM_CAUSE_MAX];

	if (frame->type == AGENT_BASELINE_DONE && frame->length == sizeof status)
		memcpy(&status, frame->payload, sizeof status);
	if (status.text_length || status.status < 0 || status.status > -VMM_STATUS_MIN) {
		vm_end(vm, "the agent did not answer whether it has noted the guest's files");
	} else if (status.status && status.status != EOPNOTSUPP) {
		/* The kernel's words would be taken for the host's disk. */
		snprintf(cause, sizeof cause, "the agent could not note the guest's files: %s",
			status.status == ENOSPC ? "the guest's disk is full" : strerror(status.status));
		vm_end(vm, cause);
	} else if (vm->state == VM_NOTING) {
		vm_go_on(vm);
	} else {
		vm->noted = true;
		loop_set_timer(vm->timer, VM_PARK_MS * CLOCK_NS_PER_MS);
	}
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
