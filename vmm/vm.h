/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One virtual machine, from a checked configuration to its end.
 *
 *   STARTING --vm_run--> RUNNING <--resume-- PAUSED <--vm_run (--paused)-- STARTING
 *                           | `----pause---->  |
 *                           `-----> ENDED <----'     by the guest, KVM, a signal or the control socket
 *
 * Threads: the caller's runs the loop (control socket, signals, virtqueues, streams); each vCPU has its own,
 * on which it answers registers and ports. vm_end may be called on all of them.
 */
#ifndef VMM_VM_H
#define VMM_VM_H

#include "common/loop.h"
#include "common/proto_vmm.h"
#include "vmm/bus.h"
#include "vmm/config.h"
#include "vmm/control.h"
#include "vmm/ends.h"
#include "vmm/files.h"
#include "vmm/ioapic.h"
#include "vmm/irq.h"
#include "vmm/kvm.h"
#include "vmm/layout.h"
#include "vmm/memory.h"
#include "vmm/pages.h"
#include "vmm/serial.h"
#include "vmm/stats.h"
#include "vmm/vcpu.h"
#include "vmm/vsock_unix.h"
#include <pthread.h>
#include <stdbool.h>

struct boot_state;
struct trace_file;
struct virtio_device;
struct vm;
struct vm_snapshot;
struct vm_standby;

/* A device, its transport and its line. */
struct vm_device {
	struct vm *vm;
	unsigned number; /* of its window */
	unsigned pin;	 /* at the IOAPIC: config_pin */
	struct virtio_mmio *mmio;
};

struct vm {
	const struct config *config;
	struct files *files;
	struct stats stats;

	struct loop *loop;
	int wake; /* eventfd: a vCPU stands, or the VM has ended */
	int halt; /* eventfd, readable while the vCPUs must stand: nobody may wait on their threads */

	struct guest_memory memory;
	struct pages_base base; /* what memory lies upon, when it was restored; its fd is files'; -1: none */
	int pagemap;		/* pagemap_open's; -1: none */
	struct kvm kvm;
	int fd;
	struct bus ports, mmio;
	struct irq irq;
	struct ioapic ioapic;
	struct ends ends;
	struct serial serial;
	struct loop_source *serial_source;
	struct vm_device devices[LAYOUT_VIRTIO_MAX];
	unsigned device_count, cow_count; /* of these, disks that are copy-on-write */
	struct virtio_device *vsock;	  /* one of the devices', NULL: none */
	struct virtio_device *net;	  /* the same */
	struct vsock_unix *vsock_unix;
	struct virtio_device *balloon;	/* as vsock */
	struct virtio_device *cow;	/* the last one that is a copy-on-write disk; the same */
	struct vcpu_features *features; /* of all vCPUs */
	struct vcpu_machine vcpu_machine;
	struct vcpu vcpus[LAYOUT_CPUS_MAX];
	unsigned vcpu_count;
	struct boot_state *entry;     /* how the first vCPU starts; during set-up only */
	struct vm_snapshot *snapshot; /* in its place; during set-up only */
	struct vm_standby *standby;   /* how it came to be restored; NULL: by the command line */
	bool asleep;		      /* restored, and its devices have not been woken yet */
	struct control *control;
	struct trace_file *trace_file; /* main's, whole before vm_run; NULL: none is written */

	enum vmm_state state;	/* loop's thread only, as is what follows */
	control_done_fn paused; /* a pause is under way; NULL: none */
	void *paused_context;

	pthread_mutex_t end_lock; /* over how it ended */
	bool ended;
	enum vmm_end end;
	char reason[VMM_MESSAGE_TEXT];
};

/*
 * Sets up everything, in the order of the table in vm.c; no guest instruction runs. config and files must
 * outlive it; fds that were handed on are set to -1 in files. 0, or -errno after one line on standard error
 * that says what was refused and how to mend it. snapshot: what it is restored from, by which config has been
 * completed (vm_snapshot.h); NULL: it boots. *out: NULL, or what vm_stand_by made, which is gone after an
 * error, when that is answered.
 */
int vm_create(
	const struct config *config, struct files *files, struct vm_snapshot *snapshot, struct vm **out);
/* Runs to the end, tells the parent, prints the statistics. SIGTERM, SIGINT and SIGHUP end it. Once. */
enum vmm_end vm_run(struct vm *vm);
/* Takes NULL. */
void vm_destroy(struct vm *vm);

/*
 * The steps that need no more than /dev/kvm and the control socket, which is served by ops. standby becomes
 * the VM's on 0; -errno, logged.
 */
int vm_prepare(const struct config *config, const struct control_ops *ops, struct vm_standby *standby,
	struct vm **out);
/*
 * vm_standby.c: waits until the control socket says what to restore, and completes config by it, with files
 * as fd:N. 0, or -errno after one line on standard error: -ECANCELED: it was ended, or left alone; then the
 * status is VMM_END_KILLED.
 */
int vm_stand_by(struct config *config, struct vm **out);
/* Names for people in place of the numbers, when the files are open. */
void vm_standby_name_files(struct config *config);
/* Answers the order, once; without one it does nothing. */
void vm_answer(struct vm *vm, int status);

/* The VM ends now; only the first call counts. Any thread. */
void vm_end(struct vm *vm, enum vmm_end end, const char *reason);
bool vm_has_ended(struct vm *vm);

/* vm_devices.c: makes the devices that the configuration asks for and puts them on the bus. 0 or -errno,
 * logged. */
int vm_add_devices(struct vm *vm);
void vm_remove_devices(struct vm *vm);

/* vm_boot.c: puts the kernel and what it needs into guest memory and fills vm->entry. 0 or -errno, logged. */
int vm_load(struct vm *vm);

/* vm_run.c: what the control socket asks for; context is a struct vm. */
extern const struct control_ops vm_control_ops;
/* All counters now. */
void vm_collect_stats(struct vm *vm, struct stats_counts *counts);

#endif
