/* SPDX-License-Identifier: Apache-2.0 */
/* The rules by which a vCPU's CPUID is made from what KVM supports, on the tables of an Intel and an AMD
 * host. */
#include "tests/support/unit.h"

#include "vmm/cpuid_x86_64.h"
#include "vmm/layout.h"
#include <string.h>

enum {
	ENTRIES_MAX = 20,
	HOST_ID = 0x2a, /* the APIC id of the CPU that the call ran on */
	INDEXED = KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
	HTT = 1 << 28,
	CMP_LEGACY = 1 << 1,
};

/* What a host might say: its own APIC id and topology, an invariant TSC, nested virtualization. */
static const struct kvm_cpuid_entry2 intel[] = {
	{.function = 0x0, .eax = 0x1f, .ebx = 0x756e6547, .ecx = 0x6c65746e, .edx = 0x49656e69},
	{.function = 0x1, .eax = 0x22222222, .ebx = 0x2a402233, .ecx = 1 << 21 | 1 << 5, .edx = 0x10000001},
	/* data, code, second level (2 threads each), third level (64 threads); 32 cores */
	{.function = 0x4, .index = 0, .flags = INDEXED, .eax = 0x7c004121, .ebx = 0x02c0003f, .ecx = 0x3f},
	{.function = 0x4, .index = 1, .flags = INDEXED, .eax = 0x7c004122, .ebx = 0x01c0003f, .ecx = 0x3f},
	{.function = 0x4, .index = 2, .flags = INDEXED, .eax = 0x7c004143, .ebx = 0x04c0003f, .ecx = 0x3ff},
	{.function = 0x4, .index = 3, .flags = INDEXED, .eax = 0x7c0fc163, .ebx = 0x02c0003f, .ecx = 0x7fff},
	{.function = 0x4, .index = 4, .flags = INDEXED},
	{.function = 0xb, .flags = INDEXED, .edx = HOST_ID},
	{.function = 0x1f, .flags = INDEXED, .edx = HOST_ID},
	{.function = 0x80000001, .ecx = 0x121, .edx = 0x2c100800},
	{.function = 0x80000007, .eax = 1, .edx = 0x1ff},
	{.function = 0x80000008, .eax = 0x302e, .ebx = 0x0100d000},
};

static const struct kvm_cpuid_entry2 amd[] = {
	{.function = 0x0, .eax = 0x10, .ebx = 0x68747541, .ecx = 0x444d4163, .edx = 0x69746e65},
	{.function = 0x1, .eax = 0x22222222, .ebx = 0x2a402233, .ecx = 1 << 21, .edx = 0x10000001},
	{.function = 0xb, .flags = INDEXED, .edx = HOST_ID},
	{.function = 0x80000001, .ecx = 0x00400067, .edx = 0x2c100800},
	{.function = 0x80000007, .eax = 1, .edx = 0x1ff},
	{.function = 0x80000008, .eax = 0x3030, .ebx = 0x0100d000, .ecx = 0x603f},
	{.function = 0x8000001d, .index = 0, .flags = INDEXED, .eax = 0x4121, .ebx = 0x01c0003f, .ecx = 0x3f},
	{.function = 0x8000001d, .index = 1, .flags = INDEXED, .eax = 0x4122, .ebx = 0x01c0003f, .ecx = 0x3f},
	{.function = 0x8000001d,
		.index = 2,
		.flags = INDEXED,
		.eax = 0x4143,
		.ebx = 0x01c0003f,
		.ecx = 0x3ff},
	{.function = 0x8000001d,
		.index = 3,
		.flags = INDEXED,
		.eax = 0x3c163,
		.ebx = 0x03c0003f,
		.ecx = 0x7fff},
	{.function = 0x8000001d, .index = 4, .flags = INDEXED},
	{.function = 0x8000001e, .eax = HOST_ID, .ebx = 0x115, .ecx = 3},
};

struct host {
	const struct kvm_cpuid_entry2 *entries;
	unsigned count;
};

static const struct host intel_host = {intel, sizeof(intel) / sizeof(intel[0])};
static const struct host amd_host = {amd, sizeof(amd) / sizeof(amd[0])};

union list {
	struct kvm_cpuid2 cpuid;
	char room[sizeof(struct kvm_cpuid2) +
		  (ENTRIES_MAX + CPUID_ADDED_MAX) * sizeof(struct kvm_cpuid_entry2)];
};

static void adapt(union list *list, const struct host *host, unsigned id, unsigned cpus, bool tsc_deadline)
{
	memset(list, 0, sizeof(*list));
	assert_true(host->count <= ENTRIES_MAX);
	list->cpuid.nent = host->count;
	memcpy(list->cpuid.entries, host->entries, host->count * sizeof(host->entries[0]));
	cpuid_adapt(&list->cpuid, id, cpus, tsc_deadline);
}

static const struct kvm_cpuid_entry2 *find(const union list *list, uint32_t function, uint32_t index)
{
	const struct kvm_cpuid_entry2 *found = NULL;

	for (unsigned i = 0; i < list->cpuid.nent; i++) {
		const struct kvm_cpuid_entry2 *entry = &list->cpuid.entries[i];

		if (entry->function != function || entry->index != index)
			continue;
		assert_null(found); /* once only */
		found = entry;
	}
	return found;
}

/* Bits of an id for 1..8 processors, written down and not computed. */
static const unsigned bits_for[LAYOUT_CPUS_MAX + 1] = {0, 0, 1, 2, 2, 3, 3, 3, 3};

static void check_features(const union list *list, unsigned id, unsigned cpus)
{
	assert_int_equal(find(list, 1, 0)->ebx, id << 24 | cpus << 16 | 0x2233);
	assert_int_equal(find(list, 1, 0)->edx, cpus > 1 ? 1 | HTT : 1);
}

static void check_topology(const union list *list, uint32_t leaf, unsigned id, unsigned cpus)
{
	const struct kvm_cpuid_entry2 *threads = find(list, leaf, 0), *cores = find(list, leaf, 1);

	assert_int_equal(threads->flags, INDEXED);
	assert_int_equal(threads->eax, 0);
	assert_int_equal(threads->ebx, 1);
	assert_int_equal(threads->ecx, 0x100);
	assert_int_equal(threads->edx, id);
	assert_int_equal(cores->flags, INDEXED);
	assert_int_equal(cores->eax, bits_for[cpus]);
	assert_int_equal(cores->ebx, cpus);
	assert_int_equal(cores->ecx, 0x201);
	assert_int_equal(cores->edx, id);
	assert_null(find(list, leaf, 2));
}

static void intel_topology(void **state)
{
	union list list;

	(void)state;
	for (unsigned cpus = 1; cpus <= LAYOUT_CPUS_MAX; cpus++)
		for (unsigned id = 0; id < cpus; id++) {
			uint32_t ids = (1u << bits_for[cpus]) - 1;

			adapt(&list, &intel_host, id, cpus, true);
			check_features(&list, id, cpus);
			check_topology(&list, 0xb, id, cpus);
			check_topology(&list, 0x1f, id, cpus);
			/* one core has levels 1 and 2, all share level 3 */
			assert_int_equal(find(&list, 4, 0)->eax, ids << 26 | 0x121);
			assert_int_equal(find(&list, 4, 1)->eax, ids << 26 | 0x122);
			assert_int_equal(find(&list, 4, 2)->eax, ids << 26 | 0x143);
			assert_int_equal(find(&list, 4, 3)->eax, ids << 26 | ids << 14 | 0x163);
			assert_int_equal(find(&list, 4, 4)->eax, 0);
			assert_int_equal(find(&list, 0x80000001, 0)->ecx, 0x121);
			assert_int_equal(find(&list, 0x80000008, 0)->ecx, 0);
		}
}

static void amd_topology(void **state)
{
	union list list;

	(void)state;
	for (unsigned cpus = 1; cpus <= LAYOUT_CPUS_MAX; cpus++)
		for (unsigned id = 0; id < cpus; id++) {
			adapt(&list, &amd_host, id, cpus, true);
			check_features(&list, id, cpus);
			check_topology(&list, 0xb, id, cpus);
			assert_int_equal(
				find(&list, 0x80000001, 0)->ecx, 0x00400061 | (cpus > 1 ? CMP_LEGACY : 0));
			assert_int_equal(find(&list, 0x80000008, 0)->ecx, bits_for[cpus] << 12 | (cpus - 1));
			assert_int_equal(find(&list, 0x8000001d, 0)->eax, 0x121);
			assert_int_equal(find(&list, 0x8000001d, 1)->eax, 0x122);
			assert_int_equal(find(&list, 0x8000001d, 2)->eax, 0x143);
			assert_int_equal(find(&list, 0x8000001d, 3)->eax, (cpus - 1) << 14 | 0x163);
			assert_int_equal(find(&list, 0x8000001d, 4)->eax, 0);
			assert_int_equal(find(&list, 0x8000001e, 0)->eax, id);
			assert_int_equal(find(&list, 0x8000001e, 0)->ebx, id);
			assert_int_equal(find(&list, 0x8000001e, 0)->ecx, 0);
		}
}

/* Hygon's processors are described as AMD's are. */
static void hygon_is_as_amd(void **state)
{
	struct kvm_cpuid_entry2 entries[sizeof(amd) / sizeof(amd[0])];
	const struct host host = {entries, amd_host.count};
	union list list;

	(void)state;
	memcpy(entries, amd, sizeof(amd));
	entries[0].ebx = 0x6f677948;
	adapt(&list, &host, 2, 3, false);
	assert_int_equal(find(&list, 0x80000008, 0)->ecx, 0x2002);
	assert_int_equal(find(&list, 0x80000001, 0)->ecx, 0x00400063);
}

/* Whichever of its CPUs the call ran on, the guest's tables are the same. */
static void the_host_cpu_does_not_show(void **state)
{
	static const struct host *const hosts[] = {&intel_host, &amd_host};

	(void)state;
	for (unsigned h = 0; h < 2; h++) {
		struct kvm_cpuid_entry2 entries[ENTRIES_MAX];
		const struct host other = {entries, hosts[h]->count};
		union list first, second;

		memcpy(entries, hosts[h]->entries, hosts[h]->count * sizeof(entries[0]));
		for (unsigned i = 0; i < other.count; i++) {
			if (entries[i].function == 0x1)
				entries[i].ebx = 0x17082233;
			if (entries[i].function == 0xb || entries[i].function == 0x1f)
				entries[i].edx = 0x17;
			if (entries[i].function == 0x8000001e) {
				entries[i].eax = 0x17;
				entries[i].ebx = 0x10b;
				entries[i].ecx = 1;
			}
			/* a core of the other kind: other sharing */
			if ((entries[i].function == 4 || entries[i].function == 0x8000001d) && entries[i].eax)
				entries[i].eax = (entries[i].eax & 0x3fff) | 0x1c00c000;
			if (entries[i].function == 0x80000008)
				entries[i].ecx = 0x7000 | 0x7f;
		}
		adapt(&first, hosts[h], 1, 4, true);
		adapt(&second, &other, 1, 4, true);
		assert_memory_equal(&first, &second, sizeof(first));
	}
}

static void guests_see_a_hypervisor_and_no_invariant_tsc(void **state)
{
	union list list;

	(void)state;
	adapt(&list, &intel_host, 0, 1, true);
	assert_true(find(&list, 1, 0)->ecx == (1u << 31 | 1u << 24 | 1u << 21));
	assert_int_equal(find(&list, 0x80000007, 0)->edx, 0xff);
	adapt(&list, &intel_host, 0, 1, false);
	assert_true(find(&list, 1, 0)->ecx == (1u << 31 | 1u << 21));
}

/* What is not shown KVM does not do: no guest of a guest. */
static void guests_see_no_virtualization(void **state)
{
	union list list;

	(void)state;
	adapt(&list, &intel_host, 0, 1, true);
	assert_int_equal(find(&list, 1, 0)->ecx & 1 << 5, 0);
	adapt(&list, &amd_host, 0, 2, true);
	assert_int_equal(find(&list, 0x80000001, 0)->ecx, 0x00400063);
	assert_int_equal(find(&list, 0x80000001, 0)->edx, 0x2c100800);
}

static void the_rest_is_kept_and_nothing_is_invented(void **state)
{
	union list list;

	(void)state;
	adapt(&list, &intel_host, 3, 5, true);
	assert_int_equal(find(&list, 0, 0)->ebx, 0x756e6547);
	assert_int_equal(find(&list, 1, 0)->eax, 0x22222222);
	assert_int_equal(find(&list, 4, 3)->ebx, 0x02c0003f);
	assert_int_equal(find(&list, 4, 3)->ecx, 0x7fff);
	assert_int_equal(find(&list, 0x80000007, 0)->eax, 1);
	assert_int_equal(find(&list, 0x80000008, 0)->eax, 0x302e);
	assert_int_equal(find(&list, 0x80000008, 0)->ebx, 0x0100d000);
	assert_null(find(&list, 0x8000001e, 0));
	assert_int_equal(list.cpuid.nent, intel_host.count + 2); /* the second levels of 0xb and 0x1f */
	adapt(&list, &amd_host, 3, 5, true);
	assert_null(find(&list, 0x1f, 0));
	assert_null(find(&list, 4, 0));
	assert_int_equal(list.cpuid.nent, amd_host.count + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(intel_topology),
		cmocka_unit_test(amd_topology),
		cmocka_unit_test(hygon_is_as_amd),
		cmocka_unit_test(the_host_cpu_does_not_show),
		cmocka_unit_test(guests_see_a_hypervisor_and_no_invariant_tsc),
		cmocka_unit_test(guests_see_no_virtualization),
		cmocka_unit_test(the_rest_is_kept_and_nothing_is_invented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
