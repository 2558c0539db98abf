/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ioctls of /dev/kvm, one function each, and nothing else (what is the processor's own is in
 * vcpu_x86_64.c); all go through kvm_call or kvm_call_value, where a trace sees them. The order in which they
 * are called matters for the time that set-up takes: see vm.c.
 *
 * Fds that are returned are the caller's and CLOEXEC (KVM makes them so). Errors are -errno of the ioctl.
 */
#ifndef VMM_KVM_H
#define VMM_KVM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVM_DEVICE "/dev/kvm"

enum { KVM_ERROR_MAX = 512 };

struct kvm_run;

struct kvm {
	int fd;
	size_t run_size; /* bytes of a vCPU's shared page(s) */
};

/*
 * Opens path (KVM_DEVICE or "fd:N") and checks the API version, and of the capabilities that this machine
 * needs those whose absence nothing would tell before the guest runs: the others are asked for by using them.
 * 0, or -errno with a sentence in error (KVM_ERROR_MAX bytes) that names thing, cause and mend:
 *   -ENOENT, -EACCES, -ENODEV ...  it cannot be opened
 *   -ENOTTY  it is not KVM
 *   -EPROTO  another API version
 *   -EOPNOTSUPP  a capability is missing
 */
int kvm_open(const char *path, struct kvm *kvm, char *error);
/* After a step that KVM has refused: -EOPNOTSUPP with a sentence in error, as above, if one of the others is
 * missing; or 0. */
int kvm_explain(const struct kvm *kvm, const char *path, char *error);
/* Takes one that kvm_open refused. */
void kvm_close(struct kvm *kvm);

/* An ioctl by number, for the modules that know the processor's own: what it returns, or -errno. */
int kvm_call(int fd, unsigned long request, void *argument);
int kvm_call_value(int fd, unsigned long request, unsigned long value);

/* An optional capability (KVM_CAP_*) of the whole host. */
bool kvm_has_capability(const struct kvm *kvm, int capability);

/* A VM's fd, or -errno. */
int kvm_create_vm(const struct kvm *kvm);
/* Takes memory at host as guest memory; it must stay mapped until the VM is gone. */
int kvm_set_memory(int vm, uint32_t slot, uint64_t address, uint64_t size, void *host);
/* The three pages that Intel needs for real mode. The one of its identity map stays where KVM has it from the
 * start: LAYOUT_IDENTITY_MAP_BASE (Linux' Documentation/virt/kvm/api.rst, 4.40). Before the first vCPU. */
int kvm_set_tss(int vm, uint64_t address);
/* Local APICs in the kernel, the rest in user space. pins: of the IOAPIC there. Before the first vCPU. */
int kvm_split_irqchip(int vm, unsigned pins);

/* vCPUs that one VM may have. */
unsigned kvm_vcpus_max(const struct kvm *kvm);
/* A vCPU's fd, or -errno. */
int kvm_create_vcpu(int vm, unsigned id);
/* Maps its shared pages; 0 or -errno. kvm_unmap_run takes NULL. */
int kvm_map_run(const struct kvm *kvm, int vcpu, struct kvm_run **run);
void kvm_unmap_run(const struct kvm *kvm, struct kvm_run *run);
/* 0: an exit to handle; -EINTR: a signal or immediate_exit; -errno. */
int kvm_run_vcpu(int vcpu);

/* A 4-byte write of `match` to address signals the eventfd and does not exit. */
int kvm_add_ioeventfd(int vm, uint64_t address, uint32_t match, int eventfd);
/* A write to the eventfd raises the GSI. */
int kvm_add_irqfd(int vm, uint32_t gsi, int eventfd);

struct kvm_route {
	uint32_t gsi;
	uint64_t address; /* MSI message */
	uint32_t data;
};
enum { KVM_ROUTES_MAX = 32 };
/* Replaces all routes. -E2BIG over KVM_ROUTES_MAX. Waits until no interrupt uses the old ones. */
int kvm_set_routes(int vm, const struct kvm_route *routes, unsigned count);

/* Reads one of KVM's own counters of a VM or vCPU by name (KVM_GET_STATS_FD, then binary stats). 0, -ENOENT
 * (no such counter), or -errno. */
int kvm_open_stats(int vm_or_vcpu);
int kvm_read_stat(int stats, const char *name, uint64_t *value);

#endif
