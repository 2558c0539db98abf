/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole VM with several vCPUs on a KVM of our own, which can do what a sound one does not: refuse a vCPU,
 * fail while the others run, return what nobody knows. Each ends the VM with its reason, said once.
 */
#include "tests/support/unit.h"

#include "common/io.h"
#include "vmm/vm.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	CPUS = 8,
	RUN_BYTES = 2 * 4096,
	API_VERSION = 12,
	TEXT_MAX = 2048,
	VCPU_FD_FIRST = 200, /* that of vCPU N is this + N */
	NEVER = CPUS,
	STRAY_PORT = 0x80,
	UNKNOWN_EXIT = 77,
	ENTRY_FAILURE = 0x21,
	LIMIT_S = 60,
};

/* What KVM_RUN of a vCPU does. */
enum way {
	WAY_WAIT, /* sleeps until it is kicked: halted, or not started yet */
	WAY_SPIN, /* runs until it is kicked */
	WAY_PORT, /* exits for a port, always */
	WAY_MMIO, /* and for a register */
	WAY_FAIL, /* what follows happens once all others have been entered */
	WAY_UNKNOWN,
	WAY_NO_ENTRY,
	WAY_SHUTDOWN,
};

static struct {
	enum way ways[CPUS];
	atomic_uint entered; /* a bit for each vCPU */
	unsigned cpus, cpus_max;
	unsigned refused, refused_errno; /* the vCPU that KVM_CREATE_VCPU refuses */
	unsigned threads, threads_max;	 /* pthread_create fails after that many */
} fake;

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __real_pthread_create(
	pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument);
int __wrap_pthread_create(
	pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument);

int __wrap_pthread_create(
	pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
	if (fake.threads++ >= fake.threads_max)
		return EAGAIN;
	return __real_pthread_create(thread, attributes, start, argument);
}

static int refuse(int error)
{
	errno = error;
	return -1;
}

static int create_vcpu(unsigned id)
{
	int memory;

	if (id == fake.refused)
		return refuse((int)fake.refused_errno);
	memory = memfd_create("vcpu", MFD_CLOEXEC);
	assert_true(memory >= 0);
	assert_int_equal(ftruncate(memory, RUN_BYTES), 0);
	assert_int_equal(dup3(memory, VCPU_FD_FIRST + (int)id, O_CLOEXEC), VCPU_FD_FIRST + (int)id);
	close(memory);
	return VCPU_FD_FIRST + (int)id;
}

static bool wants_exit(struct kvm_run *run)
{
	return __atomic_load_n(&run->immediate_exit, __ATOMIC_SEQ_CST) != 0;
}

/* As KVM does: a kick that came before is not lost. */
static int wait_for_kick(struct kvm_run *run)
{
	sigset_t kick, before;

	sigemptyset(&kick);
	sigaddset(&kick, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &kick, &before);
	if (!wants_exit(run))
		ppoll(NULL, 0, NULL, &before);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return refuse(EINTR);
}

static int exit_for_port(struct kvm_run *run)
{
	run->exit_reason = KVM_EXIT_IO;
	run->io.direction = KVM_EXIT_IO_IN;
	run->io.port = STRAY_PORT;
	run->io.size = 1;
	run->io.count = 1;
	run->io.data_offset = RUN_BYTES / 2;
	return 0;
}

static int exit_for_mmio(struct kvm_run *run)
{
	run->exit_reason = KVM_EXIT_MMIO;
	run->mmio.phys_addr = LAYOUT_VIRTIO(0);
	run->mmio.len = 4;
	run->mmio.is_write = 0;
	return 0;
}

/* What goes wrong does once the others are in the guest. */
static int go_wrong(unsigned id, struct kvm_run *run)
{
	while (atomic_load(&fake.entered) != (1u << fake.cpus) - 1 && !wants_exit(run))
		sched_yield();
	if (wants_exit(run))
		return refuse(EINTR);
	switch (fake.ways[id]) {
	case WAY_UNKNOWN:
		run->exit_reason = UNKNOWN_EXIT;
		return 0;
	case WAY_NO_ENTRY:
		run->exit_reason = KVM_EXIT_FAIL_ENTRY;
		run->fail_entry.hardware_entry_failure_reason = ENTRY_FAILURE;
		return 0;
	case WAY_SHUTDOWN:
		run->exit_reason = KVM_EXIT_SHUTDOWN;
		return 0;
	default:
		return refuse(EFAULT);
	}
}

static int enter(unsigned id, struct kvm_run *run)
{
	atomic_fetch_or(&fake.entered, 1u << id);
	if (wants_exit(run))
		return refuse(EINTR);
	switch (fake.ways[id]) {
	case WAY_WAIT:
		return wait_for_kick(run);
	case WAY_SPIN:
		while (!wants_exit(run))
			sched_yield();
		return refuse(EINTR);
	case WAY_PORT:
		return exit_for_port(run);
	case WAY_MMIO:
		return exit_for_mmio(run);
	default:
		return go_wrong(id, run);
	}
}

static int run_vcpu(int fd)
{
	struct kvm_run *run = mmap(NULL, RUN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int r, error;

	assert_true(run != MAP_FAILED);
	r = enter((unsigned)(fd - VCPU_FD_FIRST), run);
	error = errno;
	munmap(run, RUN_BYTES);
	errno = error;
	return r;
}

int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
	switch (request) {
	case KVM_GET_API_VERSION:
		return API_VERSION;
	case KVM_CHECK_EXTENSION:
		return (uintptr_t)argument == KVM_CAP_MAX_VCPUS ? (int)fake.cpus_max : 1;
	case KVM_GET_VCPU_MMAP_SIZE:
		return RUN_BYTES;
	case KVM_CREATE_VM:
		return eventfd(0, EFD_CLOEXEC);
	case KVM_CREATE_VCPU:
		return create_vcpu((unsigned)(uintptr_t)argument);
	case KVM_GET_SUPPORTED_CPUID:
		((struct kvm_cpuid2 *)argument)->nent = 0;
		return 0;
	case KVM_SET_MSRS:
		return (int)((struct kvm_msrs *)argument)->nmsrs;
	case KVM_GET_SREGS:
		memset(argument, 0, sizeof(struct kvm_sregs));
		return 0;
	case KVM_RUN:
		return run_vcpu(fd);
	case KVM_SET_USER_MEMORY_REGION:
	case KVM_SET_TSS_ADDR:
	case KVM_ENABLE_CAP:
	case KVM_SET_CPUID2:
	case KVM_SET_SREGS:
	case KVM_SET_REGS:
	case KVM_IOEVENTFD:
	case KVM_IRQFD:
	case KVM_SET_GSI_ROUTING:
		return 0;
	default:
		return __real_ioctl(fd, request, argument);
	}
}

/* --- a VM on it --- */

/* A kernel of one page at 1 MiB; the caller's to close. */
static int make_kernel(void)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr segment;
	} image = {
		.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				   EV_CURRENT},
			.e_type = ET_EXEC,
			.e_machine = EM_X86_64,
			.e_version = EV_CURRENT,
			.e_entry = 0x100000,
			.e_phoff = sizeof(Elf64_Ehdr),
			.e_ehsize = sizeof(Elf64_Ehdr),
			.e_phentsize = sizeof(Elf64_Phdr),
			.e_phnum = 1},
		.segment = {.p_type = PT_LOAD,
			.p_flags = PF_R | PF_X,
			.p_vaddr = 0x100000,
			.p_paddr = 0x100000,
			.p_filesz = sizeof(Elf64_Ehdr),
			.p_memsz = 4096},
	};
	int fd = memfd_create("kernel", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, &image, sizeof(image)), sizeof(image));
	return fd;
}

struct outcome {
	int created; /* of vm_create */
	enum vmm_end end;
	char said[TEXT_MAX]; /* on standard error */
};

static void create_and_run(const struct config *config, struct outcome *outcome)
{
	char error[FILES_ERROR_MAX];
	struct files files;
	struct vm *vm = NULL;

	assert_int_equal(files_open(config, &files, error), 0);
	outcome->created = vm_create(config, &files, NULL, &vm);
	if (outcome->created == 0)
		outcome->end = vm_run(vm);
	vm_destroy(vm);
	files_close(&files);
}

static void run_vm(unsigned cpus, struct outcome *outcome)
{
	char kernel[16], count[8], error[CONFIG_ERROR_MAX];
	char *argv[] = {"vmm", "--kernel", kernel, "--kvm", "/dev/null", "--mem", "16M", "--cpus", count};
	int fd = make_kernel(), standard_error = dup(STDERR_FILENO), text = memfd_create("said", MFD_CLOEXEC);
	struct config config;

	*outcome = (struct outcome){.created = -1};
	fake.cpus = cpus;
	atomic_store(&fake.entered, 0);
	fake.threads = 0;
	snprintf(kernel, sizeof(kernel), "fd:%d", fd);
	snprintf(count, sizeof(count), "%u", cpus);
	assert_int_equal(config_parse(sizeof(argv) / sizeof(argv[0]), argv, &config, error), 0);
	alarm(LIMIT_S);
	dup2(text, STDERR_FILENO);
	create_and_run(&config, outcome);
	dup2(standard_error, STDERR_FILENO);
	alarm(0);
	assert_true(pread(text, outcome->said, TEXT_MAX - 1, 0) >= 0);
	close(text);
	close(standard_error);
}

/* Others in every state, in turn. */
static void set_ways(unsigned wrong, enum way way)
{
	for (unsigned i = 0; i < CPUS; i++)
		fake.ways[i] = i == wrong ? way : (enum way)(i % (WAY_MMIO + 1));
}

static int set_up(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.cpus_max = 1024;
	fake.refused = NEVER;
	fake.threads_max = CPUS;
	return 0;
}

static void expect_end(unsigned cpus, enum vmm_end end, const char *line)
{
	struct outcome outcome;

	run_vm(cpus, &outcome);
	assert_int_equal(outcome.created, 0);
	assert_int_equal(outcome.end, end);
	assert_string_equal(outcome.said, line);
}

static void a_vcpu_that_fails_ends_the_vm(void **state)
{
	(void)state;
	for (unsigned i = 0; i < CPUS; i++) {
		char line[128];

		set_ways(i, WAY_FAIL);
		snprintf(line, sizeof(line),
			i > 0 ? "vmm: error: KVM_RUN: Bad address (CPU %u)\n"
			      : "vmm: error: KVM_RUN: Bad address\n",
			i);
		expect_end(CPUS, VMM_END_KVM, line);
	}
}

static void an_exit_that_nobody_knows_ends_the_vm(void **state)
{
	(void)state;
	set_ways(5, WAY_UNKNOWN);
	expect_end(CPUS, VMM_END_KVM, "vmm: error: KVM exit 77 is not known (CPU 5)\n");
	set_ways(2, WAY_NO_ENTRY);
	expect_end(3, VMM_END_KVM,
		"vmm: error: the processor refused to enter the guest (reason 0x21) (CPU 2)\n");
	set_ways(1, WAY_SHUTDOWN);
	expect_end(2, VMM_END_TRIPLE_FAULT, "vmm: error: triple fault (CPU 1)\n");
	set_ways(0, WAY_SHUTDOWN);
	expect_end(1, VMM_END_TRIPLE_FAULT, "vmm: error: triple fault\n");
}

/* One of them it is, said once. */
static void all_may_fail_at_once(void **state)
{
	static const enum way ways[] = {WAY_FAIL, WAY_UNKNOWN, WAY_NO_ENTRY, WAY_SHUTDOWN};

	(void)state;
	for (unsigned round = 0; round < 50; round++) {
		struct outcome outcome;

		for (unsigned i = 0; i < CPUS; i++)
			fake.ways[i] = ways[(i + round) % 4];
		run_vm(CPUS, &outcome);
		assert_true(outcome.end == VMM_END_KVM || outcome.end == VMM_END_TRIPLE_FAULT);
		assert_ptr_equal(strchr(outcome.said, '\n'), outcome.said + strlen(outcome.said) - 1);
	}
}

static void expect_refusal(unsigned cpus, int error, const char *line)
{
	struct outcome outcome;

	run_vm(cpus, &outcome);
	assert_int_equal(outcome.created, error);
	assert_string_equal(outcome.said, line);
}

static void more_than_kvm_has_are_refused(void **state)
{
	(void)state;
	fake.cpus_max = 4;
	expect_refusal(5, -EINVAL,
		"vmm: error: --cpus 5 is more than the 4 that KVM has on this host; give fewer\n");
	set_ways(3, WAY_SHUTDOWN);
	expect_end(4, VMM_END_TRIPLE_FAULT, "vmm: error: triple fault (CPU 3)\n");
}

static void a_vcpu_that_kvm_refuses_is_named(void **state)
{
	(void)state;
	for (unsigned i = 0; i < CPUS; i++) {
		char line[160];

		fake.refused = i;
		fake.refused_errno = ENOMEM;
		snprintf(line, sizeof(line),
			"vmm: error: --cpus 8: KVM refused CPU %u: Cannot allocate memory; give fewer, or "
			"free "
			"memory on the host\n",
			i);
		expect_refusal(CPUS, -ENOMEM, line);
	}
	fake.refused = 0;
	expect_refusal(1, -ENOMEM,
		"vmm: error: --cpus 1: KVM refused CPU 0: Cannot allocate memory; free memory on the host, "
		"or see "
		"`host-ctl doctor`\n");
}

static void a_thread_that_cannot_be_had_ends_the_vm(void **state)
{
	(void)state;
	for (fake.threads_max = 0; fake.threads_max < CPUS; fake.threads_max++) {
		char line[256];

		snprintf(line, sizeof(line),
			"vmm: error: cannot start the thread of CPU %u: Resource temporarily unavailable; "
			"raise "
			"the limit of threads (ulimit -u, pids.max), or give fewer --cpus\n",
			fake.threads_max);
		expect_end(CPUS, VMM_END_SETUP, line);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_vcpu_that_fails_ends_the_vm, set_up),
		cmocka_unit_test_setup(an_exit_that_nobody_knows_ends_the_vm, set_up),
		cmocka_unit_test_setup(all_may_fail_at_once, set_up),
		cmocka_unit_test_setup(more_than_kvm_has_are_refused, set_up),
		cmocka_unit_test_setup(a_vcpu_that_kvm_refuses_is_named, set_up),
		cmocka_unit_test_setup(a_thread_that_cannot_be_had_ends_the_vm, set_up),
	};

	log_init("vmm", LOG_LEVEL_INFO);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
