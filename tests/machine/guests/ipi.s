# SPDX-License-Identifier: Apache-2.0
# An interrupt to itself by the local APIC.
	.include "tests/machine/guests/guest.inc"
	.set	VECTOR, 0x41
	.globl	_start
_start:
	map_devices
	take_interrupts VECTOR, handler
	movl	$LAPIC, %edx
	movl	$0, 0x310(%rdx)
	movl	$0x40000 + VECTOR, 0x300(%rdx)	# to itself, fixed
	await_flag came
	pass
handler:
	incb	came
	movl	$0, 0xb0(%rdx)
	iretq
	.data
came:	.byte	0
