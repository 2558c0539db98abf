/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor makes of figures and of the host's answers. Needs no KVM. */
#include "tests/support/unit.h"

#include "host-ctl/doctor/doctor_host.h"
#include "host-ctl/doctor/doctor_kvm.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JUDGED = 4 };

/* A KVM that is asked what it can do, where `played` says so. */
static struct {
	bool played;
	int lacking[2]; /* capabilities; 0: none */
} fake;

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
	int asked = (int)(uintptr_t)argument;

	if (fake.played && request == KVM_CHECK_EXTENSION)
		return asked != fake.lacking[0] && asked != fake.lacking[1];
	return __real_ioctl(fd, request, argument);
}

static void judge_all(const struct guest_figures *figures, struct doctor_finding findings[JUDGED])
{
	memset(findings, 0, JUDGED * sizeof(findings[0]));
	doctor_judge_loop(figures, &findings[0]);
	doctor_judge_syscall(figures, &findings[1]);
	doctor_judge_int3(figures, &findings[2]);
	doctor_judge_xsave(figures, &findings[3]);
}

/* Shorthand for the cases below. */
#define DONE                                                                                                 \
	{                                                                                                    \
		.end = GUEST_FINISHED                                                                        \
	}
#define UNSOUND "KVM here can't run a Linux guest: "

static void figures_make_the_verdict(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		struct guest_figures figures;
		const char *verdict; /* NULL: sound */
	} cases[] = {
		{"hardware", {DONE, DONE, DONE, DONE, .loop_ps = 300, .restored = 1}, NULL},
		{"an emulated processor with SVM", {DONE, DONE, DONE, DONE, .loop_ps = 20000, .restored = 1},
			NULL},
		{"the slowest that passes",
			{DONE, DONE, DONE, DONE, .loop_ps = DOCTOR_LOOP_MAX_PS, .restored = 1}, NULL},
		{"one picosecond more",
			{DONE, DONE, DONE, DONE, .loop_ps = DOCTOR_LOOP_MAX_PS + 1, .restored = 1},
			UNSOUND "code at CPL 0 is emulated: 200 ns for a loop of two instructions, which a "
				"processor does in less than 200"},
		/* PVM: 1.2 to 1.9 us an instruction at CPL 0, int3 and xrstor unknown, syscall stays at
		   CPL 3. */
		{"PVM",
			{.loop = DONE,
				.syscall = {.end = GUEST_FAULTED},
				.int3 = {.end = GUEST_INTERNAL_ERROR, .detail = KVM_INTERNAL_ERROR_EMULATION},
				.xsave = {.end = GUEST_INTERNAL_ERROR,
					.detail = KVM_INTERNAL_ERROR_EMULATION},
				.loop_ps = 2400000,
				.cpl = 3},
			UNSOUND
			"code at CPL 0 is emulated: 2400 ns for a loop of two instructions, which a "
			"processor does in less than 200; `syscall` from CPL 3 does not lead to CPL 0; "
			"`int3` at CPL 0 is an internal error of KVM (suberror 1); `xrstor` at CPL 0 is an "
			"internal error of KVM (suberror 1)"},
		{"syscall shows CPL 0 and has no rights of it",
			{DONE, {.end = GUEST_FAULTED}, DONE, DONE, .loop_ps = 300, .restored = 1},
			UNSOUND "`syscall` from CPL 3 does not lead to CPL 0"},
		{"syscall shows CPL 3", {DONE, DONE, DONE, DONE, .loop_ps = 300, .cpl = 3, .restored = 1},
			UNSOUND "`syscall` from CPL 3 does not lead to CPL 0"},
		{"xrstor forgets", {DONE, DONE, DONE, DONE, .loop_ps = 300},
			UNSOUND "`xrstor` does not bring back what `xsave` saved"},
		{"the loop hangs",
			{{.end = GUEST_TIMED_OUT}, DONE, DONE, DONE, .loop_ps = UINT64_MAX, .restored = 1},
			UNSOUND "a loop at CPL 0 does not end within 1.5 s"},
		{"int3 is lost", {DONE, DONE, {.end = GUEST_FAULTED}, DONE, .loop_ps = 300, .restored = 1},
			UNSOUND "`int3` at CPL 0 raises an exception"},
		{"int3 ends the machine",
			{DONE, DONE, {.end = GUEST_SHUT_DOWN}, DONE, .loop_ps = 300, .restored = 1},
			UNSOUND "`int3` at CPL 0 ends in a triple fault"},
		{"a foreign exit",
			{DONE, {.end = GUEST_OTHER_EXIT, .detail = KVM_EXIT_HLT}, DONE, DONE, .loop_ps = 300,
				.restored = 1},
			UNSOUND "`syscall` from CPL 3 ends in an exit that it has no cause for (reason 5)"},
		{"no VM", {DONE, DONE, DONE, {.end = GUEST_KVM_REFUSED, .detail = ENOMEM}, .loop_ps = 300},
			UNSOUND "`xrstor` at CPL 0 cannot be tried: KVM says Cannot allocate memory"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doctor_finding findings[JUDGED];
		char verdict[DOCTOR_VERDICT_MAX];
		bool sound;

		judge_all(&cases[i].figures, findings);
		sound = doctor_verdict(findings, JUDGED, verdict);
		print_message("# %s\n", cases[i].what);
		assert_string_equal(verdict, cases[i].verdict ? cases[i].verdict : "KVM here is sound");
		assert_int_equal(sound, !cases[i].verdict);
		for (size_t j = 0; j < JUDGED; j++)
			assert_int_equal(findings[j].state == DOCTOR_FAIL, findings[j].mend[0] != '\0');
	}
}

static void a_warning_or_a_skipped_check_is_no_verdict(void **state)
{
	(void)state;
	struct doctor_finding findings[2] = {0};
	char verdict[DOCTOR_VERDICT_MAX];

	doctor_find(&findings[0], DOCTOR_WARN, "slow");
	doctor_find(&findings[1], DOCTOR_SKIPPED, "unknown");
	assert_true(doctor_verdict(findings, 2, verdict));
	doctor_find(&findings[1], DOCTOR_FAIL, "broken");
	assert_false(doctor_verdict(findings, 2, verdict));
	assert_string_equal(verdict, UNSOUND "broken");
}

static void a_verdict_keeps_to_its_bound(void **state)
{
	(void)state;
	enum { MANY = 12 };
	struct doctor_finding findings[MANY];
	char verdict[DOCTOR_VERDICT_MAX];

	for (size_t i = 0; i < MANY; i++)
		doctor_find(&findings[i], DOCTOR_FAIL, "%0*d", DOCTOR_TEXT_MAX - 1, 7);
	assert_false(doctor_verdict(findings, MANY, verdict));
	assert_int_equal(strlen(verdict), DOCTOR_VERDICT_MAX - 1);
}

/* ---- the device ---- */

static void a_missing_device_is_named_and_the_rest_skipped(void **state)
{
	(void)state;
	struct doctor doctor = {.kvm_path = "/nonexistent/kvm", .kvm = -1};
	struct doctor_finding finding = {0};

	doctor_check_device(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_FAIL);
	assert_string_equal(finding.text, "there is no /nonexistent/kvm");
	assert_true(finding.mend[0]);
	doctor_check_api(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_SKIPPED);
	doctor_check_capabilities(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_SKIPPED);
	doctor_check_loop(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_SKIPPED);
	doctor_check_xsave(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_SKIPPED);
}

static void a_device_without_permission_is_named(void **state)
{
	(void)state;
	char path[] = "/tmp/hostctl_doctor.XXXXXX";
	struct doctor doctor = {.kvm_path = path, .kvm = -1};
	struct doctor_finding finding = {0};
	char text[DOCTOR_TEXT_MAX];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(chmod(path, 0), 0);
	if (geteuid() == 0)
		assert_int_equal(seteuid(65534), 0);
	doctor_check_device(&doctor, &finding);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
	unlink(path);
	snprintf(text, sizeof(text), "no permission to open %s", path);
	assert_int_equal(finding.state, DOCTOR_FAIL);
	assert_string_equal(finding.text, text);
	assert_non_null(strstr(finding.mend, "be root"));
}

static void a_device_that_is_not_kvm_is_named(void **state)
{
	(void)state;
	struct doctor doctor = {.kvm_path = "/dev/null", .kvm = -1};
	struct doctor_finding finding = {0};

	doctor_check_device(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_OK);
	doctor_check_api(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_FAIL);
	assert_string_equal(finding.text, "/dev/null is not KVM: Inappropriate ioctl for device");
	doctor_check_loop(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_SKIPPED);
	close(doctor.kvm);
}

/* What a boot, a save and a restore ask for: found out here, and not by the first template. */
static void each_capability_is_missed_by_its_name(void **state)
{
	(void)state;
	static const struct {
		int number;
		const char *text;
	} cases[] = {
		{KVM_CAP_SPLIT_IRQCHIP, "KVM lacks SPLIT_IRQCHIP (interrupts without a legacy PIC)"},
		{KVM_CAP_MP_STATE, "KVM lacks MP_STATE (start and stop of vCPUs)"},
		{KVM_CAP_VCPU_EVENTS, "KVM lacks VCPU_EVENTS (saving a vCPU)"},
		{KVM_CAP_XSAVE, "KVM lacks XSAVE (saving a vCPU's FPU)"},
		{KVM_CAP_XCRS, "KVM lacks XCRS (saving a vCPU's FPU)"},
		{KVM_CAP_DEBUGREGS, "KVM lacks DEBUGREGS (saving a vCPU's debug registers)"},
		{KVM_CAP_VCPU_ATTRIBUTES, "KVM lacks VCPU_ATTRIBUTES (restoring the TSC by its offset)"},
		{KVM_CAP_GET_TSC_KHZ, "KVM lacks GET_TSC_KHZ (restoring at the same TSC frequency)"},
		{KVM_CAP_ADJUST_CLOCK, "KVM lacks ADJUST_CLOCK (the guest's clock)"},
		{KVM_CAP_KVMCLOCK_CTRL,
			"KVM lacks KVMCLOCK_CTRL (pauses without lockup warnings in the guest)"},
	};
	struct doctor doctor = {.kvm = -1, .api_known = true};

	fake.played = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doctor_finding finding = {0};

		fake.lacking[0] = cases[i].number;
		doctor_check_capabilities(&doctor, &finding);
		assert_int_equal(finding.state, DOCTOR_FAIL);
		assert_string_equal(finding.text, cases[i].text);
		assert_string_equal(
			finding.mend, "use a kernel 5.16 or later, built with KVM's usual options");
	}
	memset(&fake, 0, sizeof(fake));
}

static void a_kvm_with_all_passes_and_two_that_lack_are_both_named(void **state)
{
	(void)state;
	struct doctor doctor = {.kvm = -1, .api_known = true};
	struct doctor_finding finding = {0};

	fake.played = true;
	doctor_check_capabilities(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_OK);
	assert_string_equal(finding.text, "all 18 that are needed");
	fake.lacking[0] = KVM_CAP_XCRS;
	fake.lacking[1] = KVM_CAP_DEBUGREGS;
	doctor_check_capabilities(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_FAIL);
	assert_string_equal(finding.text,
		"KVM lacks XCRS (saving a vCPU's FPU), DEBUGREGS (saving a vCPU's debug registers)");
	memset(&fake, 0, sizeof(fake));
}

/* ---- the host ---- */

static void memory_is_weighed_against_the_pool(void **state)
{
	(void)state;
	static const struct {
		unsigned long mib;
		enum doctor_state state;
		const char *text;
	} cases[] = {
		{4096, DOCTOR_OK, "4096 MiB available"},
		{DOCTOR_POOL_VMS * DOCTOR_VM_MIB, DOCTOR_OK, "272 MiB available"},
		{DOCTOR_POOL_VMS * DOCTOR_VM_MIB - 1, DOCTOR_WARN,
			"271 MiB available; a pool of 2 needs 272"},
		{DOCTOR_VM_MIB - 1, DOCTOR_FAIL, "135 MiB available; a pool of 2 needs 272"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doctor_finding finding = {0};

		doctor_judge_memory(cases[i].mib * 1024, &finding);
		assert_int_equal(finding.state, cases[i].state);
		assert_string_equal(finding.text, cases[i].text);
	}
}

static void missing_controllers_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum doctor_state state;
		const char *found;
	} cases[] = {
		{"cpuset cpu io memory hugetlb pids rdma misc\n", DOCTOR_OK,
			"version 2 with cpu, memory and pids"},
		{"cpu memory pids", DOCTOR_OK, "version 2 with cpu, memory and pids"},
		/* cpuset is not cpu. */
		{"cpuset memory pids\n", DOCTOR_FAIL, "version 2 lacks the controllers cpu"},
		{"\n", DOCTOR_FAIL, "version 2 lacks the controllers cpu, memory, pids"},
		{"", DOCTOR_FAIL, "version 2 lacks the controllers cpu, memory, pids"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doctor_finding finding = {0};

		doctor_judge_controllers(cases[i].text, &finding);
		assert_int_equal(finding.state, cases[i].state);
		assert_string_equal(finding.text, cases[i].found);
	}
}

static void a_folder_that_is_no_cgroup_is_named(void **state)
{
	(void)state;
	struct doctor doctor = {.cgroup_path = "/tmp"};
	struct doctor_finding finding = {0};

	doctor_check_cgroup(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_FAIL);
	assert_true(finding.text[0] && finding.mend[0]);
}

#define V1(controller) "cgroup /sys/fs/cgroup/" controller " cgroup rw,relatime," controller " 0 0\n"
#define MEND_BOOT                                                                                            \
	"boot with `systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all` on the kernel's command line"

static void where_cgroups_are_is_named_and_mended(void **state)
{
	(void)state;
	static const struct {
		const char *mounts, *text, *mend;
	} cases[] = {
		{"proc /proc proc rw 0 0\n", "no cgroup version 2 at /sys/fs/cgroup",
			"`mount -t cgroup2 none /sys/fs/cgroup`, or " MEND_BOOT},
		{"", "no cgroup version 2 at /sys/fs/cgroup",
			"`mount -t cgroup2 none /sys/fs/cgroup`, or " MEND_BOOT},
		{"tmpfs /sys/fs/cgroup tmpfs rw 0 0\n" V1("cpu,cpuacct") V1("memory") V1("pids"),
			"version 1 alone, which has cpu, memory, pids", MEND_BOOT},
		{V1("cpuset") V1("pids") "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n",
			"version 1 has pids; version 2, at /sys/fs/cgroup/unified, is without them",
			MEND_BOOT "; or serve without limits, with `--cgroup-root "
				  "/sys/fs/cgroup/unified/tinderbox --limits available`"},
		/* systemd's own, of which no controller is. */
		{"cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\ncgroup2 /mnt/two cgroup2 rw 0 0",
			"version 2 is at /mnt/two, and not at /sys/fs/cgroup",
			"serve with `--cgroup-root /mnt/two/tinderbox`"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doctor_finding finding = {0};

		doctor_judge_cgroup_mounts(cases[i].mounts, "/sys/fs/cgroup", &finding);
		assert_int_equal(finding.state, DOCTOR_FAIL);
		assert_string_equal(finding.text, cases[i].text);
		assert_string_equal(finding.mend, cases[i].mend);
	}
}

static void old_kernels_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *release;
		enum doctor_state state;
	} cases[] = {
		{"6.1.0-57-amd64", DOCTOR_OK},
		{"5.16", DOCTOR_OK},
		{"5.15.0-139-generic", DOCTOR_FAIL},
		{"5.14.21", DOCTOR_FAIL},
		{"4.19.0", DOCTOR_FAIL},
		{"10.0", DOCTOR_OK},
		{"next", DOCTOR_FAIL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doctor_finding finding = {0};

		doctor_judge_kernel(cases[i].release, &finding);
		assert_int_equal(finding.state, cases[i].state);
		if (cases[i].state == DOCTOR_FAIL)
			assert_non_null(
				strstr(finding.text, "; 5.16 is the oldest that has all that is used"));
	}
}

static void space_is_asked_of_the_nearest_folder_there_is(void **state)
{
	(void)state;
	struct doctor doctor = {.runtime_path = "/tmp/nonexistent/deep/folder"};
	struct doctor_finding finding = {0};

	doctor_check_space(&doctor, &finding);
	assert_int_equal(finding.state, DOCTOR_OK);
	assert_non_null(strstr(finding.text, " MiB free in /tmp"));
	assert_null(strstr(finding.text, "/tmp/nonexistent"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_make_the_verdict),
		cmocka_unit_test(a_warning_or_a_skipped_check_is_no_verdict),
		cmocka_unit_test(a_verdict_keeps_to_its_bound),
		cmocka_unit_test(a_missing_device_is_named_and_the_rest_skipped),
		cmocka_unit_test(a_device_without_permission_is_named),
		cmocka_unit_test(a_device_that_is_not_kvm_is_named),
		cmocka_unit_test(each_capability_is_missed_by_its_name),
		cmocka_unit_test(a_kvm_with_all_passes_and_two_that_lack_are_both_named),
		cmocka_unit_test(memory_is_weighed_against_the_pool),
		cmocka_unit_test(missing_controllers_are_named),
		cmocka_unit_test(a_folder_that_is_no_cgroup_is_named),
		cmocka_unit_test(where_cgroups_are_is_named_and_mended),
		cmocka_unit_test(old_kernels_are_refused),
		cmocka_unit_test(space_is_asked_of_the_nearest_folder_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
