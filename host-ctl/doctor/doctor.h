/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `host-ctl doctor`: what this host lacks, one check after the other, each with its cause and its mend. The
 * checks stand in one table in doctor.c; those of KVM are in doctor_kvm.c.
 */
#ifndef HOST_CTL_DOCTOR_H
#define HOST_CTL_DOCTOR_H

#include "host-ctl/doctor/doctor_guest.h"
#include <stdbool.h>
#include <stddef.h>

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_WARN,	/* works, with less */
	DOCTOR_FAIL,	/* does not work */
	DOCTOR_SKIPPED, /* cannot be checked, because an earlier check failed */
};

enum { DOCTOR_TEXT_MAX = 256, DOCTOR_VERDICT_MAX = 1024, DOCTOR_PATH_MAX = 128 };

struct doctor_finding {
	enum doctor_state state;
	char text[DOCTOR_TEXT_MAX]; /* what was found */
	char mend[DOCTOR_TEXT_MAX]; /* what to do; empty when there is nothing to do */
};

/* What the checks share; each may use what those before it left. */
struct doctor {
	const char *kvm_path, *cgroup_path, *runtime_path; /* of the host; other ones in tests */
	int kvm;					   /* the device, or -1 */
	bool api_known;					   /* its API is ours */
	bool measured;					   /* figures are set */
	struct guest_figures figures;
};

/* Fills the finding's state, text and mend. */
void doctor_find(struct doctor_finding *finding, enum doctor_state state, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void doctor_mend(struct doctor_finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * One sentence on the KVM checks' findings: "KVM here is sound", or "KVM here can't run a Linux guest: " and
 * why, every failure named. True when sound. Pure.
 */
bool doctor_verdict(const struct doctor_finding *findings, size_t count, char verdict[DOCTOR_VERDICT_MAX]);

#endif
