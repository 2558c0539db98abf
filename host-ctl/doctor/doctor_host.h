/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's checks of the host apart from KVM. Each fills the finding. */
#ifndef HOST_CTL_DOCTOR_HOST_H
#define HOST_CTL_DOCTOR_HOST_H

#include "host-ctl/doctor/doctor.h"

enum {
	DOCTOR_POOL_VMS = 2,	       /* the pool that `serve` keeps unless told otherwise */
	DOCTOR_VM_MIB = 128 + 8,       /* a VM of it: guest memory and what the vmm needs */
	DOCTOR_MOUNTS_MAX = 32 * 1024, /* bytes of the list of mounts that are looked at */
	DOCTOR_SPACE_MIB = 16,	       /* sockets, logs and locks */
	DOCTOR_FILES = 1024,	       /* open files of the daemon: some tens a VM, one a client */
	DOCTOR_KERNEL_MAJOR = 5,       /* the TSC's offset (KVM_CAP_VCPU_ATTRIBUTES) is of 5.16, */
	DOCTOR_KERNEL_MINOR = 16,      /* cgroup.kill of 5.14 */
};

void doctor_check_memory(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_cgroup(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_space(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_kernel(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_files(struct doctor *doctor, struct doctor_finding *finding);

/* What MemAvailable (in KiB) and a kernel's release mean. Pure. */
void doctor_judge_memory(unsigned long available_kib, struct doctor_finding *finding);
void doctor_judge_kernel(const char *release, struct doctor_finding *finding);
/* What /proc/mounts says of a host that has no cgroup version 2 at the path: where else there is one, and
 * what version 1 keeps from it. Pure. */
void doctor_judge_cgroup_mounts(const char *mounts, const char *path, struct doctor_finding *finding);
/* What the text of cgroup.controllers means: which of cpu, memory and pids it lacks. Pure. */
void doctor_judge_controllers(const char *controllers, struct doctor_finding *finding);

#endif
