/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is the KVM of this host one that can run a Linux guest? Some that call themselves KVM cannot: without VMX
 * or SVM underneath, code of CPL 0 is emulated an instruction at a time, `syscall` does not change the
 * privilege level, and not every instruction is known. Only trying tells.
 */
#ifndef HOST_CTL_DOCTOR_KVM_H
#define HOST_CTL_DOCTOR_KVM_H

#include "host-ctl/doctor/doctor.h"

/*
 * The slowest iteration of a loop of two instructions at CPL 0 that still counts as run by a processor, in
 * picoseconds. Hardware takes some hundred, an emulated processor with SVM about 20 000, a KVM that
 * emulates CPL 0 itself 2 400 000 and more.
 */
enum { DOCTOR_LOOP_MAX_PS = 200 * 1000 };

/* The checks, in their order: each fills the finding. */
void doctor_check_device(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_api(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_capabilities(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_loop(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_syscall(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_int3(struct doctor *doctor, struct doctor_finding *finding);
void doctor_check_xsave(struct doctor *doctor, struct doctor_finding *finding);

/* What figures mean. Pure. */
void doctor_judge_loop(const struct guest_figures *figures, struct doctor_finding *finding);
void doctor_judge_syscall(const struct guest_figures *figures, struct doctor_finding *finding);
void doctor_judge_int3(const struct guest_figures *figures, struct doctor_finding *finding);
void doctor_judge_xsave(const struct guest_figures *figures, struct doctor_finding *finding);

#endif
