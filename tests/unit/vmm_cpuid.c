/* SPDX-License-Identifier: Apache-2.0 */
/* The rules by which a vCPU's CPUID is made from what KVM supports. */
#include "tests/support/unit.h"

#include "vmm/vcpu.h"
#include <linux/kvm.h>
#include <string.h>

enum { ENTRIES = 6 };

/* What a host might say: its own APIC id (0x2a), its topology, an invariant TSC, nested virtualization. */
static const struct kvm_cpuid_entry2 host[ENTRIES] = {
	{.function = 0x0, .eax = 0x1f, .ebx = 0x11111111},
	{.function = 0x1, .eax = 0x22222222, .ebx = 0x2a102233, .ecx = 1 << 21 | 1 << 5, .edx = 0x10000001},
	{.function = 0xb, .edx = 0x2a},
	{.function = 0x80000001, .ecx = 0x67, .edx = 0x2c100800},
	{.function = 0x80000007, .eax = 1, .edx = 0x1ff},
	{.function = 0x8000001e, .eax = 0x2a, .ebx = 7},
};

union list {
	struct kvm_cpuid2 cpuid;
	char room[sizeof(struct kvm_cpuid2) + (ENTRIES + VCPU_CPUID_ADDED) * sizeof(struct kvm_cpuid_entry2)];
};

static void adapt(union list *list, unsigned id, unsigned cpus, bool tsc_deadline)
{
	memset(list, 0, sizeof(*list));
	list->cpuid.nent = ENTRIES;
	memcpy(list->cpuid.entries, host, sizeof(host));
	vcpu_adapt_cpuid(&list->cpuid, id, cpus, tsc_deadline);
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

static void the_host_cpu_does_not_show(void **state)
{
	union list list;

	(void)state;
	adapt(&list, 0, 1, false);
	assert_int_equal(find(&list, 1, 0)->ebx, 0x00012233);
	assert_int_equal(find(&list, 1, 0)->edx, 0x00000001); /* one logical processor: no HTT */
	assert_int_equal(find(&list, 0xb, 0)->edx, 0);
	assert_int_equal(find(&list, 0xb, 1)->edx, 0);
	assert_int_equal(find(&list, 0x8000001e, 0)->eax, 0);
}

static void each_vcpu_has_its_id(void **state)
{
	union list list;

	(void)state;
	adapt(&list, 5, 6, false);
	assert_int_equal(find(&list, 1, 0)->ebx, 0x05062233);
	assert_int_equal(find(&list, 1, 0)->edx, 0x10000001);
	assert_int_equal(find(&list, 0xb, 0)->eax, 0);
	assert_int_equal(find(&list, 0xb, 0)->ebx, 1);
	assert_int_equal(find(&list, 0xb, 0)->ecx, 0x100);
	assert_int_equal(find(&list, 0xb, 0)->edx, 5);
	assert_int_equal(find(&list, 0xb, 1)->eax, 3);
	assert_int_equal(find(&list, 0xb, 1)->ebx, 6);
	assert_int_equal(find(&list, 0xb, 1)->ecx, 0x201);
	assert_int_equal(find(&list, 0xb, 1)->edx, 5);
	assert_int_equal(find(&list, 0x8000001e, 0)->eax, 5);
}

static void guests_see_a_hypervisor_and_no_invariant_tsc(void **state)
{
	union list list;

	(void)state;
	adapt(&list, 0, 1, true);
	assert_true(find(&list, 1, 0)->ecx == (1u << 31 | 1u << 24 | 1u << 21));
	assert_int_equal(find(&list, 0x80000007, 0)->edx, 0xff);
	adapt(&list, 0, 1, false);
	assert_true(find(&list, 1, 0)->ecx == (1u << 31 | 1u << 21));
}

/* What is not shown KVM does not do: no guest of a guest. */
static void guests_see_no_virtualization(void **state)
{
	union list list;

	(void)state;
	adapt(&list, 0, 1, true);
	assert_int_equal(find(&list, 1, 0)->ecx & 1 << 5, 0);
	assert_int_equal(find(&list, 0x80000001, 0)->ecx, 0x63);
	assert_int_equal(find(&list, 0x80000001, 0)->edx, 0x2c100800);
}

static void the_rest_is_kept_and_nothing_is_invented(void **state)
{
	union list list;

	(void)state;
	adapt(&list, 0, 1, true);
	assert_int_equal(find(&list, 0, 0)->ebx, 0x11111111);
	assert_int_equal(find(&list, 1, 0)->eax, 0x22222222);
	assert_int_equal(find(&list, 0x80000007, 0)->eax, 1);
	assert_int_equal(find(&list, 0x8000001e, 0)->ebx, 7);
	assert_null(find(&list, 0x1f, 0));
	assert_int_equal(list.cpuid.nent, ENTRIES + 1); /* the second level of 0xb */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_host_cpu_does_not_show),
		cmocka_unit_test(each_vcpu_has_its_id),
		cmocka_unit_test(guests_see_a_hypervisor_and_no_invariant_tsc),
		cmocka_unit_test(guests_see_no_virtualization),
		cmocka_unit_test(the_rest_is_kept_and_nothing_is_invented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
