/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what the trace knows by number. */
#include "common/trace_marks.h"
#include "vmm/trace_parts.h"
#include <linux/kvm.h>

#define NAMED(request)                                                                                       \
	{                                                                                                    \
		request, #request, false                                                                     \
	}

static const struct {
	unsigned long request;
	const char *name;
	bool number; /* its argument is one */
} ioctls[] = {
	{KVM_CHECK_EXTENSION, "KVM_CHECK_EXTENSION", true},
	{KVM_CREATE_VCPU, "KVM_CREATE_VCPU", true},
	NAMED(KVM_CREATE_VM),
	NAMED(KVM_ENABLE_CAP),
	NAMED(KVM_GET_API_VERSION),
	NAMED(KVM_GET_CLOCK),
	NAMED(KVM_GET_DEBUGREGS),
	NAMED(KVM_GET_DEVICE_ATTR),
	NAMED(KVM_GET_LAPIC),
	NAMED(KVM_GET_MP_STATE),
	NAMED(KVM_GET_MSRS),
	NAMED(KVM_GET_MSR_INDEX_LIST),
	NAMED(KVM_GET_REGS),
	NAMED(KVM_GET_SREGS),
	NAMED(KVM_GET_STATS_FD),
	NAMED(KVM_GET_SUPPORTED_CPUID),
	NAMED(KVM_GET_TSC_KHZ),
	NAMED(KVM_GET_VCPU_EVENTS),
	NAMED(KVM_GET_VCPU_MMAP_SIZE),
	NAMED(KVM_GET_XCRS),
	NAMED(KVM_GET_XSAVE),
	NAMED(KVM_GET_XSAVE2),
	NAMED(KVM_IOEVENTFD),
	NAMED(KVM_IRQFD),
	NAMED(KVM_KVMCLOCK_CTRL),
	NAMED(KVM_SET_CLOCK),
	NAMED(KVM_SET_CPUID2),
	NAMED(KVM_SET_DEBUGREGS),
	NAMED(KVM_SET_DEVICE_ATTR),
	NAMED(KVM_SET_GSI_ROUTING),
	NAMED(KVM_SET_LAPIC),
	NAMED(KVM_SET_MP_STATE),
	NAMED(KVM_SET_MSRS),
	NAMED(KVM_SET_REGS),
	NAMED(KVM_SET_SREGS),
	NAMED(KVM_SET_TSS_ADDR),
	NAMED(KVM_SET_USER_MEMORY_REGION),
	NAMED(KVM_SET_VCPU_EVENTS),
	NAMED(KVM_SET_XCRS),
	NAMED(KVM_SET_XSAVE),
};

_Static_assert(sizeof(ioctls) / sizeof(ioctls[0]) <= TRACE_IOCTLS_MAX, "each has a row");

const char *trace_ioctl_name(unsigned long request, bool *number)
{
	for (size_t i = 0; i < sizeof(ioctls) / sizeof(ioctls[0]); i++) {
		if (ioctls[i].request != request)
			continue;
		*number = ioctls[i].number;
		return ioctls[i].name;
	}
	*number = false;
	return NULL;
}

const char *trace_mark_name(uint8_t value)
{
	static const char *const names[TRACE_MARK_COUNT] = {
		[TRACE_MARK_INIT] = "init",
		[TRACE_MARK_MOUNTED] = "init mounted",
		[TRACE_MARK_ROOT] = "init root",
		[TRACE_MARK_SYSTEM] = "init system",
		[TRACE_MARK_AGENT] = "init agent",
	};

	return value < TRACE_MARK_COUNT ? names[value] : NULL;
}
