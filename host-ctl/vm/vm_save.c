/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an owner has its vmm write: a save of a guest that stands.
 *
 * The cgroup of a VM has room for its guest's memory once. What its vmm writes for a save counts as page
 * cache of that cgroup, and stays there until it is on the disk, or where the files are in memory until they
 * are gone; so the bound is raised by what a save can have at most. A bound that is lowered below what is
 * there has the kernel kill the vmm for want of memory: vm_end_save, the one end of a save, lowers it when
 * that has gone. One with a serial log may write no file that is longer than this may be; so that bound is
 * raised, too.
 */
#include "common/log.h"
#include "host-ctl/support/clock.h"
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

uint64_t vm_save_bytes_max(const struct vm *vm)
{
	return vm->memory_bytes + vm->memory_bytes / MAPS_SHARE + PAGES_HEAD + VM_STATE_FILE_MAX;
}

/* Its pid is its own: it is not reaped. */
static int set_file_bytes(const struct vm *vm, uint64_t bytes)
{
	const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};

	return prlimit(vm->pid, RLIMIT_FSIZE, &limit, NULL) < 0 ? -errno : 0;
}

static void narrow_files(struct vm *vm)
{
	if (vm->former_file_bytes && set_file_bytes(vm, vm->former_file_bytes))
		log_warn("%s: how long a file its vmm may write stays as for a save", vm->id);
	vm->former_file_bytes = 0;
}

/* What was written for a save is there still. What cannot be read is not. */
static bool has_cache(const struct vm *vm)
{
	uint64_t used;

	return cgroup_memory_held(vm->config->cgroups, vm->group, &used) == 0 &&
	       used > vm->former_group_bytes;
}

static void narrow_memory(struct vm *vm)
{
	int status;

	if (!vm->former_group_bytes)
		return;
	/* A guest that has grown beyond its bound meanwhile does not keep it for ever. */
	if (vm->narrowings < VM_NARROW_TRIES && has_cache(vm)) {
		vm->narrowings++;
		loop_set_timer(vm->timer, VM_NARROW_MS * CLOCK_NS_PER_MS);
		return;
	}
	status = cgroup_set_memory(vm->config->cgroups, vm->group, vm->former_group_bytes);
	if (status)
		log_warn("%s: its memory stays bounded as for a save: %s", vm->id, strerror(-status));
	vm->former_group_bytes = 0;
}

void vm_end_save(struct vm *vm)
{
	vm->saves = false;
	/* The bounds of one that ends are nothing, and its timer is for that. */
	if (vm->state != VM_OWNED || vm->reaped)
		return;
	narrow_files(vm);
	narrow_memory(vm);
}

static int widen_files(struct vm *vm, uint64_t bytes)
{
	struct rlimit files;
	int status;

	if (!vm->config->serial_directory)
		return 0;
	if (prlimit(vm->pid, RLIMIT_FSIZE, NULL, &files) < 0)
		return -errno;
	status = files.rlim_cur < bytes ? set_file_bytes(vm, bytes) : 0;
	if (!status)
		vm->former_file_bytes = files.rlim_cur;
	return status;
}

/* disk_bytes: of a disk that is written besides. */
static int widen(struct vm *vm, uint64_t disk_bytes)
{
	const uint64_t bytes = vm_save_bytes_max(vm);
	uint64_t former = vm->former_group_bytes;
	int status = 0;

	/* After the last save it may not have been lowered yet. */
	loop_set_timer(vm->timer, 0);
	vm->narrowings = 0;
	if (!former)
		status = cgroup_memory(vm->config->cgroups, vm->group, &former);
	if (!status && former)
		status = cgroup_set_memory(vm->config->cgroups, vm->group, former + bytes + disk_bytes);
	if (status)
		return status;
	vm->former_group_bytes = former;
	return widen_files(vm, disk_bytes > bytes ? disk_bytes : bytes);
}

void vm_know_memory(struct vm *vm, uint64_t bytes, uint64_t most)
{
	uint64_t bound = 0;

	vm->memory_bytes = bytes;
	if (!bytes || cgroup_memory(vm->config->cgroups, vm->group, &bound))
		return;
	most = most ? most : bytes + VM_MEMORY_OVERHEAD;
	/* Its daemon ended in a save, which may go on: it is over when the vmm says how it stands. */
	if (bound > most)
		vm->former_group_bytes = most;
}

static int ask(struct vm *vm, uint64_t flags, const int *fds, size_t count, uint64_t disk_bytes,
	struct vm_save *save)
{
	struct vmm_message message = {.type = VMM_SAVE, .arg0 = flags};
	int status;

	save->state_bytes = save->memory_bytes = save->disk_bytes = 0;
	save->words[0] = '\0';
	if (vm->state != VM_OWNED || vm->reaped)
		return -ENOTCONN;
	if (!vm->memory_bytes)
		return -EINVAL;
	/* One at a time, or it would be taken for what was before. */
	if (vm->saves)
		return -EAGAIN;
	vm->saves = true;
	status = widen(vm, disk_bytes);
	if (!status)
		status = vm_ask(vm, &message, fds, count, &save->request);
	if (status)
		vm_end_save(vm);
	return status;
}

int vm_ask_save(struct vm *vm, int state, int memory, bool private_only, struct vm_save *save)
{
	const int fds[] = {state, memory};

	return ask(vm, private_only ? VMM_SAVE_PRIVATE : 0, fds, 2, 0, save);
}

int vm_ask_save_whole(struct vm *vm, const struct vm_save_files *files, struct vm_save *save)
{
	const int fds[VMM_SAVE_FDS_MAX] = {files->state, files->memory, files->disk};

	if (files->disk < 0)
		return ask(vm, 0, fds, VMM_SAVE_FDS_MAX - 1, 0, save);
	return ask(vm, VMM_SAVE_DISK, fds, VMM_SAVE_FDS_MAX, files->disk_bytes, save);
}

void vm_save_replied(struct vm *vm, const struct vmm_message *message, struct vm_request *request)
{
	struct vm_save *save = (struct vm_save *)((char *)request - offsetof(struct vm_save, request));

	vm_end_save(vm);
	if (!request)
		return;
	if (message->status) {
		text_copy_printable(save->words, sizeof save->words, message->text,
			strnlen(message->text, sizeof message->text));
		return;
	}
	save->state_bytes = message->arg0;
	save->memory_bytes = message->arg1;
	save->disk_bytes = message->arg2;
}
