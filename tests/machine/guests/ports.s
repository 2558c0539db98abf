# SPDX-License-Identifier: Apache-2.0
# Reads and writes each port up to 0x3ff in every width, singly and by string instructions; then a port that
# nobody has must still read all-ones, and the machine must still power off.
	.include "tests/machine/guests/guest.inc"
	.globl	_start
_start:
	map_devices
	xorl	%edx, %edx
next:	inb	%dx, %al
	inw	%dx, %ax
	inl	%dx, %eax
	xorl	%eax, %eax		# 0: no reset at port 0x64
	outb	%al, %dx
	outw	%ax, %dx
	outl	%eax, %dx
	incl	%edx
	cmpl	$0x400, %edx
	jne	next

	cld
	movl	$0x3f0, %edx
strings:
	movl	$buffer, %edi
	movl	$300, %ecx
	rep insb
	movl	$75, %ecx
	rep insl
	movl	$zeros, %esi
	movl	$300, %ecx
	rep outsb
	movl	$75, %ecx
	rep outsl
	movl	$zeros, %esi
	movl	$150, %ecx
	rep outsw
	incl	%edx
	cmpl	$0x400, %edx
	jne	strings

	movl	$0x80, %edx
	xorl	%eax, %eax
	inl	%dx, %eax
	cmpl	$0xffffffff, %eax
	jne	wrong
	movl	$buffer, %edi
	movl	$4, %ecx
	rep insb
	cmpl	$0xffffffff, buffer
	jne	wrong
	pass
wrong:	fail

	.bss
buffer:	.space	2048
zeros:	.space	2048
