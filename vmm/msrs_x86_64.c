/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/msrs_x86_64.h"
#include "vmm/reason.h"
#include "vmm/vcpu_state_x86_64.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	MSR_TSC = 0x10,
	MSR_KVM_WALL_CLOCK = 0x11,
	MSR_TSC_DEADLINE = 0x6e0,
	MSR_MTRR_DEFAULT_TYPE = 0x2ff,
};
#define MSR_KVM_WALL_CLOCK_NEW 0x4b564d00u
/* Hypervisors' own registers lie here; KVM's newer ones do not. */
#define MSR_FOREIGN_FIRST 0x40000000u
#define MSR_FOREIGN_LAST 0x4000ffffu

/* Registers that KVM's list lacks; after a reset they are zero. */
static const struct range {
	uint32_t first, count;
} more_ranges[] = {
	{0x200, 16},			    /* memory types: variable ranges */
	{0x250, 1},			    /* fixed ranges */
	{0x258, 2}, {0x268, 8}, {0x1d9, 1}, /* debug control */
	{0x400, 128},			    /* machine check banks */
};
enum { MORE_RANGES = sizeof(more_ranges) / sizeof(more_ranges[0]), RANGE_MAX = 128 };

union msr_list {
	struct kvm_msr_list list;
	char room[sizeof(struct kvm_msr_list) + VCPU_STATE_MSRS_MAX * sizeof(uint32_t)];
};

static bool is_left_out(uint32_t index)
{
	return index == MSR_TSC || index == MSR_TSC_DEADLINE || index == MSR_KVM_WALL_CLOCK ||
	       index == MSR_KVM_WALL_CLOCK_NEW || (index >= MSR_FOREIGN_FIRST && index <= MSR_FOREIGN_LAST);
}

static int ask_list(const struct kvm *kvm, union msr_list *list, char *why)
{
	int r;

	list->list.nmsrs = VCPU_STATE_MSRS_MAX;
	r = kvm_call(kvm->fd, KVM_GET_MSR_INDEX_LIST, &list->list);
	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM_GET_MSR_INDEX_LIST: %s", strerror(-r)) : 0;
}

/* Gets or sets: how many KVM did before one that it refused, or -errno. */
static int call_msrs(int vcpu, unsigned long request, struct kvm_msr_entry *entries, uint32_t count)
{
	size_t bytes = count * sizeof(*entries);
	struct kvm_msrs *msrs = calloc(1, sizeof(*msrs) + bytes);
	int r;

	if (!msrs)
		return -ENOMEM;
	msrs->nmsrs = count;
	memcpy(msrs->entries, entries, bytes);
	r = kvm_call(vcpu, request, msrs);
	memcpy(entries, msrs->entries, bytes);
	free(msrs);
	return r;
}

/* Reads them, and drops those that cannot be read. The number left, or -errno. */
static int read_readable(int vcpu, struct kvm_msr_entry *entries, uint32_t count)
{
	uint32_t done = 0;

	while (done < count) {
		int r = call_msrs(vcpu, KVM_GET_MSRS, entries + done, count - done);

		if (r < 0)
			return r;
		done += (uint32_t)r;
		if (done == count)
			break;
		count--;
		memmove(entries + done, entries + done + 1, (count - done) * sizeof(*entries));
	}
	return (int)count;
}

struct collection {
	int vcpu;
	struct kvm_msr_entry *entries;
	uint32_t room, count;
};

/* -E2BIG: there is no room. */
static int add_all(struct collection *all, const struct kvm_msr_entry *entries, uint32_t count)
{
	if (count > all->room - all->count)
		return -E2BIG;
	memcpy(all->entries + all->count, entries, count * sizeof(*entries));
	all->count += count;
	return 0;
}

static int add_listed(struct collection *all, const struct kvm_msr_list *list)
{
	struct kvm_msr_entry entries[VCPU_STATE_MSRS_MAX] = {{.index = MSR_MTRR_DEFAULT_TYPE}};
	uint32_t count = 1;
	int r;

	for (uint32_t i = 0; i < list->nmsrs && count < VCPU_STATE_MSRS_MAX; i++)
		if (!is_left_out(list->indices[i]))
			entries[count++] = (struct kvm_msr_entry){.index = list->indices[i]};
	r = read_readable(all->vcpu, entries, count);
	return r < 0 ? r : add_all(all, entries, (uint32_t)r);
}

static int add_range(struct collection *all, const struct range *range)
{
	struct kvm_msr_entry entries[RANGE_MAX] = {{.index = 0}};
	int r, kept = 0;

	for (uint32_t i = 0; i < range->count; i++)
		entries[i].index = range->first + i;
	r = read_readable(all->vcpu, entries, range->count);
	for (int i = 0; i < r; i++)
		if (entries[i].data != 0)
			entries[kept++] = entries[i];
	return r < 0 ? r : add_all(all, entries, (uint32_t)kept);
}

static int add_deadline(struct collection *all)
{
	struct kvm_msr_entry entry = {.index = MSR_TSC_DEADLINE};
	int r = read_readable(all->vcpu, &entry, 1);

	return r < 0 ? r : add_all(all, &entry, (uint32_t)r);
}

int msrs_get(const struct kvm *kvm, int vcpu, struct kvm_msr_entry *entries, uint32_t room, uint32_t *count,
	char *why)
{
	struct collection all = {.vcpu = vcpu, .entries = entries, .room = room};
	union msr_list list;
	int r = ask_list(kvm, &list, why);

	if (r < 0)
		return r;
	r = add_listed(&all, &list.list);
	for (unsigned i = 0; r == 0 && i < MORE_RANGES; i++)
		r = add_range(&all, &more_ranges[i]);
	if (r == 0)
		r = add_deadline(&all);
	*count = all.count;
	return r < 0 ? reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM_GET_MSRS: %s", strerror(-r)) : 0;
}

static bool is_in_range(const struct range *range, uint32_t index)
{
	return index >= range->first && index - range->first < range->count;
}

/* What msrs_get of this host could have got. */
static bool is_known(const struct kvm_msr_list *list, uint32_t index)
{
	if (index == MSR_TSC_DEADLINE || index == MSR_MTRR_DEFAULT_TYPE)
		return true;
	for (unsigned i = 0; i < MORE_RANGES; i++)
		if (is_in_range(&more_ranges[i], index))
			return true;
	for (uint32_t i = 0; i < list->nmsrs; i++)
		if (list->indices[i] == index)
			return !is_left_out(index);
	return false;
}

int msrs_set(const struct kvm *kvm, int vcpu, const struct kvm_msr_entry *entries, uint32_t count, char *why)
{
	struct kvm_msr_entry copy[VCPU_STATE_MSRS_MAX];
	union msr_list list;
	int r = ask_list(kvm, &list, why);

	for (uint32_t i = 0; r == 0 && i < count; i++)
		if (!is_known(&list.list, entries[i].index))
			r = reason_set(why, VCPU_STATE_WHY_MAX, -EINVAL,
				"this host's KVM has no register 0x%x to restore", entries[i].index);
	if (r < 0)
		return r;
	memcpy(copy, entries, count * sizeof(*entries));
	r = call_msrs(vcpu, KVM_SET_MSRS, copy, count);
	if (r < 0)
		return reason_set(why, VCPU_STATE_WHY_MAX, r, "KVM_SET_MSRS: %s", strerror(-r));
	/* KVM stops at the first that it refuses. */
	if ((uint32_t)r < count)
		return reason_set(why, VCPU_STATE_WHY_MAX, -EINVAL, "KVM refuses 0x%llx for register 0x%x",
			(unsigned long long)entries[r].data, entries[r].index);
	return 0;
}
