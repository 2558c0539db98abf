/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves and fields as in Intel's SDM (volume 2A, CPUID) and AMD's manual (volume 3, appendix E). */
#include "vmm/cpuid_x86_64.h"
#include <stdint.h>

enum {
	LEAF_VENDOR = 0x0,
	VENDOR_EBX_AMD = 0x68747541,   /* "Auth", of AuthenticAMD */
	VENDOR_EBX_HYGON = 0x6f677948, /* "Hygo", of HygonGenuine, which has AMD's leaves */

	LEAF_FEATURES = 0x1,
	FEATURES_EBX_KEEP = 0xffff, /* brand and cache line; above: logical processors, APIC id */
	FEATURES_EBX_CPUS_SHIFT = 16,
	FEATURES_EBX_ID_SHIFT = 24,
	FEATURES_EDX_HTT = 1 << 28, /* more than one logical processor in the package */
	FEATURES_ECX_TSC_DEADLINE = 1 << 24,
	FEATURES_ECX_VMX = 1 << 5,

	/* Both describe one cache an index, alike. */
	LEAF_CACHES = 0x4,
	CACHE_EAX_TYPE = 0x1f, /* 0: no more caches */
	CACHE_EAX_LEVEL_SHIFT = 5,
	CACHE_EAX_LEVEL = 7,
	CACHE_EAX_KEEP = 0x3fff, /* type, level and flags; above: who shares it, and cores of the package */
	CACHE_EAX_SHARING_SHIFT = 14,
	CACHE_EAX_CORES_SHIFT = 26, /* Intel only */
	CACHE_LEVEL_SHARED = 3,	    /* the first that all cores share */

	LEAF_TOPOLOGY = 0xb,
	LEAF_TOPOLOGY_V2 = 0x1f,
	TOPOLOGY_LEVELS = 2,
	TOPOLOGY_THREAD = 1 << 8, /* ECX: the level's type, over its number */
	TOPOLOGY_CORE = 2 << 8,

	AMD_FEATURES_ECX_CMP_LEGACY = 1 << 1, /* the logical processors are cores, not threads */
	AMD_FEATURES_ECX_SVM = 1 << 2,
	POWER_EDX_INVARIANT_TSC = 1 << 8,
	AMD_SIZES_ECX_ID_BITS_SHIFT = 12,
};
#define FEATURES_ECX_HYPERVISOR (1u << 31)
#define LEAF_AMD_FEATURES 0x80000001u
#define LEAF_POWER 0x80000007u
#define LEAF_SIZES 0x80000008u
#define LEAF_AMD_CACHES 0x8000001du
#define LEAF_AMD_TOPOLOGY 0x8000001eu

/* What an entry is adapted to. */
struct place {
	unsigned id, cpus;
	bool amd, tsc_deadline;
};

static bool is_amd(const struct kvm_cpuid2 *cpuid)
{
	for (unsigned i = 0; i < cpuid->nent; i++)
		if (cpuid->entries[i].function == LEAF_VENDOR)
			return cpuid->entries[i].ebx == VENDOR_EBX_AMD ||
			       cpuid->entries[i].ebx == VENDOR_EBX_HYGON;
	return false;
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
static void set_topology_level(struct kvm_cpuid_entry2 *entry, const struct place *place)
{
	bool cores = entry->index == 1;

	entry->flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
	entry->eax = cores ? id_bits(place->cpus) : 0;
	entry->ebx = cores ? place->cpus : 1;
	entry->ecx = entry->index | (cores ? TOPOLOGY_CORE : TOPOLOGY_THREAD);
	entry->edx = place->id;
}

/* KVM has the first level at most, and says nothing in it. */
static void set_topology(struct kvm_cpuid2 *cpuid, uint32_t leaf, const struct place *place)
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
		set_topology_level(entry, place);
	}
}

static void set_features(struct kvm_cpuid_entry2 *entry, const struct place *place)
{
	entry->ebx &= FEATURES_EBX_KEEP;
	entry->ebx |= place->cpus << FEATURES_EBX_CPUS_SHIFT | place->id << FEATURES_EBX_ID_SHIFT;
	entry->ecx |= FEATURES_ECX_HYPERVISOR;
	entry->ecx &= ~(uint32_t)(FEATURES_ECX_TSC_DEADLINE | FEATURES_ECX_VMX);
	entry->ecx |= place->tsc_deadline ? FEATURES_ECX_TSC_DEADLINE : 0;
	entry->edx &= ~(uint32_t)FEATURES_EDX_HTT;
	entry->edx |= place->cpus > 1 ? FEATURES_EDX_HTT : 0;
}

static void set_amd_features(struct kvm_cpuid_entry2 *entry, const struct place *place)
{
	entry->ecx &= ~(uint32_t)AMD_FEATURES_ECX_SVM;
	if (!place->amd)
		return;
	entry->ecx &= ~(uint32_t)AMD_FEATURES_ECX_CMP_LEGACY;
	entry->ecx |= place->cpus > 1 ? AMD_FEATURES_ECX_CMP_LEGACY : 0;
}

/* Intel counts APIC ids that could be there, a power of two; AMD the processors that are. */
static void set_cache(struct kvm_cpuid_entry2 *entry, const struct place *place)
{
	bool amd = entry->function == LEAF_AMD_CACHES;
	unsigned level = entry->eax >> CACHE_EAX_LEVEL_SHIFT & CACHE_EAX_LEVEL;
	uint32_t last = amd ? place->cpus - 1 : (1u << id_bits(place->cpus)) - 1;

	if ((entry->eax & CACHE_EAX_TYPE) == 0)
		return;
	entry->eax &= CACHE_EAX_KEEP;
	if (level >= CACHE_LEVEL_SHARED)
		entry->eax |= last << CACHE_EAX_SHARING_SHIFT;
	if (!amd)
		entry->eax |= last << CACHE_EAX_CORES_SHIFT;
}

/* Cores of the package less one; reserved on Intel. */
static void set_sizes(struct kvm_cpuid_entry2 *entry, const struct place *place)
{
	entry->ecx = 0;
	if (place->amd)
		entry->ecx = (place->cpus - 1) | id_bits(place->cpus) << AMD_SIZES_ECX_ID_BITS_SHIFT;
}

static void adapt_entry(struct kvm_cpuid_entry2 *entry, const struct place *place)
{
	switch (entry->function) {
	case LEAF_FEATURES:
		set_features(entry, place);
		break;
	case LEAF_CACHES:
	case LEAF_AMD_CACHES:
		set_cache(entry, place);
		break;
	case LEAF_AMD_FEATURES:
		set_amd_features(entry, place);
		break;
	case LEAF_POWER:
		entry->edx &= ~(uint32_t)POWER_EDX_INVARIANT_TSC;
		break;
	case LEAF_SIZES:
		set_sizes(entry, place);
		break;
	case LEAF_AMD_TOPOLOGY: /* APIC id; core, of one thread; node 0 of one */
		entry->eax = place->id;
		entry->ebx = place->id;
		entry->ecx = 0;
		break;
	}
}

void cpuid_adapt(struct kvm_cpuid2 *cpuid, unsigned id, unsigned cpus, bool tsc_deadline)
{
	struct place place = {.id = id, .cpus = cpus, .amd = is_amd(cpuid), .tsc_deadline = tsc_deadline};

	for (unsigned i = 0; i < cpuid->nent; i++)
		adapt_entry(&cpuid->entries[i], &place);
	set_topology(cpuid, LEAF_TOPOLOGY, &place);
	set_topology(cpuid, LEAF_TOPOLOGY_V2, &place);
}
