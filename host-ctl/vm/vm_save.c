/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an owner has its vmm write: a save of a guest that stands.
 *
 * A vmm may write little, to its serial log and its disk, and its cgroup has room for its guest's memory
 * once. What it writes for a save counts as page cache of that cgroup, and stays there where the files are in
 * memory; so for that time both bounds are raised by what a save can have at most.
 */
#include "host-ctl/support/text.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>

enum {
	PAGE = 4096,
	/* Of a file of private pages, before them: its header, and two bits for each page of memory. */
	PAGES_HEAD = 2 * PAGE,
	MAPS_SHARE = PAGE * 8 / 2,
};

/* The longest of the files. */
static uint64_t bytes_at_most(const struct vm *vm)
{
	return vm->memory_bytes + vm->memory_bytes / MAPS_SHARE + PAGES_HEAD + VM_STATE_FILE_MAX;
}

/* Its pid is its own: it is not reaped. */
static int set_file_bytes(const struct vm *vm, uint64_t bytes)
{
	const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};

	return prlimit(vm->pid, RLIMIT_FSIZE, &limit, NULL) < 0 ? -errno : 0;
}

/* As before the save; to lower a bound needs no right. */
static void narrow(struct vm *vm)
{
	if (vm->former_group_bytes)
		cgroup_set_memory(vm->config->cgroups, vm->group, vm->former_group_bytes);
	if (vm->former_file_bytes)
		set_file_bytes(vm, vm->former_file_bytes);
	vm->former_group_bytes = vm->former_file_bytes = 0;
}

static int widen(struct vm *vm)
{
	const uint64_t bytes = bytes_at_most(vm);
	struct rlimit files;
	uint64_t former = 0;
	int status = cgroup_memory(vm->config->cgroups, vm->group, &former);

	if (!status && former)
		status = cgroup_set_memory(vm->config->cgroups, vm->group, former + bytes);
	if (status)
		return status;
	vm->former_group_bytes = former;
	if (prlimit(vm->pid, RLIMIT_FSIZE, NULL, &files) < 0)
		return -errno;
	status = files.rlim_cur < bytes ? set_file_bytes(vm, bytes) : 0;
	if (!status)
		vm->former_file_bytes = files.rlim_cur;
	return status;
}

void vm_know_memory(struct vm *vm, uint64_t bytes)
{
	vm->memory_bytes = bytes;
}

int vm_ask_save(struct vm *vm, int state, int memory, bool private_only, struct vm_save *save)
{
	struct vmm_message message = {.type = VMM_SAVE, .arg0 = private_only ? VMM_SAVE_PRIVATE : 0};
	const int fds[] = {state, memory};
	int status;

	save->state_bytes = save->memory_bytes = 0;
	save->words[0] = '\0';
	if (vm->state != VM_OWNED || vm->reaped)
		return -ENOTCONN;
	if (!vm->memory_bytes)
		return -EINVAL;
	/* One at a time, or it would be taken for what was before. */
	if (vm->former_file_bytes)
		return -EAGAIN;
	status = widen(vm);
	if (!status)
		status = vm_ask(vm, &message, fds, sizeof fds / sizeof fds[0], &save->request);
	if (status)
		narrow(vm);
	return status;
}

void vm_save_replied(struct vm *vm, const struct vmm_message *message, struct vm_request *request)
{
	struct vm_save *save = (struct vm_save *)((char *)request - offsetof(struct vm_save, request));

	narrow(vm);
	if (!request)
		return;
	if (message->status) {
		text_copy_printable(save->words, sizeof save->words, message->text,
			strnlen(message->text, sizeof message->text));
		return;
	}
	save->state_bytes = message->arg0;
	save->memory_bytes = message->arg1;
}
