# SPDX-License-Identifier: Apache-2.0
# The last letter of the kernel's command line says how the last CPU ends the VM while the others spin and exit:
# o powers off, p panics, r resets, t a triple fault, e an instruction that KVM cannot emulate;
# a: all end it at the same moment, by power-off, panic and reset.
	.include "tests/machine/guests/guest.inc"
	.include "tests/machine/guests/smp.inc"
	.globl	_start
_start:
	movl	0x228(%rsi), %esi		# cmd_line_ptr of boot_params
1:	movb	(%rsi), %al
	testb	%al, %al
	jz	1f
	movb	%al, how
	incl	%esi
	jmp	1b
1:	map_devices
	take_interrupts 0x42, wrong
	read_cpus
	prepare_cpus
	movl	%r15d, last
	decl	last
	start_all
	all_cpus
	await_online
	incl	go
	xorl	%ebx, %ebx
	jmp	main

	cpus_code main
main:	cmpl	$0, go
	je	main
	cmpb	$'a', how
	je	all
	cmpl	%ebx, last
	je	end
	testl	$1, %ebx
	jz	2f
1:	inb	$0x80, %al
	jmp	1b
2:	jmp	2b

end:	movb	how, %al
	cmpb	$'o', %al
	je	poweroff
	cmpb	$'p', %al
	je	panic
	cmpb	$'r', %al
	je	reset
	cmpb	$'t', %al
	je	triple
	movl	$DEVICES, %eax
	fstpt	(%rax)
	jmp	wrong
triple:	lidt	none
	ud2
all:	movl	%ebx, %eax
	xorl	%edx, %edx
	movl	$3, %ecx
	divl	%ecx
	cmpl	$1, %edx
	jb	poweroff
	je	panic
reset:	movb	$0xfe, %al
	outb	%al, $0x64
1:	hlt
	jmp	1b
poweroff:
	pass
panic:
wrong:	fail
	.data
	.balign	8
none:	.word	0
	.quad	0
how:	.byte	0
	.balign	4
last:	.long	0
go:	.long	0
