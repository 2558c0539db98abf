/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/doctor/doctor_kvm.h"
#include "host-ctl/doctor/doctor_host.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

/* What the vmm asks of KVM, and why it cannot do without: it boots VMs, and saves and restores them, as every
 * template and every clone of one needs (vmm/kvm.c, vmm/vcpu_state_x86_64.c). */
static const struct capability {
	int number;
	const char *name, *why;
} capabilities[] = {
	{KVM_CAP_USER_MEMORY, "USER_MEMORY", "guest memory"},
	{KVM_CAP_SET_TSS_ADDR, "SET_TSS_ADDR", "real mode on Intel"},
	{KVM_CAP_EXT_CPUID, "EXT_CPUID", "the guest's CPUID"},
	{KVM_CAP_MP_STATE, "MP_STATE", "start and stop of vCPUs"},
	{KVM_CAP_VCPU_EVENTS, "VCPU_EVENTS", "saving a vCPU"},
	{KVM_CAP_XSAVE, "XSAVE", "saving a vCPU's FPU"},
	{KVM_CAP_XCRS, "XCRS", "saving a vCPU's FPU"},
	{KVM_CAP_DEBUGREGS, "DEBUGREGS", "saving a vCPU's debug registers"},
	{KVM_CAP_VCPU_ATTRIBUTES, "VCPU_ATTRIBUTES", "restoring the TSC by its offset"},
	{KVM_CAP_GET_TSC_KHZ, "GET_TSC_KHZ", "restoring at the same TSC frequency"},
	{KVM_CAP_SPLIT_IRQCHIP, "SPLIT_IRQCHIP", "interrupts without a legacy PIC"},
	{KVM_CAP_IRQ_ROUTING, "IRQ_ROUTING", "routes of device interrupts"},
	{KVM_CAP_IRQFD, "IRQFD", "device interrupts"},
	{KVM_CAP_IOEVENTFD, "IOEVENTFD", "queue notifications"},
	{KVM_CAP_TSC_DEADLINE_TIMER, "TSC_DEADLINE_TIMER", "the guest's timer"},
	{KVM_CAP_ADJUST_CLOCK, "ADJUST_CLOCK", "the guest's clock"},
	{KVM_CAP_KVMCLOCK_CTRL, "KVMCLOCK_CTRL", "pauses without lockup warnings in the guest"},
	{KVM_CAP_IMMEDIATE_EXIT, "IMMEDIATE_EXIT", "stopping a vCPU"},
};
enum { CAPABILITIES = sizeof(capabilities) / sizeof(capabilities[0]) };

/* Does the processor say that it can virtualise? */
static bool processor_virtualises(void)
{
	char line[8192];
	bool found = false;
	FILE *file = fopen("/proc/cpuinfo", "re");

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file))
		found = strncmp(line, "flags", 5) == 0 && (strstr(line, " vmx") || strstr(line, " svm"));
	fclose(file);
	return found;
}

static void mend_missing(struct doctor_finding *finding)
{
	if (processor_virtualises())
		doctor_mend(finding, "load the module: `modprobe kvm_intel` or `modprobe kvm_amd`");
	else
		doctor_mend(finding,
			"this processor offers neither VMX nor SVM: turn virtualisation on in the "
			"firmware, or nested virtualisation for this VM on its host");
}

static void mend_denied(const struct doctor *doctor, struct doctor_finding *finding)
{
	const struct group *group = NULL;
	struct stat stat_buffer;

	if (stat(doctor->kvm_path, &stat_buffer) == 0 && stat_buffer.st_gid != 0)
		group = getgrgid(stat_buffer.st_gid);
	if (group)
		doctor_mend(finding, "be root or join the group %s: `usermod -aG %s USER`, then log in again",
			group->gr_name, group->gr_name);
	else
		doctor_mend(finding, "be root, or give the device to a group: `chgrp kvm %s; chmod 660 %s`",
			doctor->kvm_path, doctor->kvm_path);
}

void doctor_check_device(struct doctor *doctor, struct doctor_finding *finding)
{
	doctor->kvm = open(doctor->kvm_path, O_RDWR | O_CLOEXEC);
	if (doctor->kvm >= 0) {
		doctor_find(finding, DOCTOR_OK, "%s opens", doctor->kvm_path);
		return;
	}
	if (errno == ENOENT) {
		doctor_find(finding, DOCTOR_FAIL, "there is no %s", doctor->kvm_path);
		mend_missing(finding);
	} else if (errno == EACCES || errno == EPERM) {
		doctor_find(finding, DOCTOR_FAIL, "no permission to open %s", doctor->kvm_path);
		mend_denied(doctor, finding);
	} else {
		doctor_find(finding, DOCTOR_FAIL, "%s does not open: %s", doctor->kvm_path, strerror(errno));
		mend_missing(finding);
	}
}

void doctor_check_api(struct doctor *doctor, struct doctor_finding *finding)
{
	int version;

	if (doctor->kvm < 0) {
		doctor_find(finding, DOCTOR_SKIPPED, "needs the device");
		return;
	}
	version = ioctl(doctor->kvm, KVM_GET_API_VERSION, 0);
	doctor->api_known = version == KVM_API_VERSION;
	if (doctor->api_known) {
		doctor_find(finding, DOCTOR_OK, "version %d", version);
	} else if (version < 0) {
		doctor_find(finding, DOCTOR_FAIL, "%s is not KVM: %s", doctor->kvm_path, strerror(errno));
		doctor_mend(finding, "find out what took the place of the device");
	} else {
		doctor_find(finding, DOCTOR_FAIL, "API version %d instead of %d", version, KVM_API_VERSION);
		doctor_mend(finding, "use a newer kernel");
	}
}

void doctor_check_capabilities(struct doctor *doctor, struct doctor_finding *finding)
{
	char missing[DOCTOR_TEXT_MAX] = "";
	size_t length = 0;

	if (!doctor->api_known) {
		doctor_find(finding, DOCTOR_SKIPPED, "needs the API");
		return;
	}
	for (size_t i = 0; i < CAPABILITIES; i++) {
		if (ioctl(doctor->kvm, KVM_CHECK_EXTENSION, capabilities[i].number) > 0)
			continue;
		if (length < sizeof(missing))
			length += (size_t)snprintf(missing + length, sizeof(missing) - length, "%s%s (%s)",
				length ? ", " : "", capabilities[i].name, capabilities[i].why);
	}
	if (length == 0) {
		doctor_find(finding, DOCTOR_OK, "all %d that are needed", (int)CAPABILITIES);
		return;
	}
	doctor_find(finding, DOCTOR_FAIL, "KVM lacks %.*s", DOCTOR_TEXT_MAX - 16, missing);
	doctor_mend(finding, "use a kernel %d.%d or later, built with KVM's usual options",
		DOCTOR_KERNEL_MAJOR, DOCTOR_KERNEL_MINOR);
}

/* ---- what the guest showed ---- */

/* Runs the guest once for all its checks. False: there is nothing to judge, and the finding says why. */
static bool measure(struct doctor *doctor, struct doctor_finding *finding)
{
	int r;

	if (doctor->measured)
		return true;
	if (!doctor->api_known) {
		doctor_find(finding, DOCTOR_SKIPPED, "needs the API");
		return false;
	}
	r = guest_measure(doctor->kvm, &doctor->figures);
	if (r < 0) {
		doctor_find(finding, DOCTOR_FAIL, "cannot prepare the test guest: %s", strerror(-r));
		return false;
	}
	doctor->measured = true;
	return true;
}

static void mend_unsound(struct doctor_finding *finding)
{
	doctor_mend(finding, "use a host with VMX or SVM; tests run in the lab meanwhile: `make lab`");
}

/* A test that did not reach its end. `what` is what it tried, as the start of a sentence. */
static void judge_failure(
	const struct guest_outcome *outcome, const char *what, struct doctor_finding *finding)
{
	switch (outcome->end) {
	case GUEST_FAULTED:
		doctor_find(finding, DOCTOR_FAIL, "%s raises an exception", what);
		break;
	case GUEST_INTERNAL_ERROR:
		doctor_find(finding, DOCTOR_FAIL, "%s is an internal error of KVM (suberror %u)", what,
			outcome->detail);
		break;
	case GUEST_SHUT_DOWN:
		doctor_find(finding, DOCTOR_FAIL, "%s ends in a triple fault", what);
		break;
	case GUEST_TIMED_OUT:
		doctor_find(
			finding, DOCTOR_FAIL, "%s does not end within %g s", what, GUEST_TIME_MS / 1000.0);
		break;
	case GUEST_KVM_REFUSED:
		doctor_find(finding, DOCTOR_FAIL, "%s cannot be tried: KVM says %s", what,
			strerror((int)outcome->detail));
		break;
	case GUEST_OTHER_EXIT:
	case GUEST_NOT_RUN:
	case GUEST_FINISHED:
		doctor_find(finding, DOCTOR_FAIL, "%s ends in an exit that it has no cause for (reason %u)",
			what, outcome->detail);
		break;
	}
	mend_unsound(finding);
}

void doctor_judge_loop(const struct guest_figures *figures, struct doctor_finding *finding)
{
	if (figures->loop.end != GUEST_FINISHED) {
		judge_failure(&figures->loop, "a loop at CPL 0", finding);
	} else if (figures->loop_ps > DOCTOR_LOOP_MAX_PS) {
		doctor_find(finding, DOCTOR_FAIL,
			"code at CPL 0 is emulated: %.0f ns for a loop of two instructions, which a "
			"processor does in "
			"less than %d",
			(double)figures->loop_ps / 1000, DOCTOR_LOOP_MAX_PS / 1000);
		mend_unsound(finding);
	} else {
		doctor_find(finding, DOCTOR_OK, "CPL 0 is fast: %.1f ns for a loop of two instructions",
			(double)figures->loop_ps / 1000);
	}
}

void doctor_judge_syscall(const struct guest_figures *figures, struct doctor_finding *finding)
{
	bool stayed = figures->cpl != 0 || figures->syscall.end == GUEST_FAULTED;

	if (figures->syscall.end != GUEST_FINISHED && figures->syscall.end != GUEST_FAULTED) {
		judge_failure(&figures->syscall, "`syscall` from CPL 3", finding);
	} else if (stayed) {
		doctor_find(finding, DOCTOR_FAIL, "`syscall` from CPL 3 does not lead to CPL 0");
		mend_unsound(finding);
	} else {
		doctor_find(finding, DOCTOR_OK, "`syscall` leads from CPL 3 to CPL 0");
	}
}

void doctor_judge_int3(const struct guest_figures *figures, struct doctor_finding *finding)
{
	if (figures->int3.end != GUEST_FINISHED)
		judge_failure(&figures->int3, "`int3` at CPL 0", finding);
	else
		doctor_find(finding, DOCTOR_OK, "`int3` at CPL 0 is delivered");
}

void doctor_judge_xsave(const struct guest_figures *figures, struct doctor_finding *finding)
{
	if (figures->xsave.end != GUEST_FINISHED) {
		judge_failure(&figures->xsave, "`xrstor` at CPL 0", finding);
	} else if (figures->restored != 1) {
		doctor_find(finding, DOCTOR_FAIL, "`xrstor` does not bring back what `xsave` saved");
		mend_unsound(finding);
	} else {
		doctor_find(finding, DOCTOR_OK, "`xsave` and `xrstor` work");
	}
}

void doctor_check_loop(struct doctor *doctor, struct doctor_finding *finding)
{
	if (measure(doctor, finding))
		doctor_judge_loop(&doctor->figures, finding);
}

void doctor_check_syscall(struct doctor *doctor, struct doctor_finding *finding)
{
	if (measure(doctor, finding))
		doctor_judge_syscall(&doctor->figures, finding);
}

void doctor_check_int3(struct doctor *doctor, struct doctor_finding *finding)
{
	if (measure(doctor, finding))
		doctor_judge_int3(&doctor->figures, finding);
}

void doctor_check_xsave(struct doctor *doctor, struct doctor_finding *finding)
{
	if (measure(doctor, finding))
		doctor_judge_xsave(&doctor->figures, finding);
}
