/* SPDX-License-Identifier: Apache-2.0 */
/* /dev/kvm: what it must be, and what is said of one that lacks something. KVM is played. */
#include "tests/support/unit.h"

#include "vmm/kvm.h"
#include <errno.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 12, RUN_BYTES = 12288 };

static struct {
	int version; /* -errno: it is no KVM */
	int lacking; /* a capability; 0: none */
	unsigned asked;
} fake;

int __wrap_ioctl(int fd, unsigned long request, unsigned long argument);
int __wrap_ioctl(int fd, unsigned long request, unsigned long argument)
{
	assert_true(fd >= 0);
	switch (request) {
	case KVM_GET_API_VERSION:
		errno = fake.version < 0 ? -fake.version : 0;
		return fake.version < 0 ? -1 : fake.version;
	case KVM_CHECK_EXTENSION:
		fake.asked++;
		return argument != (unsigned long)fake.lacking;
	case KVM_GET_VCPU_MMAP_SIZE:
		return RUN_BYTES;
	default:
		errno = EINVAL;
		return -1;
	}
}

static int set_up(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.version = VERSION;
	return 0;
}

static void a_sound_one_is_opened_and_has_all(void **state)
{
	char error[KVM_ERROR_MAX] = "";
	struct kvm kvm;

	(void)state;
	assert_int_equal(kvm_open("/dev/null", &kvm, error), 0);
	assert_int_equal(kvm.run_size, RUN_BYTES);
	/* What the set-up would find out by itself is not asked for. */
	assert_int_equal(fake.asked, 2);
	assert_int_equal(kvm_explain(&kvm, "/dev/null", error), 0);
	assert_string_equal(error, "");
	kvm_close(&kvm);
	assert_int_equal(kvm.fd, -1);
}

static const struct {
	int number;
	const char *name; /* with what it is for */
	bool at_once;	  /* by kvm_open; else by kvm_explain */
} capabilities[] = {
	{KVM_CAP_IRQ_ROUTING, "KVM_CAP_IRQ_ROUTING (interrupt routes)", true},
	{KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT (vCPUs that can be stopped)", true},
	{KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY (guest memory from user space)", false},
	{KVM_CAP_SPLIT_IRQCHIP, "KVM_CAP_SPLIT_IRQCHIP (local APICs without an i8259)", false},
	{KVM_CAP_IRQFD, "KVM_CAP_IRQFD (interrupts by eventfd)", false},
	{KVM_CAP_IOEVENTFD, "KVM_CAP_IOEVENTFD (notifications by eventfd)", false},
	{KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID (the guest's CPUID)", false},
};

static void each_capability_is_missed_by_its_name(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++) {
		char error[KVM_ERROR_MAX] = "", wanted[KVM_ERROR_MAX];
		struct kvm kvm;

		fake.lacking = capabilities[i].number;
		snprintf(wanted, sizeof(wanted),
			"--kvm: /dev/null lacks %s: a host kernel of 4.11 or newer with hardware "
			"virtualization is needed; `host-ctl doctor` explains",
			capabilities[i].name);
		if (capabilities[i].at_once) {
			assert_int_equal(kvm_open("/dev/null", &kvm, error), -EOPNOTSUPP);
			assert_int_equal(kvm.fd, -1);
		} else {
			assert_int_equal(kvm_open("/dev/null", &kvm, error), 0);
			assert_int_equal(kvm_explain(&kvm, "/dev/null", error), -EOPNOTSUPP);
		}
		assert_string_equal(error, wanted);
		kvm_close(&kvm);
	}
}

static void what_is_not_kvm_or_another_is_refused(void **state)
{
	char error[KVM_ERROR_MAX];
	struct kvm kvm;

	(void)state;
	fake.version = -ENOTTY;
	assert_int_equal(kvm_open("/dev/null", &kvm, error), -ENOTTY);
	assert_string_equal(error, "--kvm: /dev/null is not KVM: give /dev/kvm");
	fake.version = VERSION + 1;
	assert_int_equal(kvm_open("/dev/null", &kvm, error), -EPROTO);
	assert_string_equal(
		error, "--kvm: /dev/null speaks version 13 of the KVM API, not 12: use another host kernel");
	assert_int_equal(kvm.fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_sound_one_is_opened_and_has_all, set_up),
		cmocka_unit_test_setup(each_capability_is_missed_by_its_name, set_up),
		cmocka_unit_test_setup(what_is_not_kvm_or_another_is_refused, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
