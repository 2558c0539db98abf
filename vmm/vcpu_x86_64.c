/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The x86-64 processor: CPUID, model-specific and segment registers.
 *
 * CPUID is what KVM supports, but for: the APIC id and the topology, which KVM passes on from the host CPU
 * that the call happened to run on; the hypervisor bit, without which a guest looks for no kvm-clock; the
 * deadline timer, which KVM emulates but never advertises (there is no PIT to calibrate another timer by);
 * the invariant TSC, hidden so that guests keep to kvm-clock, which survives a restore; and virtualization
 * (VMX, SVM): KVM refuses a guest's VMXON or EFER.SVME then, and with them its largest piece of emulation.
 */
#include "vmm/boot_x86_64.h"
#include "vmm/vcpu.h"
#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
	CPUID_ENTRIES_MAX = 256, /* KVM knows fewer */

	LEAF_FEATURES = 0x1,
	LEAF_TOPOLOGY = 0xb,
	LEAF_TOPOLOGY_V2 = 0x1f,
	FEATURES_EBX_KEEP = 0xffff, /* brand and cache line; above: logical processors, APIC id */
	FEATURES_EBX_CPUS_SHIFT = 16,
	FEATURES_EBX_ID_SHIFT = 24,
	FEATURES_EDX_HTT = 1 << 28,
	FEATURES_ECX_TSC_DEADLINE = 1 << 24,
	FEATURES_ECX_VMX = 1 << 5,
	AMD_FEATURES_ECX_SVM = 1 << 2,
	POWER_EDX_INVARIANT_TSC = 1 << 8,
	TOPOLOGY_LEVELS = 2,
	TOPOLOGY_THREAD = 1 << 8, /* ECX: the level's type, over its number */
	TOPOLOGY_CORE = 2 << 8,

	MSR_MISC_ENABLE = 0x1a0,
	MISC_ENABLE_FAST_STRING = 1 << 0,
	MSR_MTRR_DEFAULT_TYPE = 0x2ff,
	MTRR_ENABLE = 1 << 11,
	MTRR_WRITE_BACK = 6,
};
#define LEAF_AMD_FEATURES 0x80000001u
#define LEAF_POWER 0x80000007u
#define LEAF_AMD_TOPOLOGY 0x8000001eu
#define FEATURES_ECX_HYPERVISOR (1u << 31)

struct vcpu_features {
	bool tsc_deadline;
	union {
		struct kvm_cpuid2 cpuid;
		char room[sizeof(struct kvm_cpuid2) + CPUID_ENTRIES_MAX * sizeof(struct kvm_cpuid_entry2)];
	};
};

static int call(int fd, unsigned long request, void *argument)
{
	int r = ioctl(fd, request, argument);

	return r < 0 ? -errno : r;
}

int vcpu_features_create(const struct kvm *kvm, struct vcpu_features **out)
{
	struct vcpu_features *features = calloc(1, sizeof(*features));
	int r;

	if (!features)
		return -ENOMEM;
	features->tsc_deadline = kvm_has_capability(kvm, KVM_CAP_TSC_DEADLINE_TIMER);
	features->cpuid.nent = CPUID_ENTRIES_MAX - VCPU_CPUID_ADDED;
	r = call(kvm->fd, KVM_GET_SUPPORTED_CPUID, &features->cpuid);
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

/* Bits of the APIC id that tell one of `cpus` from the others. */
static unsigned id_bits(unsigned cpus)
{
	unsigned bits = 0;

	while (1u << bits < cpus)
		bits++;
	return bits;
}

/* One thread a core, all cores in one package. */
static void set_topology_level(struct kvm_cpuid_entry2 *entry, unsigned id, unsigned cpus)
{
	bool cores = entry->index == 1;

	entry->flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
	entry->eax = cores ? id_bits(cpus) : 0;
	entry->ebx = cores ? cpus : 1;
	entry->ecx = entry->index | (cores ? TOPOLOGY_CORE : TOPOLOGY_THREAD);
	entry->edx = id;
}

/* KVM has the first level at most, and says nothing in it. */
static void set_topology(struct kvm_cpuid2 *cpuid, uint32_t leaf, unsigned id, unsigned cpus)
{
	bool present = false;
	unsigned kept = 0;

	for (unsigned i = 0; i < cpuid->nent; i++) {
		if (cpuid->entries[i].function == leaf)
			present = true;
		else
			cpuid->entries[kept++] = cpuid->entries[i];
	}
	cpuid->nent = kept;
	for (unsigned level = 0; present && level < TOPOLOGY_LEVELS; level++) {
		struct kvm_cpuid_entry2 *entry = &cpuid->entries[cpuid->nent++];

		*entry = (struct kvm_cpuid_entry2){.function = leaf, .index = level};
		set_topology_level(entry, id, cpus);
	}
}

static void adapt_entry(struct kvm_cpuid_entry2 *entry, unsigned id, unsigned cpus, bool tsc_deadline)
{
	switch (entry->function) {
	case LEAF_FEATURES:
		entry->ebx &= FEATURES_EBX_KEEP;
		entry->ebx |= cpus << FEATURES_EBX_CPUS_SHIFT | id << FEATURES_EBX_ID_SHIFT;
		entry->ecx |= FEATURES_ECX_HYPERVISOR;
		entry->ecx &= ~(uint32_t)(FEATURES_ECX_TSC_DEADLINE | FEATURES_ECX_VMX);
		entry->ecx |= tsc_deadline ? FEATURES_ECX_TSC_DEADLINE : 0;
		entry->edx &= ~(uint32_t)FEATURES_EDX_HTT;
		entry->edx |= cpus > 1 ? FEATURES_EDX_HTT : 0;
		break;
	case LEAF_AMD_FEATURES:
		entry->ecx &= ~(uint32_t)AMD_FEATURES_ECX_SVM;
		break;
	case LEAF_POWER:
		entry->edx &= ~(uint32_t)POWER_EDX_INVARIANT_TSC;
		break;
	case LEAF_AMD_TOPOLOGY:
		entry->eax = id;
		break;
	}
}

void vcpu_adapt_cpuid(struct kvm_cpuid2 *cpuid, unsigned id, unsigned cpus, bool tsc_deadline)
{
	for (unsigned i = 0; i < cpuid->nent; i++)
		adapt_entry(&cpuid->entries[i], id, cpus, tsc_deadline);
	set_topology(cpuid, LEAF_TOPOLOGY, id, cpus);
	set_topology(cpuid, LEAF_TOPOLOGY_V2, id, cpus);
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
	r = call(vcpu->fd, KVM_SET_MSRS, &msrs.list);
	if (r < 0)
		return r;
	/* KVM stops at the first that it refuses. */
	return r == COUNT ? 0 : -EINVAL;
}

int vcpu_set_features(struct vcpu *vcpu, const struct vcpu_features *features, unsigned cpus)
{
	struct vcpu_features *own = malloc(sizeof(*own));
	int r;

	if (!own)
		return -ENOMEM;
	memcpy(own, features, sizeof(*own));
	vcpu_adapt_cpuid(&own->cpuid, vcpu->id, cpus, features->tsc_deadline);
	r = call(vcpu->fd, KVM_SET_CPUID2, &own->cpuid);
	free(own);
	return r < 0 ? r : set_msrs(vcpu);
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
	int r = call(vcpu->fd, KVM_GET_SREGS, &sregs);

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
	r = call(vcpu->fd, KVM_SET_SREGS, &sregs);
	return r < 0 ? r : call(vcpu->fd, KVM_SET_REGS, &regs);
}

uint64_t vcpu_program_counter(const struct vcpu *vcpu)
{
	struct kvm_regs regs;

	return call(vcpu->fd, KVM_GET_REGS, &regs) < 0 ? 0 : regs.rip;
}
