/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving. The vCPUs stand; what the devices still have to do is done first, and may end the VM. Memory comes
 * after that, for devices write to it, and the state last: a state file that is whole has its memory.
 */
#include "vmm/vm_snapshot.h"
#include "common/io.h"
#include "vmm/reason.h"
#include "vmm/vcpu_state_x86_64.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/mmio.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert((int)VMM_MESSAGE_TEXT <= (int)VCPU_STATE_WHY_MAX, "words are cut to a message's");

void vm_shape_put(struct state_writer *writer, const struct vm_shape *shape)
{
	state_put_u32(writer, shape->cpus);
	state_put_u32(writer, shape->boot);
	state_put_bool(writer, shape->serial);
	state_put_u32(writer, shape->device_count);
	state_put_u32(writer, shape->region_count);
	for (unsigned i = 0; i < shape->region_count; i++) {
		state_put_u64(writer, shape->regions[i].base);
		state_put_u64(writer, shape->regions[i].size);
	}
}

void vm_shape_get(struct state_reader *reader, struct vm_shape *shape)
{
	shape->cpus = state_get_count(reader, LAYOUT_CPUS_MAX);
	shape->boot = (enum config_boot)state_get_count(reader, CONFIG_BOOT_MPTABLE);
	shape->serial = state_get_bool(reader);
	shape->device_count = state_get_count(reader, LAYOUT_VIRTIO_MAX);
	shape->region_count = state_get_count(reader, GUEST_REGIONS_MAX);
	if (shape->cpus == 0 || shape->region_count == 0)
		state_refuse(reader);
	for (unsigned i = 0; i < shape->region_count; i++) {
		shape->regions[i].base = state_get_u64(reader);
		shape->regions[i].size = state_get_u64(reader);
	}
}

void vm_identity_put(struct state_writer *writer, const struct virtio_identity *identity)
{
	state_put_u32(writer, identity->id);
	state_put_u64(writer, identity->features);
	state_put_u32(writer, identity->config_length);
	state_put_bytes(writer, identity->config, identity->config_length); /* none: NULL */
}

void vm_identity_get(struct state_reader *reader, struct vm_device_identity *identity)
{
	identity->id = state_get_u32(reader);
	identity->features = state_get_u64(reader);
	identity->config_length = state_get_count(reader, VM_DEVICE_CONFIG_MAX);
	state_get_bytes(reader, identity->config, identity->config_length);
}

void vm_pages_put(struct state_writer *writer, const struct pages_what *what)
{
	state_put_u64(writer, what->bytes);
	state_put_u64(writer, what->table_sum);
	state_put_u64(writer, what->pages_sum);
}

void vm_pages_get(struct state_reader *reader, struct pages_what *what)
{
	what->bytes = state_get_u64(reader);
	what->table_sum = state_get_u64(reader);
	what->pages_sum = state_get_u64(reader);
}

static struct vm_shape shape_of(const struct vm *vm)
{
	struct vm_shape shape = {
		.cpus = vm->vcpu_count,
		.boot = vm->config->boot,
		.serial = vm->files->serial_out >= 0,
		.device_count = vm->device_count,
		.region_count = vm->memory.count,
	};

	for (unsigned i = 0; i < shape.region_count; i++) {
		shape.regions[i].base = vm->memory.regions[i].base;
		shape.regions[i].size = vm->memory.regions[i].size;
	}
	return shape;
}

static void put_shape(const struct vm *vm, struct state_writer *writer)
{
	struct vm_shape shape = shape_of(vm);
	size_t where = state_begin_record(writer, SNAPSHOT_MACHINE);

	vm_shape_put(writer, &shape);
	state_end_record(writer, where);
}

static int put_clock(const struct vm *vm, struct state_writer *writer, char *why)
{
	size_t where = state_begin_record(writer, SNAPSHOT_CLOCK);
	uint64_t clock;
	int r = vcpu_state_get_clock(vm->fd, &clock, why);

	state_put_u64(writer, clock);
	state_end_record(writer, where);
	return r;
}

static int put_vcpu(struct vm *vm, unsigned i, uint64_t now, struct state_writer *writer, char *why)
{
	struct vcpu_state *state = calloc(1, sizeof(*state));
	size_t where = state_begin_record(writer, SNAPSHOT_VCPU);
	int r;

	if (!state)
		return reason_set(why, VMM_MESSAGE_TEXT, -ENOMEM, "%s", strerror(ENOMEM));
	r = vcpu_state_save(&vm->kvm, vm->vcpus[i].fd, i, now, state, why);
	if (r == 0)
		r = vcpu_state_set_cpuid(state, vm->features, vm->vcpu_count, why);
	if (r == 0)
		vcpu_state_put(writer, state);
	state_end_record(writer, where);
	free(state);
	return r;
}

static void put_device(const struct vm_device *device, struct state_writer *writer)
{
	struct virtio_identity identity = virtio_mmio_identity(device->mmio);
	size_t where = state_begin_record(writer, SNAPSHOT_DEVICE);

	vm_identity_put(writer, &identity);
	virtio_mmio_save(device->mmio, writer);
	state_end_record(writer, where);
}

static void put_controllers(struct vm *vm, struct state_writer *writer)
{
	size_t where = state_begin_record(writer, SNAPSHOT_IOAPIC);

	ioapic_save(&vm->ioapic, writer);
	state_end_record(writer, where);
	where = state_begin_record(writer, SNAPSHOT_SERIAL);
	serial_save(&vm->serial, writer);
	state_end_record(writer, where);
}

static int put_records(struct vm *vm, struct state_writer *writer, char *why)
{
	uint64_t now = vcpu_state_now();
	int r;

	put_shape(vm, writer);
	r = put_clock(vm, writer, why);
	for (unsigned i = 0; r == 0 && i < vm->vcpu_count; i++)
		r = put_vcpu(vm, i, now, writer, why);
	if (r < 0)
		return r;
	put_controllers(vm, writer);
	for (unsigned i = 0; i < vm->device_count; i++)
		put_device(&vm->devices[i], writer);
	return 0;
}

/* --- files --- */

static int check_file(int fd, const char *name, struct stat *status, char *why)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, status) < 0)
		return reason_set(
			why, VMM_MESSAGE_TEXT, -errno, "the file for the %s: %s", name, strerror(errno));
	if (!S_ISREG(status->st_mode) || status->st_size != 0)
		return reason_set(why, VMM_MESSAGE_TEXT, -EINVAL,
			"the file for the %s is not an empty regular file", name);
	if ((flags & O_ACCMODE) == O_RDONLY || (flags & O_APPEND))
		return reason_set(why, VMM_MESSAGE_TEXT, -EBADF,
			"the file for the %s is not open for writing anywhere in it", name);
	return 0;
}

/* All of them, each one of its own. */
static int check_files(const struct control_save *save)
{
	const int fds[VMM_SAVE_FDS_MAX] = {save->state, save->memory, save->disk};
	static const char *const names[VMM_SAVE_FDS_MAX] = {"state", "memory", "disk"};
	unsigned count = save->flags & VMM_SAVE_DISK ? 3 : 2;
	struct stat files[VMM_SAVE_FDS_MAX] = {{.st_size = 0}};

	for (unsigned i = 0; i < count; i++) {
		int r = check_file(fds[i], names[i], &files[i], save->why);

		if (r < 0)
			return r;
		for (unsigned j = 0; j < i; j++)
			if (files[i].st_dev == files[j].st_dev && files[i].st_ino == files[j].st_ino)
				return reason_set(save->why, VMM_MESSAGE_TEXT, -EINVAL,
					"%s and %s are to go to the same file", names[j], names[i]);
	}
	return 0;
}

/* The private pages of memory, and the record that speaks of them. */
static int save_pages(struct vm *vm, int fd, struct state_writer *writer, uint64_t *written)
{
	struct pages_what what;
	int r = pages_save(&vm->memory, &vm->base, vm->pagemap, fd, &what);
	size_t where;

	if (r < 0)
		return r;
	*written = what.bytes;
	where = state_begin_record(writer, SNAPSHOT_PAGES);
	vm_pages_put(writer, &what);
	state_end_record(writer, where);
	return snapshot_finish(writer, &vm->base.what);
}

static int save_memory(struct vm *vm, int fd, struct state_writer *writer, uint64_t *written)
{
	struct snapshot_memory what;
	int r = snapshot_memory_save(&vm->memory, fd, &what, written);

	return r < 0 ? r : snapshot_finish(writer, &what);
}

static int save_to(struct vm *vm, struct control_save *save, struct state_writer *writer, char *why)
{
	int r;

	writer->disks_copied = save->flags & VMM_SAVE_DISK;
	r = put_records(vm, writer, why);
	if (r < 0)
		return r;
	r = writer->disks_copied ? blk_copy(vm->cow, save->disk, &save->disk_bytes) : 0;
	if (r < 0)
		return reason_set(why, VMM_MESSAGE_TEXT, r, "copying the disk: %s", strerror(-r));
	r = save->flags & VMM_SAVE_PRIVATE ? save_pages(vm, save->memory, writer, &save->memory_bytes)
					   : save_memory(vm, save->memory, writer, &save->memory_bytes);
	if (r == 0)
		r = io_pwrite_all(save->state, writer->data, writer->length, 0);
	return r < 0 ? reason_set(why, VMM_MESSAGE_TEXT, r, "writing the snapshot: %s", strerror(-r)) : 0;
}

static int drain(struct vm *vm, char *why)
{
	for (unsigned i = 0; i < vm->device_count; i++)
		virtio_mmio_drain(vm->devices[i].mmio);
	return vm_has_ended(vm)
		       ? reason_set(why, VMM_MESSAGE_TEXT, -ESRCH, "the VM has ended: %s", strerror(ESRCH))
		       : 0;
}

/* What needs neither files nor KVM. */
static int check_wish(const struct vm *vm, uint64_t flags, char *why)
{
	if (flags & ~(uint64_t)(VMM_SAVE_PRIVATE | VMM_SAVE_DISK))
		return reason_set(why, VMM_MESSAGE_TEXT, -EINVAL, "there is no such flag");
	if (vm->state != VMM_STATE_PAUSED)
		return reason_set(why, VMM_MESSAGE_TEXT, -EBUSY, "the VM is not paused");
	if ((flags & VMM_SAVE_PRIVATE) && vm->base.fd < 0)
		return reason_set(why, VMM_MESSAGE_TEXT, -ENODATA,
			"the VM has booted: its memory lies upon no other; save it whole");
	if ((flags & VMM_SAVE_DISK) && vm->cow_count != 1)
		return reason_set(why, VMM_MESSAGE_TEXT, -ENODEV,
			"the VM has %u copy-on-write disks, not one: save it without", vm->cow_count);
	return 0;
}

/* Nobody shall take a part of it for the whole. */
static void empty_files(struct control_save *save)
{
	save->memory_bytes = save->disk_bytes = 0;
	(void)!ftruncate(save->state, 0);
	(void)!ftruncate(save->memory, 0);
	if (save->flags & VMM_SAVE_DISK)
		(void)!ftruncate(save->disk, 0);
}

int vm_save(struct vm *vm, struct control_save *save)
{
	char why[VCPU_STATE_WHY_MAX] = "";
	struct state_writer writer;
	uint8_t *buffer = NULL;
	int r;

	r = check_wish(vm, save->flags, save->why);
	if (r == 0)
		r = check_files(save);
	if (r < 0)
		return r;
	r = vcpu_state_check_kvm(&vm->kvm, why);
	if (r == 0)
		r = drain(vm, why);
	if (r == 0) {
		buffer = malloc(SNAPSHOT_STATE_MAX);
		r = buffer ? 0 : reason_set(why, sizeof(why), -ENOMEM, "%s", strerror(ENOMEM));
	}
	if (r == 0) {
		snapshot_begin(&writer, buffer);
		r = save_to(vm, save, &writer, why);
	}
	if (r == 0) {
		save->state_bytes = writer.length;
	} else {
		empty_files(save);
		reason_set(save->why, VMM_MESSAGE_TEXT, r, "%.*s", VMM_MESSAGE_TEXT - 1, why);
	}
	free(buffer);
	return r;
}
