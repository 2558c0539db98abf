/* SPDX-License-Identifier: Apache-2.0 */
/* The x86-64 processor: its features, model-specific and segment registers. */
#include "vmm/boot_x86_64.h"
#include "vmm/cpuid_x86_64.h"
#include "vmm/vcpu.h"
#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>

enum {
	MSR_MISC_ENABLE = 0x1a0,
	MISC_ENABLE_FAST_STRING = 1 << 0,
	MSR_MTRR_DEFAULT_TYPE = 0x2ff,
	MTRR_ENABLE = 1 << 11,
	MTRR_WRITE_BACK = 6,
};

struct vcpu_features {
	bool tsc_deadline;
	union {
		struct kvm_cpuid2 cpuid;
		char room[sizeof(struct kvm_cpuid2) + CPUID_ENTRIES_MAX * sizeof(struct kvm_cpuid_entry2)];
	};
};

int vcpu_features_create(const struct kvm *kvm, struct vcpu_features **out)
{
	struct vcpu_features *features = calloc(1, sizeof(*features));
	int r;

	if (!features)
		return -ENOMEM;
	features->tsc_deadline = kvm_has_capability(kvm, KVM_CAP_TSC_DEADLINE_TIMER);
	features->cpuid.nent = CPUID_ENTRIES_MAX - CPUID_ADDED_MAX;
	r = kvm_call(kvm->fd, KVM_GET_SUPPORTED_CPUID, &features->cpuid);
	if (r < 0) {
		free(features);
		return r;
	}
	*out = features;
	return 0;
}

void vcpu_features_destroy(struct vcpu_features *features)
{
	free(features);
}

/* What firmware leaves behind: memory is write-back, string instructions are fast. */
static int set_msrs(const struct vcpu *vcpu)
{
	static const struct kvm_msr_entry entries[] = {
		{.index = MSR_MISC_ENABLE, .data = MISC_ENABLE_FAST_STRING},
		{.index = MSR_MTRR_DEFAULT_TYPE, .data = MTRR_ENABLE | MTRR_WRITE_BACK},
	};
	enum { COUNT = sizeof(entries) / sizeof(entries[0]) };
	union {
		struct kvm_msrs list;
		char room[sizeof(struct kvm_msrs) + sizeof(entries)];
	} msrs = {.list = {.nmsrs = COUNT}};
	int r;

	memcpy(msrs.list.entries, entries, sizeof(entries));
	r = kvm_call(vcpu->fd, KVM_SET_MSRS, &msrs.list);
	if (r < 0)
		return r;
	/* KVM stops at the first that it refuses. */
	return r == COUNT ? 0 : -EINVAL;
}

void vcpu_features_adapt(
	const struct vcpu_features *features, unsigned id, unsigned cpus, struct kvm_cpuid2 *cpuid)
{
	memcpy(cpuid, &features->cpuid,
		sizeof(features->cpuid) + features->cpuid.nent * sizeof(features->cpuid.entries[0]));
	cpuid_adapt(cpuid, id, cpus, features->tsc_deadline);
}

int vcpu_set_features(struct vcpu *vcpu, const struct vcpu_features *features, unsigned cpus)
{
	struct vcpu_features own;
	int r;

	vcpu_features_adapt(features, vcpu->id, cpus, &own.cpuid);
	r = kvm_call(vcpu->fd, KVM_SET_CPUID2, &own.cpuid);
	return r < 0 ? r : set_msrs(vcpu);
}

void vcpu_excuse_pause(const struct vcpu *vcpu)
{
	/* Refused when the guest has no kvm-clock. */
	(void)kvm_call_value(vcpu->fd, KVM_KVMCLOCK_CTRL, 0);
}

static struct kvm_segment make_segment(const struct boot_segment *from)
{
	return (struct kvm_segment){
		.base = from->base,
		.limit = from->limit,
		.selector = from->selector,
		.type = from->type,
		.present = from->present,
		.dpl = from->dpl,
		.db = from->db,
		.s = from->s,
		.l = from->l,
		.g = from->g,
	};
}

int vcpu_set_entry(struct vcpu *vcpu, const struct boot_state *state)
{
	struct kvm_regs regs = {.rip = state->rip, .rsi = state->rsi, .rflags = state->rflags};
	struct kvm_segment data = make_segment(&state->data);
	struct kvm_sregs sregs;
	int r = kvm_call(vcpu->fd, KVM_GET_SREGS, &sregs);

	if (r < 0)
		return r;
	sregs.cs = make_segment(&state->code);
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
	sregs.tr = make_segment(&state->task);
	sregs.gdt = (struct kvm_dtable){.base = state->gdt_base, .limit = state->gdt_limit};
	sregs.idt = (struct kvm_dtable){0};
	sregs.cr0 = state->cr0;
	sregs.cr3 = state->cr3;
	sregs.cr4 = state->cr4;
	sregs.efer = state->efer;
	r = kvm_call(vcpu->fd, KVM_SET_SREGS, &sregs);
	return r < 0 ? r : kvm_call(vcpu->fd, KVM_SET_REGS, &regs);
}

uint64_t vcpu_program_counter(const struct vcpu *vcpu)
{
	struct kvm_regs regs;

	return kvm_call(vcpu->fd, KVM_GET_REGS, &regs) < 0 ? 0 : regs.rip;
}
