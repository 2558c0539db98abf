# SPDX-License-Identifier: Apache-2.0
# The same, again and again.
	.include "tests/machine/guests/guest.inc"
	.macro arm
	movl	$0x20000 + VECTOR, 0x320(%rbx)
	movl	$0xb, 0x3e0(%rbx)		# undivided
	movl	$1000000000, 0x380(%rbx)
	movl	$200000000, %r15d		# no TSC is slower than a fifth of that
	.endm
	.include "tests/machine/guests/timer.inc"
