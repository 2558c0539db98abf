# SPDX-License-Identifier: Apache-2.0
# The timer by a deadline of the TSC.
	.include "tests/machine/guests/guest.inc"
	.macro arm
	movl	$0x40000 + VECTOR, 0x320(%rbx)
	mfence
	movl	$0x80000000, %r15d
	leaq	(%r14,%r15), %rax
	movq	%rax, %rdx
	shrq	$32, %rdx
	movl	$0x6e0, %ecx
	wrmsr
	.endm
	.include "tests/machine/guests/timer.inc"
