/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model-specific registers of a snapshot: those that KVM says are to be saved, and some that it leaves
 * out (memory types, machine check banks, debug control), the latter only where they are not as after a
 * reset. Left out: the TSC (vcpu_state sets it otherwise), Hyper-V's and Xen's, where kvm-clock wrote the
 * wall clock (to write that register makes KVM write to memory), and what cannot be read now.
 */
#ifndef VMM_MSRS_X86_64_H
#define VMM_MSRS_X86_64_H

#include "vmm/kvm.h"
#include <linux/kvm.h>

/*
 * Both: 0, or -errno with words in why (VCPU_STATE_WHY_MAX bytes). get: at most `room` of them, the TSC
 * deadline, when there is one, last; -E2BIG: there are more. set: -EINVAL names a register that this KVM does
 * not save or refuses to take; those before it are set by then.
 */
int msrs_get(const struct kvm *kvm, int vcpu, struct kvm_msr_entry *entries, uint32_t room, uint32_t *count,
	char *why);
int msrs_set(const struct kvm *kvm, int vcpu, const struct kvm_msr_entry *entries, uint32_t count, char *why);

#endif
