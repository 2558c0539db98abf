/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions of the doctor's guest (see doctor_guest.h). Data, never run by this program: the machine
 * copies it to GUEST_CODE. Only relative jumps, so that it works at any address.
 */
#include "host-ctl/doctor/doctor_guest.h"

#define TEXT(x) #x
#define VALUE(x) TEXT(x)

/* clang-format off */
#define REPORT(what) \
	"	movl	$" VALUE(what) ", %eax\n" \
	"	outl	%eax, $" VALUE(GUEST_PORT) "\n"

__asm__(
	".pushsection .rodata, \"a\"\n"
	".balign 16\n"
	".global guest_code_start, guest_code_end\n"
	".global guest_entry_loop, guest_entry_syscall, guest_entry_int3, guest_entry_xsave\n"
	".global guest_handle_syscall, guest_handle_breakpoint, guest_handle_fault\n"
	"guest_code_start:\n"

	/* At CPL 0: the time between two marks is what a report costs; the last interval holds the loop. */
	"guest_entry_loop:\n"
	"	movl	$" VALUE(GUEST_MARKS) " - 1, %ebx\n"
	"0:\n"
	REPORT(GUEST_MARK)
	"	decl	%ebx\n"
	"	jnz	0b\n"
	"	movabsq	$" VALUE(GUEST_LOOPS) ", %rcx\n"
	"1:	decq	%rcx\n"
	"	jnz	1b\n"
	REPORT(GUEST_MARK)
	REPORT(GUEST_DONE)
	"	hlt\n"

	/* At CPL 3, with IOPL 3 so that a report is possible wherever `syscall` leads. */
	"guest_entry_syscall:\n"
	"	syscall\n"
	"	hlt\n"
	"guest_handle_syscall:\n"
	"	movl	%cs, %eax\n"
	"	andl	$3, %eax\n"
	"	addl	$" VALUE(GUEST_CPL) ", %eax\n"
	"	outl	%eax, $" VALUE(GUEST_PORT) "\n"
	"	movq	%cr3, %rax\n" /* faults at CPL 3, whatever CS shows */
	REPORT(GUEST_DONE)
	"	hlt\n"

	/* At CPL 0: the handler reports. */
	"guest_entry_int3:\n"
	"	int3\n"
	REPORT(GUEST_FAULT)
	"	hlt\n"
	"guest_handle_breakpoint:\n"
	REPORT(GUEST_BREAKPOINT)
	"	hlt\n"

	/* At CPL 0: x87 and SSE state to memory and back. */
	"guest_entry_xsave:\n"
	"	movl	$" VALUE(GUEST_XSAVE_AREA) ", %ebx\n"
	"	movl	$0x5aa5c33c, %ecx\n"
	"	movd	%ecx, %xmm0\n"
	"	xorl	%edx, %edx\n"
	"	movl	$3, %eax\n"
	"	xsave	(%rbx)\n"
	"	pxor	%xmm0, %xmm0\n"
	"	movl	$3, %eax\n"
	"	xrstor	(%rbx)\n"
	"	movd	%xmm0, %esi\n"
	"	xorl	%eax, %eax\n"
	"	cmpl	%ecx, %esi\n"
	"	sete	%al\n"
	"	addl	$" VALUE(GUEST_XSAVE) ", %eax\n"
	"	outl	%eax, $" VALUE(GUEST_PORT) "\n"
	REPORT(GUEST_DONE)
	"	hlt\n"

	/* Every exception but the breakpoint. */
	"guest_handle_fault:\n"
	REPORT(GUEST_FAULT)
	"	hlt\n"

	"guest_code_end:\n"
	".popsection\n");
