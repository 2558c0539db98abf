/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's guest: a few dozen instructions, run in a KVM of their own, that try what every Linux guest
 * needs of a processor. doctor_guest_code_x86_64.c holds the instructions, doctor_guest_x86_64.c the machine.
 */
#ifndef HOST_CTL_DOCTOR_GUEST_H
#define HOST_CTL_DOCTOR_GUEST_H

#include <stddef.h>
#include <stdint.h>

/* ---- the code, and where the machine puts what it uses ---- */

/* A report is an OUT of EAX to this port; the machine sees it as KVM_EXIT_IO. */
#define GUEST_PORT 0x10

#ifndef GUEST_LOOPS	   /* a test of the time limit is built with a loop that does not end */
#define GUEST_LOOPS 100000 /* iterations of the timed loop: two instructions each */
#endif
#define GUEST_MARKS 8 /* points in time: between the last two is the loop */

/* What the guest reports. */
#define GUEST_MARK 0x100       /* a point in time */
#define GUEST_DONE 0x101       /* the test's last instruction was reached */
#define GUEST_FAULT 0x102      /* an exception that the test does not expect */
#define GUEST_BREAKPOINT 0x103 /* int3 was delivered */
#define GUEST_CPL 0x200	       /* plus the CPL that CS shows after `syscall` */
#define GUEST_XSAVE 0x300      /* plus 1 when xrstor brought the register back */

/* Guest-physical (and, mapped one to one, virtual) addresses. */
#define GUEST_MEMORY 0x10000 /* size */
#define GUEST_PML4 0x1000
#define GUEST_PDPT 0x2000
#define GUEST_PD 0x3000
#define GUEST_GDT 0x4000
#define GUEST_TSS 0x4800
#define GUEST_IDT 0x5000
#define GUEST_CODE 0x6000
#define GUEST_XSAVE_AREA 0x8000
#define GUEST_STACK 0xa000	/* of CPL 0, growing down */
#define GUEST_USER_STACK 0xc000 /* of CPL 3 */

/* Selectors. SYSCALL and SYSRET want kernel code and data, then user data and code, in this order. */
#define GUEST_KERNEL_CODE 0x08
#define GUEST_KERNEL_DATA 0x10
#define GUEST_USER_DATA 0x20
#define GUEST_USER_CODE 0x28
#define GUEST_TASK 0x30

/* The code is position-independent. Entries and handlers are places in it. */
extern const uint8_t guest_code_start[], guest_code_end[];
extern const uint8_t guest_entry_loop[], guest_entry_syscall[], guest_entry_int3[], guest_entry_xsave[];
extern const uint8_t guest_handle_syscall[], guest_handle_breakpoint[], guest_handle_fault[];

/* ---- what running it showed ---- */

enum guest_end {
	GUEST_NOT_RUN,
	GUEST_FINISHED,	      /* reported GUEST_DONE, or GUEST_BREAKPOINT */
	GUEST_FAULTED,	      /* reported GUEST_FAULT */
	GUEST_INTERNAL_ERROR, /* KVM_EXIT_INTERNAL_ERROR; detail: the suberror */
	GUEST_SHUT_DOWN,      /* a triple fault */
	GUEST_OTHER_EXIT,     /* detail: the exit reason */
	GUEST_TIMED_OUT,      /* GUEST_TIME_MS were not enough */
	GUEST_KVM_REFUSED,    /* a KVM ioctl failed; detail: errno */
};

enum { GUEST_TIME_MS = 1500 }; /* bound of each test */

struct guest_outcome {
	enum guest_end end;
	uint32_t detail;
};

/* Figures of the tests; each is valid when its outcome is GUEST_FINISHED. */
struct guest_figures {
	struct guest_outcome loop, syscall, int3, xsave;
	uint64_t loop_ps;      /* one iteration of the loop at CPL 0, in picoseconds */
	uint64_t exit_ns;      /* one exit to user space and back */
	unsigned int cpl;      /* in the handler, after `syscall` from CPL 3 */
	unsigned int restored; /* 1: xrstor brought back what xsave saved */
};

/*
 * Runs every test, each in a VM of its own and for at most GUEST_TIME_MS, by a timer whose SIGALRM ends
 * KVM_RUN. kvm: /dev/kvm, stays the caller's. Fills all figures; 0, or -errno when the timer or the memory
 * for it cannot be had. The calling thread must be the process's only one.
 */
int guest_measure(int kvm, struct guest_figures *figures);

#endif
