/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine of the doctor's guest: 64 KiB of memory, one vCPU that starts in long mode, no devices. Each
 * test has one of its own, because some broken KVMs leave a VM unusable.
 */
#include "common/io.h"
#include "host-ctl/doctor/doctor_guest.h"
#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

enum { CPUID_MAX = 256, LOOP_RUNS = 3, KERNEL_SIGSET = 8 };

/* Intel SDM volume 3, sections 2.5 (control registers), 2.2.1 (EFER), 3.4.5 (descriptors), 4.5 (paging). */
#define CR0_LONG_MODE 0x80050033ULL /* PG, AM, WP, NE, ET, MP, PE */
#define CR4_PAE (1ULL << 5)
#define CR4_SSE (3ULL << 9) /* OSFXSR, OSXMMEXCPT */
#define CR4_OSXSAVE (1ULL << 18)
#define EFER_LONG_MODE 0xd01ULL /* SCE, LME, LMA, NXE */
#define XCR0_X87_SSE 3ULL
#define RFLAGS_FIXED 2ULL
#define RFLAGS_IOPL3 (3ULL << 12)
#define PAGE_TABLE 7ULL /* present, writable, user */
#define PAGE_2M (PAGE_TABLE | 1ULL << 7)
#define DESCRIPTOR_CODE64(dpl) (0x00209b0000000000ULL | (uint64_t)(dpl) << 45)
#define DESCRIPTOR_DATA(dpl) (0x00cf93000000ffffULL | (uint64_t)(dpl) << 45)
#define MSR_STAR 0xc0000081
#define MSR_LSTAR 0xc0000082
#define MSR_FMASK 0xc0000084
#define TSS_RSP0 4 /* offset in the 64-bit TSS */
#define TSS_LIMIT 0x67
#define VECTORS 32
#define VECTOR_BREAKPOINT 3
#define KVM_TSS_ADDRESS 0xfffbd000ULL /* three pages that Intel's VMX wants for itself */

struct machine {
	int vm, vcpu;
	uint8_t *memory;
	struct kvm_run *run;
	size_t run_size;
};

struct test {
	const uint8_t *entry;
	unsigned int cpl;
	bool xsave;
};

/* The reports of one run that carry a figure. */
struct reports {
	uint64_t mark_ns[GUEST_MARKS];
	size_t marks;
	uint32_t cpl, xsave;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* How far a place of the code is from its start. */
static size_t code_offset(const uint8_t *place)
{
	return (uintptr_t)place - (uintptr_t)guest_code_start;
}

/* Where it is for the guest. */
static uint64_t guest_address(const uint8_t *place)
{
	return GUEST_CODE + code_offset(place);
}

/* ---- memory ---- */

static void write_u64(struct machine *machine, size_t address, uint64_t value)
{
	memcpy(machine->memory + address, &value, sizeof(value));
}

/* A 64-bit interrupt gate of DPL 0. */
static void write_gate(struct machine *machine, unsigned int vector, const uint8_t *handler)
{
	uint64_t address = guest_address(handler);
	uint64_t low = (address & 0xffff) | (uint64_t)GUEST_KERNEL_CODE << 16 | 0x8eULL << 40 |
		       (address >> 16 & 0xffff) << 48;

	write_u64(machine, GUEST_IDT + vector * 16, low);
	write_u64(machine, GUEST_IDT + vector * 16 + 8, address >> 32);
}

static void fill_memory(struct machine *machine)
{
	write_u64(machine, GUEST_PML4, GUEST_PDPT | PAGE_TABLE);
	write_u64(machine, GUEST_PDPT, GUEST_PD | PAGE_TABLE);
	write_u64(machine, GUEST_PD, PAGE_2M);
	write_u64(machine, GUEST_GDT + GUEST_KERNEL_CODE, DESCRIPTOR_CODE64(0));
	write_u64(machine, GUEST_GDT + GUEST_KERNEL_DATA, DESCRIPTOR_DATA(0));
	write_u64(machine, GUEST_GDT + GUEST_USER_DATA, DESCRIPTOR_DATA(3));
	write_u64(machine, GUEST_GDT + GUEST_USER_CODE, DESCRIPTOR_CODE64(3));
	write_u64(machine, GUEST_GDT + GUEST_TASK, TSS_LIMIT | (uint64_t)GUEST_TSS << 16 | 0x8bULL << 40);
	write_u64(machine, GUEST_TSS + TSS_RSP0, GUEST_STACK);
	for (unsigned int vector = 0; vector < VECTORS; vector++)
		write_gate(machine, vector,
			vector == VECTOR_BREAKPOINT ? guest_handle_breakpoint : guest_handle_fault);
	memcpy(machine->memory + GUEST_CODE, guest_code_start, code_offset(guest_code_end));
}

/* ---- the vCPU ---- */

static int set_cpuid(int kvm, struct machine *machine)
{
	struct kvm_cpuid2 *cpuid = calloc(1, sizeof(*cpuid) + CPUID_MAX * sizeof(cpuid->entries[0]));
	int r = 0;

	if (!cpuid)
		return -ENOMEM;
	cpuid->nent = CPUID_MAX;
	if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, cpuid) < 0 || ioctl(machine->vcpu, KVM_SET_CPUID2, cpuid) < 0)
		r = -errno;
	free(cpuid);
	return r;
}

static struct kvm_segment code_segment(unsigned int cpl)
{
	return (struct kvm_segment){
		.limit = 0xffffffff,
		.selector = (uint16_t)(cpl ? GUEST_USER_CODE | cpl : GUEST_KERNEL_CODE),
		.type = 11,
		.present = 1,
		.dpl = (uint8_t)cpl,
		.s = 1,
		.l = 1,
		.g = 1,
	};
}

static struct kvm_segment data_segment(unsigned int cpl)
{
	return (struct kvm_segment){
		.limit = 0xffffffff,
		.selector = (uint16_t)(cpl ? GUEST_USER_DATA | cpl : GUEST_KERNEL_DATA),
		.type = 3,
		.present = 1,
		.dpl = (uint8_t)cpl,
		.db = 1,
		.s = 1,
		.g = 1,
	};
}

static int set_sregs(struct machine *machine, const struct test *test)
{
	struct kvm_sregs sregs;
	struct kvm_segment data = data_segment(test->cpl);

	if (ioctl(machine->vcpu, KVM_GET_SREGS, &sregs) < 0)
		return -errno;
	sregs.cs = code_segment(test->cpl);
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
	sregs.tr = (struct kvm_segment){
		.base = GUEST_TSS,
		.limit = TSS_LIMIT,
		.selector = GUEST_TASK,
		.type = 11,
		.present = 1,
	};
	sregs.gdt = (struct kvm_dtable){.base = GUEST_GDT, .limit = GUEST_TASK + 15};
	sregs.idt = (struct kvm_dtable){.base = GUEST_IDT, .limit = VECTORS * 16 - 1};
	sregs.cr0 = CR0_LONG_MODE;
	sregs.cr3 = GUEST_PML4;
	sregs.cr4 = CR4_PAE | CR4_SSE | (test->xsave ? CR4_OSXSAVE : 0);
	sregs.efer = EFER_LONG_MODE;
	return ioctl(machine->vcpu, KVM_SET_SREGS, &sregs) < 0 ? -errno : 0;
}

static int set_xcr0(struct machine *machine)
{
	struct kvm_xcrs xcrs = {.nr_xcrs = 1, .xcrs[0] = {.xcr = 0, .value = XCR0_X87_SSE}};

	return ioctl(machine->vcpu, KVM_SET_XCRS, &xcrs) < 0 ? -errno : 0;
}

static int set_msrs(struct machine *machine)
{
	const struct kvm_msr_entry entries[] = {
		{.index = MSR_STAR, .data = (uint64_t)GUEST_KERNEL_CODE << 32},
		{.index = MSR_LSTAR, .data = guest_address(guest_handle_syscall)},
		{.index = MSR_FMASK, .data = 0},
	};
	union {
		struct kvm_msrs head;
		uint8_t bytes[sizeof(struct kvm_msrs) + sizeof(entries)];
	} msrs = {.head.nmsrs = sizeof(entries) / sizeof(entries[0])};
	int r;

	memcpy(msrs.bytes + sizeof(msrs.head), entries, sizeof(entries));
	r = ioctl(machine->vcpu, KVM_SET_MSRS, &msrs);
	if (r < 0)
		return -errno;
	return (uint32_t)r == msrs.head.nmsrs ? 0 : -EINVAL;
}

static int set_regs(struct machine *machine, const struct test *test)
{
	struct kvm_regs regs = {
		.rip = guest_address(test->entry),
		.rsp = test->cpl ? GUEST_USER_STACK : GUEST_STACK,
		.rflags = RFLAGS_FIXED | (test->cpl ? RFLAGS_IOPL3 : 0),
	};

	return ioctl(machine->vcpu, KVM_SET_REGS, &regs) < 0 ? -errno : 0;
}

/* In KVM_RUN, and only there, SIGALRM is let through: it ends the ioctl and stays pending. */
static int set_signal_mask(struct machine *machine)
{
	union {
		struct kvm_signal_mask head;
		uint8_t bytes[sizeof(struct kvm_signal_mask) + KERNEL_SIGSET];
	} mask = {.head.len = KERNEL_SIGSET};
	sigset_t set;

	sigprocmask(SIG_SETMASK, NULL, &set);
	sigdelset(&set, SIGALRM);
	memcpy(mask.bytes + sizeof(mask.head), &set, KERNEL_SIGSET);
	return ioctl(machine->vcpu, KVM_SET_SIGNAL_MASK, &mask) < 0 ? -errno : 0;
}

/* ---- the machine ---- */

static void machine_finish(struct machine *machine)
{
	if (machine->run)
		munmap(machine->run, machine->run_size);
	fd_close(&machine->vcpu);
	fd_close(&machine->vm);
	if (machine->memory)
		munmap(machine->memory, GUEST_MEMORY);
}

static int machine_create_vm(int kvm, struct machine *machine)
{
	struct kvm_userspace_memory_region region = {.memory_size = GUEST_MEMORY};
	void *memory = mmap(NULL, GUEST_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	machine->memory = memory;
	fill_memory(machine);
	machine->vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (machine->vm < 0)
		return -errno;
	region.userspace_addr = (uintptr_t)memory;
	if (ioctl(machine->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0 ||
		ioctl(machine->vm, KVM_SET_TSS_ADDR, KVM_TSS_ADDRESS) < 0)
		return -errno;
	return 0;
}

static int machine_create_vcpu(int kvm, struct machine *machine)
{
	int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	void *run;

	if (size < (int)sizeof(*machine->run))
		return size < 0 ? -errno : -EINVAL;
	machine->vcpu = ioctl(machine->vm, KVM_CREATE_VCPU, 0);
	if (machine->vcpu < 0)
		return -errno;
	run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, machine->vcpu, 0);
	if (run == MAP_FAILED)
		return -errno;
	machine->run = run;
	machine->run_size = (size_t)size;
	return 0;
}

/* The machine ready to run its test. 0 or -errno; to be finished in every case. */
static int machine_init(struct machine *machine, int kvm, const struct test *test)
{
	int r;

	*machine = (struct machine){.vm = -1, .vcpu = -1};
	r = machine_create_vm(kvm, machine);
	if (r == 0)
		r = machine_create_vcpu(kvm, machine);
	if (r == 0)
		r = set_cpuid(kvm, machine);
	if (r == 0)
		r = set_sregs(machine, test);
	if (r == 0 && test->xsave)
		r = set_xcr0(machine);
	if (r == 0)
		r = set_msrs(machine);
	if (r == 0)
		r = set_regs(machine, test);
	if (r == 0)
		r = set_signal_mask(machine);
	return r;
}

/* ---- running ---- */

static struct guest_outcome outcome_of(enum guest_end end, uint32_t detail)
{
	return (struct guest_outcome){.end = end, .detail = detail};
}

/* Notes a report; GUEST_NOT_RUN while the test goes on. */
static enum guest_end take_report(struct reports *reports, uint32_t report)
{
	switch (report) {
	case GUEST_DONE:
	case GUEST_BREAKPOINT:
		return GUEST_FINISHED;
	case GUEST_FAULT:
		return GUEST_FAULTED;
	case GUEST_MARK:
		if (reports->marks < sizeof(reports->mark_ns) / sizeof(reports->mark_ns[0]))
			reports->mark_ns[reports->marks++] = now_ns();
		return GUEST_NOT_RUN;
	default:
		if (report >= GUEST_XSAVE)
			reports->xsave = report - GUEST_XSAVE;
		else if (report >= GUEST_CPL)
			reports->cpl = report - GUEST_CPL;
		return GUEST_NOT_RUN;
	}
}

/* What an exit means; GUEST_NOT_RUN when the guest goes on. */
static struct guest_outcome handle_exit(const struct machine *machine, struct reports *reports)
{
	const struct kvm_run *run = machine->run;
	uint32_t report;

	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		if (run->io.direction != KVM_EXIT_IO_OUT || run->io.port != GUEST_PORT ||
			run->io.size != sizeof(report) ||
			run->io.data_offset > machine->run_size - sizeof(report))
			return outcome_of(GUEST_OTHER_EXIT, KVM_EXIT_IO);
		memcpy(&report, (const uint8_t *)run + run->io.data_offset, sizeof(report));
		return outcome_of(take_report(reports, report), 0);
	case KVM_EXIT_INTERNAL_ERROR:
		return outcome_of(GUEST_INTERNAL_ERROR, run->internal.suberror);
	case KVM_EXIT_SHUTDOWN:
		return outcome_of(GUEST_SHUT_DOWN, 0);
	default:
		return outcome_of(GUEST_OTHER_EXIT, run->exit_reason);
	}
}

/* The timer's signal: taken back, so that the next test does not see it. */
static bool take_alarm(void)
{
	struct timespec at_once = {0};
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	return sigtimedwait(&alarm, NULL, &at_once) == SIGALRM;
}

static struct guest_outcome run_machine(const struct machine *machine, struct reports *reports)
{
	struct guest_outcome outcome = {.end = GUEST_NOT_RUN};

	while (outcome.end == GUEST_NOT_RUN) {
		if (ioctl(machine->vcpu, KVM_RUN, 0) == 0)
			outcome = handle_exit(machine, reports);
		else if (errno != EINTR)
			outcome = outcome_of(GUEST_KVM_REFUSED, (uint32_t)errno);
		else if (take_alarm())
			outcome = outcome_of(GUEST_TIMED_OUT, 0);
	}
	return outcome;
}

static void set_timer(timer_t timer, long milliseconds)
{
	struct itimerspec time = {
		.it_value = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000},
	};

	timer_settime(timer, 0, &time, NULL);
}

static struct guest_outcome run_test(int kvm, timer_t timer, const struct test *test, struct reports *reports)
{
	struct machine machine;
	struct guest_outcome outcome;
	int r = machine_init(&machine, kvm, test);

	*reports = (struct reports){0};
	if (r < 0) {
		outcome = outcome_of(GUEST_KVM_REFUSED, (uint32_t)-r);
	} else {
		set_timer(timer, GUEST_TIME_MS);
		outcome = run_machine(&machine, reports);
		set_timer(timer, 0);
		take_alarm();
	}
	machine_finish(&machine);
	return outcome;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * The loop, less what a report costs: the least of what some runs took, for a busy host only adds. The
 * last of the intervals between marks is the loop's.
 */
static void measure_loop(int kvm, timer_t timer, struct guest_figures *figures)
{
	static const struct test loop = {.entry = guest_entry_loop};
	uint64_t loop_ns = UINT64_MAX, exit_ns = UINT64_MAX;
	struct reports reports;

	figures->loop_ps = figures->exit_ns = UINT64_MAX;
	for (int i = 0; i < LOOP_RUNS; i++) {
		figures->loop = run_test(kvm, timer, &loop, &reports);
		if (figures->loop.end != GUEST_FINISHED || reports.marks != GUEST_MARKS)
			return;
		for (size_t mark = 1; mark < GUEST_MARKS - 1; mark++)
			exit_ns = least(exit_ns, reports.mark_ns[mark] - reports.mark_ns[mark - 1]);
		loop_ns = least(loop_ns, reports.mark_ns[GUEST_MARKS - 1] - reports.mark_ns[GUEST_MARKS - 2]);
	}
	figures->exit_ns = exit_ns;
	figures->loop_ps = loop_ns > exit_ns ? (loop_ns - exit_ns) * 1000 / GUEST_LOOPS : 0;
}

static void measure_all(int kvm, timer_t timer, struct guest_figures *figures)
{
	static const struct test syscall_test = {.entry = guest_entry_syscall, .cpl = 3};
	static const struct test int3 = {.entry = guest_entry_int3};
	static const struct test xsave = {.entry = guest_entry_xsave, .xsave = true};
	struct reports reports;

	measure_loop(kvm, timer, figures);
	figures->syscall = run_test(kvm, timer, &syscall_test, &reports);
	figures->cpl = reports.cpl;
	figures->int3 = run_test(kvm, timer, &int3, &reports);
	figures->xsave = run_test(kvm, timer, &xsave, &reports);
	figures->restored = reports.xsave;
}

int guest_measure(int kvm, struct guest_figures *figures)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	sigset_t alarm, before;
	timer_t timer;

	*figures = (struct guest_figures){0};
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
		return -errno;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, &before);
	measure_all(kvm, timer, figures);
	timer_delete(timer);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return 0;
}
