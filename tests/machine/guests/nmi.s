# SPDX-License-Identifier: Apache-2.0
# Lives in the handler of an NMI and sends itself another one each round: none may come before the first has returned,
# which it never does. Reads a port each round.
	.include "tests/machine/guests/guest.inc"
	.globl	_start
_start:
	map_devices
	take_interrupts 2, handler
	xorl	%r12d, %r12d
	movl	$LAPIC, %ebx
	movl	$0x4400, 0x300(%rbx)		# an NMI to CPU 0
1:	pause
	jmp	1b

handler:
	incl	%r12d
	cmpl	$1, %r12d
	jne	wrong
round:	inb	$0x80, %al
	movl	$0x4400, 0x300(%rbx)
	jmp	round
wrong:	fail
