# SPDX-License-Identifier: Apache-2.0
# Starts all other CPUs; each has the id that CPUID and its local APIC say. Then an interrupt to each of them, which
# it answers by one to the first.
	.include "tests/machine/guests/guest.inc"
	.include "tests/machine/guests/smp.inc"
	.set	VECTOR, 0x42
	.globl	_start
_start:
	map_devices
	take_interrupts VECTOR, handler
	read_cpus
	prepare_cpus
	start_all
	all_cpus
	await_online
	movl	$1, %r14d
next:	cmpl	%r15d, %r14d
	je	all
	movl	%r14d, %ecx
	shll	$24, %ecx
	movl	$LAPIC, %edx
	movl	%ecx, LAPIC_TARGET(%rdx)
	movl	$COMMAND_FIXED + VECTOR, LAPIC_COMMAND(%rdx)
sleep:	cli
	cmpl	%r14d, came
	je	answered
	sti
	hlt
	jmp	sleep
answered:
	cmpl	$1, came(,%r14,4)
	jne	wrong
	incl	%r14d
	jmp	next
all:	pass
wrong:	fail

	cpus_code main
main:	sti
	hlt
	jmp	main

handler:
	pushq	%rax
	pushq	%rcx
	movl	$LAPIC, %eax
	movl	LAPIC_ID(%rax), %ecx
	shrl	$24, %ecx
	lock incl	came(,%rcx,4)
	testl	%ecx, %ecx
	jz	1f
	movl	$0, LAPIC_TARGET(%rax)
	movl	$COMMAND_FIXED + VECTOR, LAPIC_COMMAND(%rax)
1:	movl	$0, LAPIC_EOI(%rax)
	popq	%rcx
	popq	%rax
	iretq
	.bss
	.balign	4
came:	.space	CPUS_MAX * 4
