/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that KVM holds of an x86-64 vCPU, out of it and back, and as bytes of a snapshot.
 *
 * The order is that in which KVM bears it (vcpu_state_x86_64.c says why); both functions that ask KVM are for
 * a vCPU that stands. Not saved: model-specific registers that cannot be read now, Hyper-V's (no guest here
 * is offered them), and where the guest last had its wall clock written, for writing that register is a
 * command.
 *
 * Time: a snapshot has one instant, and for each vCPU what its TSC was then. It goes on from there when the
 * state is restored, as kvm-clock does: to the guest no time has passed.
 */
#ifndef VMM_VCPU_STATE_X86_64_H
#define VMM_VCPU_STATE_X86_64_H

#include "vmm/cpuid_x86_64.h"
#include "vmm/kvm.h"
#include "vmm/state.h"
#include <linux/kvm.h>

enum {
	VCPU_STATE_CPUID_MAX = CPUID_ENTRIES_MAX,
	VCPU_STATE_MSRS_MAX = 384,
	VCPU_STATE_XSAVE_MIN = 4096,
	VCPU_STATE_XSAVE_MAX = 16384, /* with AMX it is 11 KiB */
	VCPU_STATE_TSC_PPM = 250,     /* TSC frequencies closer than this are one and the same, to KVM too */
	VCPU_STATE_WHY_MAX = 256,
};

struct vcpu_state {
	uint32_t id;
	uint32_t tsc_khz;
	uint64_t tsc; /* at the snapshot's instant */
	uint32_t mp_state;
	uint32_t cpuid_count, msr_count, xsave_size;
	struct kvm_cpuid_entry2 cpuid[VCPU_STATE_CPUID_MAX];
	struct kvm_msr_entry msrs[VCPU_STATE_MSRS_MAX]; /* the deadline of the TSC's timer is the last */
	struct kvm_regs regs;
	struct kvm_sregs sregs;
	struct kvm_debugregs debug;
	struct kvm_xcrs xcrs;
	struct kvm_lapic_state lapic;
	struct kvm_vcpu_events events;
	uint8_t xsave[VCPU_STATE_XSAVE_MAX];
};

/* The host's TSC: what "now" is for the two below, the same for all vCPUs of a VM. */
uint64_t vcpu_state_now(void);

/*
 * Capabilities that the two below need of KVM. 0, or -EOPNOTSUPP with words in why (VCPU_STATE_WHY_MAX
 * bytes).
 */
int vcpu_state_check_kvm(const struct kvm *kvm, char *why);

/* kvm-clock of the VM, in ns. 0, or -errno with words in why. */
int vcpu_state_get_clock(int vm, uint64_t *clock, char *why);
int vcpu_state_set_clock(int vm, uint64_t clock, char *why);

/* Reads all but the CPUID, which the caller knows. 0, or -errno with words in why. */
int vcpu_state_save(
	const struct kvm *kvm, int vcpu, uint32_t id, uint64_t now, struct vcpu_state *state, char *why);
/*
 * Into a vCPU that has never run, whose memory is in place. 0, or -errno with words in why that name what
 * KVM refused; -EINVAL: a register in the list that this KVM does not save, a TSC of another frequency.
 */
int vcpu_state_restore(
	const struct kvm *kvm, int vcpu, uint64_t now, const struct vcpu_state *state, char *why);

struct vcpu_features;
/* The CPUID that a vCPU was given. 0, or -ENOMEM with words in why. */
int vcpu_state_set_cpuid(
	struct vcpu_state *state, const struct vcpu_features *features, unsigned cpus, char *why);
/*
 * Is this the processor that the state is from: would this host give the same vCPU of as many the same CPUID?
 * 0, or -EXDEV with words in why that name the first difference; -ENOMEM.
 */
int vcpu_state_compare_cpu(
	const struct vcpu_state *state, const struct vcpu_features *features, unsigned cpus, char *why);
/* The comparison alone, for tests. */
int vcpu_state_compare_cpuid(const struct vcpu_state *state, const struct kvm_cpuid2 *here, char *why);

/* As bytes. get refuses (through the reader) counts and sizes out of bounds and states KVM does not have;
 * what is in registers is for KVM to check. */
void vcpu_state_put(struct state_writer *writer, const struct vcpu_state *state);
void vcpu_state_get(struct state_reader *reader, struct vcpu_state *state);

#endif
