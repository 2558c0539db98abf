/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest's CPUID says: what KVM supports here, but for
 *
 * - the topology: one package, in it as many cores as the VM has vCPUs, one thread each; vCPU N has APIC id
 * N; each core has its first and second level caches, all share the third. KVM passes on what the host CPU
 * says that the call happened to run on;
 * - the hypervisor bit, without which a guest looks for no kvm-clock;
 * - the deadline timer, which KVM emulates but never advertises (there is no PIT to calibrate another timer
 * by);
 * - the invariant TSC, hidden so that guests keep to kvm-clock, which survives a restore;
 * - virtualization (VMX, SVM): KVM refuses a guest's VMXON or EFER.SVME then, and with them its largest piece
 *   of emulation.
 */
#ifndef VMM_CPUID_X86_64_H
#define VMM_CPUID_X86_64_H

#include <linux/kvm.h>
#include <stdbool.h>

enum {
	CPUID_ENTRIES_MAX = 256, /* KVM knows fewer */
	CPUID_ADDED_MAX = 4,	 /* entries that cpuid_adapt may add */
};

/*
 * Adapts what KVM_GET_SUPPORTED_CPUID said to vCPU `id` of `cpus` (1..LAYOUT_CPUS_MAX). There is room for
 * CPUID_ADDED_MAX entries more. tsc_deadline: KVM emulates that timer.
 */
void cpuid_adapt(struct kvm_cpuid2 *cpuid, unsigned id, unsigned cpus, bool tsc_deadline);

#endif
