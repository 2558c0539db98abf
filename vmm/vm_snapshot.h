/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM into a snapshot and out of it: which records there are and in which order (docs/snapshot.md).
 *
 * A snapshot is checked as far as it can be before KVM is touched, then against KVM's processor before a VM
 * is made; each part checks its own record when it takes it. Whatever is wrong, no guest instruction has run.
 */
#ifndef VMM_VM_SNAPSHOT_H
#define VMM_VM_SNAPSHOT_H

#include "vmm/snapshot_memory.h"
#include "vmm/vm.h"

/* The machine that a state is of. */
struct vm_shape {
	unsigned cpus;
	enum config_boot boot; /* which decides over pins */
	bool serial;
	unsigned device_count;
	unsigned region_count;
	struct {
		gpa_t base;
		uint64_t size;
	} regions[GUEST_REGIONS_MAX];
};

/* The record SNAPSHOT_MACHINE; get refuses counts that no machine has. */
void vm_shape_put(struct state_writer *writer, const struct vm_shape *shape);
void vm_shape_get(struct state_reader *reader, struct vm_shape *shape);

/* What begins a device's record, before the transport's part. */
enum { VM_DEVICE_CONFIG_MAX = 256 };
struct vm_device_identity {
	uint32_t id;
	uint64_t features;
	uint32_t config_length;
	uint8_t config[VM_DEVICE_CONFIG_MAX];
};
void vm_identity_put(struct state_writer *writer, const struct virtio_identity *identity);
void vm_identity_get(struct state_reader *reader, struct vm_device_identity *identity);

/* The record SNAPSHOT_PAGES. */
void vm_pages_put(struct state_writer *writer, const struct pages_what *what);
void vm_pages_get(struct state_reader *reader, struct pages_what *what);

/*
 * Saves a paused VM, as VMM_SAVE has it; the VM is as it was, whatever comes of it. 0 with the bytes written;
 * -errno with words in why, the files empty again: -EBUSY: it is not paused; -EINVAL: an unknown flag, a file
 * that is none, not empty, or another one of them; -EBADF: not open for writing; -ENODATA: its private pages
 * are wanted, and it has booted; -ENODEV: its disk is wanted, and it has no copy-on-write disk, or several;
 * -ESRCH: the VM has ended meanwhile; -EOPNOTSUPP: KVM lacks what it takes; -errno of the files or of KVM.
 */
int vm_save(struct vm *vm, struct control_save *save);

/* A snapshot that a VM is being made from; during set-up only. */
struct vm_snapshot;

/*
 * Reads and checks what --restore names, and completes config by it: memory, CPUs, the kind of boot. The
 * files must outlive it. 0, or -errno after one line on standard error.
 */
int vm_snapshot_open(struct config *config, const struct files *files, struct vm_snapshot **out);
/* Takes NULL. */
void vm_snapshot_close(struct vm_snapshot *snapshot);

/*
 * Steps of vm_create, for a VM with a snapshot. 0, or -errno after one line on standard error.
 * map: the memory. prefault: pages of it that are needed at once. compare: this host's processor and KVM.
 * ioapic and serial: after they are made. devices: when all are there. cpus: last, for time goes on from
 * here.
 */
int vm_restore_memory(struct vm *vm);
int vm_restore_working_set(struct vm *vm);
int vm_restore_compare(struct vm *vm);
int vm_restore_ioapic(struct vm *vm);
int vm_restore_serial(struct vm *vm);
int vm_restore_devices(struct vm *vm);
int vm_restore_cpus(struct vm *vm);

#endif
