/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out of KVM and back. Saving: whether it runs comes first, for asking that may change the rest; the timer's
 * deadline before the local APIC, so that a timer that fires in between is seen twice and not never; pending
 * events last. Restoring: CPUID first, for registers are checked by it; the local APIC before the deadline,
 * which it would ignore otherwise; the TSC before the deadline, which counts in it; events last, for what
 * comes before may clear them.
 */
#include "vmm/vcpu_state_x86_64.h"
#include "vmm/msrs_x86_64.h"
#include "vmm/reason.h"
#include "vmm/vcpu.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

uint64_t vcpu_state_now(void)
{
	return __rdtsc();
}

int vcpu_state_check_kvm(const struct kvm *kvm, char *why)
{
	static const struct {
		int number;
		const char *name;
	} needed[] = {
		{KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE"},
		{KVM_CAP_XSAVE, "KVM_CAP_XSAVE"},
		{KVM_CAP_XCRS, "KVM_CAP_XCRS"},
		{KVM_CAP_DEBUGREGS, "KVM_CAP_DEBUGREGS"},
		{KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS"},
		{KVM_CAP_GET_TSC_KHZ, "KVM_CAP_GET_TSC_KHZ"},
		{KVM_CAP_VCPU_ATTRIBUTES, "KVM_CAP_VCPU_ATTRIBUTES"},
		{KVM_CAP_ADJUST_CLOCK, "KVM_CAP_ADJUST_CLOCK"},
		{KVM_CAP_KVMCLOCK_CTRL, "KVM_CAP_KVMCLOCK_CTRL"},
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!kvm_has_capability(kvm, needed[i].number))
			return reason_set(why, VCPU_STATE_WHY_MAX, -EOPNOTSUPP,
				"this host's KVM lacks %s, which snapshots need; Linux 5.16 has it",
				needed[i].name);
	return 0;
}

/* --- registers that are one ioctl each way --- */

struct part {
	const char *name; /* of KVM_GET_ and KVM_SET_ */
	unsigned long get, set;
	size_t offset; /* in struct vcpu_state */
};
#define PART(what, field)                                                                                    \
	{                                                                                                    \
#what, KVM_GET_##what, KVM_SET_##what, offsetof(struct vcpu_state, field)                    \
	}

static const struct part run_part = PART(MP_STATE, mp_state);
static const struct part event_part = PART(VCPU_EVENTS, events);
static const struct part register_parts[] = {PART(REGS, regs), PART(SREGS, sregs)};
/* After XSAVE. */
static const struct part more_parts[] = {PART(XCRS, xcrs), PART(DEBUGREGS, debug), PART(LAPIC, lapic)};
enum { REGISTER_PARTS = sizeof(register_parts) / sizeof(register_parts[0]) };
enum { MORE_PARTS = sizeof(more_parts) / sizeof(more_parts[0]) };
_Static_assert(sizeof(struct kvm_mp_state) == sizeof(uint32_t), "mp_state stands for it");

static int get_part(int vcpu, const struct part *part, struct vcpu_state *state, char *why)
{
	int r = kvm_call(vcpu, part->get, (uint8_t *)state + part->offset);

	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM_GET_%s: %s", part->name, strerror(-r)) : 0;
}

static int set_part(int vcpu, const struct part *part, const struct vcpu_state *state, char *why)
{
	/* KVM only reads what it is to set. */
	int r = kvm_call(vcpu, part->set, (uint8_t *)(uintptr_t)state + part->offset);

	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM refuses KVM_SET_%s (%s)", part->name,
			       strerror(-r))
		     : 0;
}

static int get_parts(int vcpu, const struct part *parts, unsigned count, struct vcpu_state *state, char *why)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < count; i++)
		r = get_part(vcpu, &parts[i], state, why);
	return r;
}

static int set_parts(
	int vcpu, const struct part *parts, unsigned count, const struct vcpu_state *state, char *why)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < count; i++)
		r = set_part(vcpu, &parts[i], state, why);
	return r;
}

/* --- XSAVE --- */

/* Bytes of this host's; the old call is for those that fit its page. */
static uint32_t xsave_size(const struct kvm *kvm)
{
	int size = kvm_call_value(kvm->fd, KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2);

	return size > VCPU_STATE_XSAVE_MIN ? (uint32_t)size : VCPU_STATE_XSAVE_MIN;
}

static int get_xsave(const struct kvm *kvm, int vcpu, struct vcpu_state *state, char *why)
{
	int r;

	state->xsave_size = xsave_size(kvm);
	if (state->xsave_size > VCPU_STATE_XSAVE_MAX)
		return reason_set(why, VCPU_STATE_WHY_MAX, -EOPNOTSUPP,
			"this host's vector registers take %u bytes, more than the %d that are saved",
			state->xsave_size, VCPU_STATE_XSAVE_MAX);
	r = kvm_call(vcpu, state->xsave_size > VCPU_STATE_XSAVE_MIN ? KVM_GET_XSAVE2 : KVM_GET_XSAVE,
		state->xsave);
	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM_GET_XSAVE: %s", strerror(-r)) : 0;
}

static int set_xsave(const struct kvm *kvm, int vcpu, const struct vcpu_state *state, char *why)
{
	int r;

	if (state->xsave_size != xsave_size(kvm))
		return reason_set(why, VCPU_STATE_WHY_MAX, -EINVAL,
			"it has %u bytes of vector registers and this host %u", state->xsave_size,
			xsave_size(kvm));
	r = kvm_call(vcpu, KVM_SET_XSAVE, (void *)(uintptr_t)state->xsave);
	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM refuses KVM_SET_XSAVE (%s)", strerror(-r))
		     : 0;
}

/* --- TSC --- */

/* A write of the register would be taken for an attempt to synchronize when it is within a second. */
static int call_tsc_offset(int vcpu, unsigned long request, uint64_t *offset)
{
	struct kvm_device_attr attribute = {
		.group = KVM_VCPU_TSC_CTRL,
		.attr = KVM_VCPU_TSC_OFFSET,
		.addr = (uintptr_t)offset,
	};

	return kvm_call(vcpu, request, &attribute);
}

static int get_tsc(int vcpu, uint64_t now, struct vcpu_state *state, char *why)
{
	uint64_t offset = 0;
	int r = call_tsc_offset(vcpu, KVM_GET_DEVICE_ATTR, &offset);
	int khz = kvm_call_value(vcpu, KVM_GET_TSC_KHZ, 0);

	if (r < 0 || khz <= 0)
		return reason_set(why, VCPU_STATE_WHY_MAX, r < 0 ? r : -EIO,
			"KVM does not tell the TSC's offset or frequency");
	state->tsc_khz = (uint32_t)khz;
	state->tsc = now + offset;
	return 0;
}

static bool same_frequency(uint64_t a, uint64_t b)
{
	uint64_t difference = a > b ? a - b : b - a;

	return difference * 1000000 <= b * VCPU_STATE_TSC_PPM;
}

static int set_tsc(int vcpu, uint64_t now, const struct vcpu_state *state, char *why)
{
	uint64_t offset = state->tsc - now;
	int khz = kvm_call_value(vcpu, KVM_GET_TSC_KHZ, 0), r;

	if (khz <= 0 || !same_frequency(state->tsc_khz, (uint64_t)khz))
		return reason_set(why, VCPU_STATE_WHY_MAX, -EINVAL,
			"its TSC counts %u kHz and this host's %d kHz", state->tsc_khz, khz);
	r = call_tsc_offset(vcpu, KVM_SET_DEVICE_ATTR, &offset);
	return r < 0 ? reason_set(
			       why, VCPU_STATE_WHY_MAX, r, "KVM refuses the TSC's offset (%s)", strerror(-r))
		     : 0;
}

int vcpu_state_get_clock(int vm, uint64_t *clock, char *why)
{
	struct kvm_clock_data data = {0};
	int r = kvm_call(vm, KVM_GET_CLOCK, &data);

	*clock = data.clock;
	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM_GET_CLOCK: %s", strerror(-r)) : 0;
}

/* Without the flag that would add the time that has passed since. */
int vcpu_state_set_clock(int vm, uint64_t clock, char *why)
{
	struct kvm_clock_data data = {.clock = clock};
	int r = kvm_call(vm, KVM_SET_CLOCK, &data);

	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM_SET_CLOCK: %s", strerror(-r)) : 0;
}

/* --- CPUID --- */

static int set_cpuid(int vcpu, const struct vcpu_state *state, char *why)
{
	struct kvm_cpuid2 *cpuid = malloc(sizeof(*cpuid) + sizeof(state->cpuid));
	int r = -ENOMEM;

	if (cpuid) {
		*cpuid = (struct kvm_cpuid2){.nent = state->cpuid_count};
		memcpy(cpuid->entries, state->cpuid, state->cpuid_count * sizeof(state->cpuid[0]));
		r = kvm_call(vcpu, KVM_SET_CPUID2, cpuid);
		free(cpuid);
	}
	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM refuses KVM_SET_CPUID2 (%s)", strerror(-r))
		     : 0;
}

/* --- all of it --- */

int vcpu_state_save(
	const struct kvm *kvm, int vcpu, uint32_t id, uint64_t now, struct vcpu_state *state, char *why)
{
	int r;

	state->id = id;
	r = get_part(vcpu, &run_part, state, why);
	if (r == 0)
		r = get_parts(vcpu, register_parts, REGISTER_PARTS, state, why);
	if (r == 0)
		r = get_xsave(kvm, vcpu, state, why);
	if (r == 0)
		r = get_tsc(vcpu, now, state, why);
	if (r == 0)
		r = msrs_get(kvm, vcpu, state->msrs, VCPU_STATE_MSRS_MAX, &state->msr_count, why);
	if (r == 0)
		r = get_parts(vcpu, more_parts, MORE_PARTS, state, why);
	return r < 0 ? r : get_part(vcpu, &event_part, state, why);
}

int vcpu_state_restore(
	const struct kvm *kvm, int vcpu, uint64_t now, const struct vcpu_state *state, char *why)
{
	int r = set_cpuid(vcpu, state, why);

	if (r == 0)
		r = set_part(vcpu, &run_part, state, why);
	if (r == 0)
		r = set_parts(vcpu, register_parts, REGISTER_PARTS, state, why);
	if (r == 0)
		r = set_xsave(kvm, vcpu, state, why);
	if (r == 0)
		r = set_parts(vcpu, more_parts, MORE_PARTS, state, why);
	if (r == 0)
		r = set_tsc(vcpu, now, state, why);
	if (r == 0)
		r = msrs_set(kvm, vcpu, state->msrs, state->msr_count, why);
	return r < 0 ? r : set_part(vcpu, &event_part, state, why);
}

/* --- which processor --- */

enum { LEAF_VENDOR = 0, LEAF_MODEL = 1 };

static const struct kvm_cpuid_entry2 *find_leaf(
	const struct kvm_cpuid_entry2 *entries, unsigned count, uint32_t function, uint32_t index)
{
	for (unsigned i = 0; i < count; i++)
		if (entries[i].function == function && entries[i].index == index)
			return &entries[i];
	return NULL;
}

static int explain_leaf(const struct kvm_cpuid_entry2 *was, const struct kvm_cpuid_entry2 *is, char *why)
{
	static const char *const names[] = {"EAX", "EBX", "ECX", "EDX"};
	const uint32_t *before = &was->eax, *now = &is->eax;
	unsigned i = 0;

	if (was->function == LEAF_VENDOR &&
		(was->ebx != is->ebx || was->ecx != is->ecx || was->edx != is->edx))
		return reason_set(why, VCPU_STATE_WHY_MAX, -EXDEV,
			"is of another processor: %.4s%.4s%.4s, here %.4s%.4s%.4s", (const char *)&was->ebx,
			(const char *)&was->edx, (const char *)&was->ecx, (const char *)&is->ebx,
			(const char *)&is->edx, (const char *)&is->ecx);
	if (was->function == LEAF_MODEL && was->eax != is->eax)
		return reason_set(why, VCPU_STATE_WHY_MAX, -EXDEV,
			"is of another processor: family, model and stepping are 0x%x, here 0x%x", was->eax,
			is->eax);
	while (i < 3 && before[i] == now[i])
		i++;
	return reason_set(why, VCPU_STATE_WHY_MAX, -EXDEV,
		"is of another processor or KVM: CPUID leaf 0x%x.%u has %s 0x%x, here 0x%x", was->function,
		was->index, names[i], before[i], now[i]);
}

int vcpu_state_compare_cpuid(const struct vcpu_state *state, const struct kvm_cpuid2 *here, char *why)
{
	for (unsigned i = 0; i < state->cpuid_count; i++) {
		const struct kvm_cpuid_entry2 *was = &state->cpuid[i];
		const struct kvm_cpuid_entry2 *is =
			find_leaf(here->entries, here->nent, was->function, was->index);

		if (!is)
			return reason_set(why, VCPU_STATE_WHY_MAX, -EXDEV,
				"is of another processor or KVM: CPUID leaf 0x%x.%u is not here",
				was->function, was->index);
		if (was->flags != is->flags || memcmp(&was->eax, &is->eax, 4 * sizeof(was->eax)) != 0)
			return explain_leaf(was, is, why);
	}
	for (unsigned i = 0; i < here->nent; i++)
		if (!find_leaf(state->cpuid, state->cpuid_count, here->entries[i].function,
			    here->entries[i].index))
			return reason_set(why, VCPU_STATE_WHY_MAX, -EXDEV,
				"is of another processor or KVM: CPUID leaf 0x%x.%u is only here",
				here->entries[i].function, here->entries[i].index);
	return 0;
}

/* What this host gives the vCPU; the caller's. NULL: no memory, and why says so. */
static struct kvm_cpuid2 *cpuid_here(
	const struct vcpu_features *features, unsigned id, unsigned cpus, char *why)
{
	struct kvm_cpuid2 *cpuid = malloc(sizeof(*cpuid) + VCPU_STATE_CPUID_MAX * sizeof(cpuid->entries[0]));

	if (cpuid)
		vcpu_features_adapt(features, id, cpus, cpuid);
	else
		reason_set(why, VCPU_STATE_WHY_MAX, -ENOMEM, "%s", strerror(ENOMEM));
	return cpuid;
}

int vcpu_state_set_cpuid(
	struct vcpu_state *state, const struct vcpu_features *features, unsigned cpus, char *why)
{
	struct kvm_cpuid2 *cpuid = cpuid_here(features, state->id, cpus, why);

	if (!cpuid)
		return -ENOMEM;
	state->cpuid_count = cpuid->nent;
	memcpy(state->cpuid, cpuid->entries, cpuid->nent * sizeof(cpuid->entries[0]));
	free(cpuid);
	return 0;
}

int vcpu_state_compare_cpu(
	const struct vcpu_state *state, const struct vcpu_features *features, unsigned cpus, char *why)
{
	struct kvm_cpuid2 *cpuid = cpuid_here(features, state->id, cpus, why);
	int r = cpuid ? vcpu_state_compare_cpuid(state, cpuid, why) : -ENOMEM;

	free(cpuid);
	return r;
}

/* --- bytes --- */

/* KVM's own layouts, which are frozen; were they not, this would say so. */
_Static_assert(sizeof(struct kvm_regs) == 144, "layout of the format");
_Static_assert(sizeof(struct kvm_sregs) == 312, "layout of the format");
_Static_assert(sizeof(struct kvm_debugregs) == 128, "layout of the format");
_Static_assert(sizeof(struct kvm_xcrs) == 392, "layout of the format");
_Static_assert(sizeof(struct kvm_lapic_state) == 1024, "layout of the format");
_Static_assert(sizeof(struct kvm_vcpu_events) == 64, "layout of the format");

static void put_cpuid(struct state_writer *writer, const struct vcpu_state *state)
{
	state_put_u32(writer, state->cpuid_count);
	for (unsigned i = 0; i < state->cpuid_count; i++) {
		const struct kvm_cpuid_entry2 *entry = &state->cpuid[i];

		state_put_u32(writer, entry->function);
		state_put_u32(writer, entry->index);
		state_put_u32(writer, entry->flags);
		state_put_u32(writer, entry->eax);
		state_put_u32(writer, entry->ebx);
		state_put_u32(writer, entry->ecx);
		state_put_u32(writer, entry->edx);
	}
}

static void put_msrs(struct state_writer *writer, const struct vcpu_state *state)
{
	state_put_u32(writer, state->msr_count);
	for (unsigned i = 0; i < state->msr_count; i++) {
		state_put_u32(writer, state->msrs[i].index);
		state_put_u64(writer, state->msrs[i].data);
	}
}

void vcpu_state_put(struct state_writer *writer, const struct vcpu_state *state)
{
	state_put_u32(writer, state->id);
	state_put_u32(writer, state->tsc_khz);
	state_put_u64(writer, state->tsc);
	put_cpuid(writer, state);
	state_put_u32(writer, state->mp_state);
	state_put_bytes(writer, &state->regs, sizeof(state->regs));
	state_put_bytes(writer, &state->sregs, sizeof(state->sregs));
	state_put_u32(writer, state->xsave_size);
	state_put_bytes(writer, state->xsave, state->xsave_size);
	state_put_bytes(writer, &state->xcrs, sizeof(state->xcrs));
	state_put_bytes(writer, &state->debug, sizeof(state->debug));
	state_put_bytes(writer, &state->lapic, sizeof(state->lapic));
	put_msrs(writer, state);
	state_put_bytes(writer, &state->events, sizeof(state->events));
}

static void get_cpuid(struct state_reader *reader, struct vcpu_state *state)
{
	state->cpuid_count = state_get_count(reader, VCPU_STATE_CPUID_MAX);
	for (unsigned i = 0; i < state->cpuid_count; i++) {
		struct kvm_cpuid_entry2 *entry = &state->cpuid[i];

		*entry = (struct kvm_cpuid_entry2){.function = state_get_u32(reader)};
		entry->index = state_get_u32(reader);
		entry->flags = state_get_u32(reader);
		entry->eax = state_get_u32(reader);
		entry->ebx = state_get_u32(reader);
		entry->ecx = state_get_u32(reader);
		entry->edx = state_get_u32(reader);
	}
}

static void get_msrs(struct state_reader *reader, struct vcpu_state *state)
{
	state->msr_count = state_get_count(reader, VCPU_STATE_MSRS_MAX);
	for (unsigned i = 0; i < state->msr_count; i++) {
		state->msrs[i] = (struct kvm_msr_entry){.index = state_get_u32(reader)};
		state->msrs[i].data = state_get_u64(reader);
	}
}

static void get_xsave_bytes(struct state_reader *reader, struct vcpu_state *state)
{
	state->xsave_size = state_get_count(reader, VCPU_STATE_XSAVE_MAX);
	if (state->xsave_size < VCPU_STATE_XSAVE_MIN)
		state_refuse(reader);
	state_get_bytes(reader, state->xsave, state->xsave_size);
}

void vcpu_state_get(struct state_reader *reader, struct vcpu_state *state)
{
	state->id = state_get_u32(reader);
	state->tsc_khz = state_get_u32(reader);
	state->tsc = state_get_u64(reader);
	get_cpuid(reader, state);
	/* On x86 these are all: runnable, uninitialized, init received, halted, SIPI received. */
	state->mp_state = state_get_count(reader, KVM_MP_STATE_SIPI_RECEIVED);
	state_get_bytes(reader, &state->regs, sizeof(state->regs));
	state_get_bytes(reader, &state->sregs, sizeof(state->sregs));
	get_xsave_bytes(reader, state);
	state_get_bytes(reader, &state->xcrs, sizeof(state->xcrs));
	state_get_bytes(reader, &state->debug, sizeof(state->debug));
	state_get_bytes(reader, &state->lapic, sizeof(state->lapic));
	get_msrs(reader, state);
	state_get_bytes(reader, &state->events, sizeof(state->events));
}
