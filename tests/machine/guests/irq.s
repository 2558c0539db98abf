# SPDX-License-Identifier: Apache-2.0
# A virtio device's interrupt, by the IOAPIC: once with the pin open, once raised while the pin is masked, which
# must come when it is unmasked, and once. The device is rng, number 0.
	.include "tests/machine/guests/guest.inc"
	.set	VECTOR, 0x40
	.globl	_start

	.macro device_write offset, value
	movl	$\value, \offset(%rbp)
	.endm
	.macro ioapic_write index, value
	movl	$\index, (%r12)
	movl	$\value, 0x10(%r12)
	.endm
# One buffer more, in the one descriptor.
	.macro ask count
	movw	$\count, available + 2
	device_write 0x50, 0
	.endm
	.macro await_used count
3:	pause
	cmpw	$\count, used + 2
	jne	3b
	.endm

_start:
	map_devices
	take_interrupts VECTOR, handler
	movl	$DEVICES, %ebp
	movl	$IOAPIC, %r12d
	cmpl	$4, 8(%rbp)			# DeviceID: entropy
	jne	wrong
	device_write 0x70, 0			# Status: reset, acknowledge, driver
	device_write 0x70, 1
	device_write 0x70, 3
	device_write 0x24, 0			# DriverFeatures: VERSION_1 only
	device_write 0x20, 0
	device_write 0x24, 1
	device_write 0x20, 1
	device_write 0x70, 0xb			# FEATURES_OK
	device_write 0x30, 0			# the queue
	device_write 0x38, 8
	device_write 0x80, descriptors
	device_write 0x84, 0
	device_write 0x90, available
	device_write 0x94, 0
	device_write 0xa0, used
	device_write 0xa4, 0
	device_write 0x44, 1
	device_write 0x70, 0xf			# DRIVER_OK
	cmpl	$0xf, 0x70(%rbp)
	jne	wrong

	ioapic_write 0x11, 0
	ioapic_write 0x10, VECTOR
	ask	1
	await_flag came
	cmpb	$1, came
	jne	wrong
	cmpw	$1, used + 2
	jne	wrong
	cmpl	$16, used + 8			# bytes of the first buffer
	jne	wrong

	movb	$0, came
	ioapic_write 0x10, VECTOR + 0x10000
	ask	2
	await_used 2
	cmpl	$0, 0x60(%rbp)			# InterruptStatus: it was raised
	je	wrong
	sti
	nop
	nop
	cli
	cmpb	$0, came
	jne	wrong
	ioapic_write 0x10, VECTOR
	await_flag came
	cmpb	$1, came
	jne	wrong
	cmpl	$0, 0x60(%rbp)			# the handler has acknowledged it
	jne	wrong
	pass
wrong:	fail

handler:
	incb	came
	movl	$1, 0x64(%rbp)			# InterruptACK
	pushq	%rax
	movl	$LAPIC, %eax
	movl	$0, 0xb0(%rax)			# end of interrupt
	popq	%rax
	iretq

	.data
	.balign	16
descriptors:
	.quad	buffer
	.long	16
	.word	2, 0				# the device writes
	.space	7 * 16
	.balign	4
available:
	.word	0, 0
	.space	2 * 8 + 2
	.balign	4
used:	.word	0, 0
	.space	8 * 8 + 2
buffer:	.space	16
came:	.byte	0
