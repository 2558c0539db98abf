/* SPDX-License-Identifier: Apache-2.0 */
/* A vCPU's state as bytes, and whether a processor is the one it is from. What KVM does is tests/machine's.
 */
#include "tests/support/unit.h"

#include "vmm/vcpu_state_x86_64.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64 * 1024, LEAVES = 5, MSRS = 3 };

struct fixture {
	struct vcpu_state state, back;
	uint8_t bytes[ROOM];
	size_t length;
	union {
		struct kvm_cpuid2 cpuid;
		char room[sizeof(struct kvm_cpuid2) + (LEAVES + 1) * sizeof(struct kvm_cpuid_entry2)];
	} here;
	char why[VCPU_STATE_WHY_MAX];
};

static void fill(void *data, size_t length, uint8_t seed)
{
	for (size_t i = 0; i < length; i++)
		((uint8_t *)data)[i] = (uint8_t)(seed + i * 7);
}

static void fill_cpuid(struct vcpu_state *state)
{
	static const struct kvm_cpuid_entry2 leaves[LEAVES] = {
		{.function = 0, .eax = 0xd, .ebx = 0x756e6547, .ecx = 0x6c65746e, .edx = 0x49656e69},
		{.function = 1, .eax = 0x906ea, .ebx = 0x10800, .ecx = 0x80000000, .edx = 0x1},
		{.function = 7, .index = 0, .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX, .ebx = 0x20},
		{.function = 7, .index = 1, .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX, .eax = 0x10},
		{.function = 0x80000008, .eax = 0x3027},
	};

	memcpy(state->cpuid, leaves, sizeof(leaves));
	state->cpuid_count = LEAVES;
}

static void encode(struct fixture *f)
{
	struct state_writer writer;

	state_writer_init(&writer, f->bytes, sizeof(f->bytes));
	vcpu_state_put(&writer, &f->state);
	assert_int_equal(writer.error, 0);
	f->length = writer.length;
}

static int decode(struct fixture *f, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);
	struct state_reader reader;
	int r;

	assert_non_null(copy);
	memcpy(copy, f->bytes, length);
	memset(&f->back, 0, sizeof(f->back));
	state_reader_init(&reader, copy, length);
	vcpu_state_get(&reader, &f->back);
	r = state_reader_finish(&reader);
	free(copy);
	return r;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->state.id = 2;
	f->state.tsc_khz = 2400000;
	f->state.tsc = 0x123456789abc;
	f->state.mp_state = KVM_MP_STATE_HALTED;
	fill_cpuid(&f->state);
	f->state.msr_count = MSRS;
	for (unsigned i = 0; i < MSRS; i++)
		f->state.msrs[i] = (struct kvm_msr_entry){.index = 0x174 + i, .data = 0x1111111122222222 * i};
	fill(&f->state.regs, sizeof(f->state.regs), 1);
	fill(&f->state.sregs, sizeof(f->state.sregs), 2);
	fill(&f->state.debug, sizeof(f->state.debug), 3);
	fill(&f->state.xcrs, sizeof(f->state.xcrs), 4);
	fill(&f->state.lapic, sizeof(f->state.lapic), 5);
	fill(&f->state.events, sizeof(f->state.events), 6);
	f->state.xsave_size = VCPU_STATE_XSAVE_MIN + 64;
	fill(f->state.xsave, f->state.xsave_size, 7);
	encode(f);
	f->here.cpuid = (struct kvm_cpuid2){.nent = LEAVES};
	memcpy(f->here.cpuid.entries, f->state.cpuid, LEAVES * sizeof(f->state.cpuid[0]));
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static void everything_comes_back(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(decode(f, f->length), 0);
	assert_memory_equal(&f->back, &f->state, sizeof(f->state));
}

/* Whatever is added to the struct and forgotten in the format is found: each byte matters, but for what is
 * behind the counts. */
static void every_field_is_in_the_bytes(void **state)
{
	struct fixture *f = *state;
	static const struct {
		size_t offset, length;
	} fields[] = {
#define FIELD(name) {offsetof(struct vcpu_state, name), sizeof(((struct vcpu_state *)0)->name)}
		FIELD(id), FIELD(tsc_khz), FIELD(tsc), FIELD(regs), FIELD(sregs), FIELD(debug), FIELD(xcrs),
		FIELD(lapic), FIELD(events), FIELD(cpuid[LEAVES - 1].edx), FIELD(cpuid[0].function),
		FIELD(cpuid[2].index), FIELD(cpuid[2].flags), FIELD(cpuid[1].eax), FIELD(cpuid[1].ebx),
		FIELD(cpuid[1].ecx), FIELD(msrs[MSRS - 1].data), FIELD(msrs[0].index), FIELD(xsave[0]),
		FIELD(xsave[VCPU_STATE_XSAVE_MIN + 63])};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		for (size_t byte = 0; byte < fields[i].length; byte++) {
			((uint8_t *)&f->state)[fields[i].offset + byte] ^= 0xff;
			encode(f);
			assert_int_equal(decode(f, f->length), 0);
			assert_memory_equal(&f->back, &f->state, sizeof(f->state));
			((uint8_t *)&f->state)[fields[i].offset + byte] ^= 0xff;
		}
}

static void bytes_cut_off_anywhere_are_refused(void **state)
{
	struct fixture *f = *state;

	for (size_t length = 0; length < f->length; length++)
		assert_int_equal(decode(f, length), -EBADMSG);
	assert_int_equal(decode(f, f->length + 1), -EBADMSG);
}

/* Changes one u32 of the bytes and expects what becomes of it. */
static void expect_u32(struct fixture *f, size_t offset, uint32_t value, int wanted)
{
	uint32_t was;

	memcpy(&was, f->bytes + offset, sizeof(was));
	memcpy(f->bytes + offset, &value, sizeof(value));
	assert_int_equal(decode(f, f->length), wanted);
	memcpy(f->bytes + offset, &was, sizeof(was));
}

static void counts_out_of_bounds_are_refused(void **state)
{
	struct fixture *f = *state;
	size_t cpuid = 16, run = cpuid + 4 + LEAVES * 28, xsave = run + 4 + 144 + 312;
	size_t msrs = f->length - 64 - MSRS * 12 - 4;

	expect_u32(f, cpuid, LEAVES, 0);
	expect_u32(f, cpuid, VCPU_STATE_CPUID_MAX + 1, -EBADMSG);
	expect_u32(f, cpuid, UINT32_MAX, -EBADMSG);
	expect_u32(f, cpuid, LEAVES - 1, -EBADMSG);
	expect_u32(f, run, KVM_MP_STATE_SIPI_RECEIVED, 0);
	expect_u32(f, run, KVM_MP_STATE_SIPI_RECEIVED + 1, -EBADMSG);
	expect_u32(f, xsave, VCPU_STATE_XSAVE_MIN + 64, 0);
	expect_u32(f, xsave, VCPU_STATE_XSAVE_MIN - 1, -EBADMSG);
	expect_u32(f, xsave, VCPU_STATE_XSAVE_MAX + 1, -EBADMSG);
	expect_u32(f, xsave, UINT32_MAX, -EBADMSG);
	expect_u32(f, msrs, MSRS, 0);
	expect_u32(f, msrs, VCPU_STATE_MSRS_MAX + 1, -EBADMSG);
	expect_u32(f, msrs, UINT32_MAX, -EBADMSG);
}

static void the_same_processor_is_accepted(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vcpu_state_compare_cpuid(&f->state, &f->here.cpuid, f->why), 0);
	/* In another order too. */
	f->here.cpuid.entries[0] = f->state.cpuid[1];
	f->here.cpuid.entries[1] = f->state.cpuid[0];
	assert_int_equal(vcpu_state_compare_cpuid(&f->state, &f->here.cpuid, f->why), 0);
}

static void expect_other(struct fixture *f, const char *why)
{
	assert_int_equal(vcpu_state_compare_cpuid(&f->state, &f->here.cpuid, f->why), -EXDEV);
	assert_string_equal(f->why, why);
}

static void another_vendor_is_named(void **state)
{
	struct fixture *f = *state;

	memcpy(&f->here.cpuid.entries[0].ebx, "Auth", 4);
	memcpy(&f->here.cpuid.entries[0].edx, "enti", 4);
	memcpy(&f->here.cpuid.entries[0].ecx, "cAMD", 4);
	expect_other(f, "is of another processor: GenuineIntel, here AuthenticAMD");
}

static void another_model_is_named(void **state)
{
	struct fixture *f = *state;

	f->here.cpuid.entries[1].eax = 0x906eb;
	expect_other(f, "is of another processor: family, model and stepping are 0x906ea, here 0x906eb");
}

static void every_register_of_every_leaf_is_compared(void **state)
{
	struct fixture *f = *state;
	static const char *const names[] = {"EAX", "EBX", "ECX", "EDX"};

	for (unsigned leaf = 2; leaf < LEAVES; leaf++)
		for (unsigned i = 0; i < 4; i++) {
			struct kvm_cpuid_entry2 *entry = &f->here.cpuid.entries[leaf];
			uint32_t *value = &entry->eax + i, was = *value;
			char wanted[VCPU_STATE_WHY_MAX];

			*value ^= 0x80000000;
			snprintf(wanted, sizeof(wanted),
				"is of another processor or KVM: CPUID leaf 0x%x.%u has %s 0x%x, here 0x%x",
				entry->function, entry->index, names[i], was, *value);
			expect_other(f, wanted);
			*value = was;
		}
}

static void a_leaf_more_or_less_is_named(void **state)
{
	struct fixture *f = *state;

	f->here.cpuid.nent = LEAVES - 1;
	expect_other(f, "is of another processor or KVM: CPUID leaf 0x80000008.0 is not here");
	f->here.cpuid.nent = LEAVES + 1;
	f->here.cpuid.entries[LEAVES] = (struct kvm_cpuid_entry2){.function = 7, .index = 2};
	expect_other(f, "is of another processor or KVM: CPUID leaf 0x7.2 is only here");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(everything_comes_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_field_is_in_the_bytes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(bytes_cut_off_anywhere_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(counts_out_of_bounds_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_same_processor_is_accepted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_vendor_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_model_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_register_of_every_leaf_is_compared, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_leaf_more_or_less_is_named, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
