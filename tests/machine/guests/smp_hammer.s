# SPDX-License-Identifier: Apache-2.0
# All CPUs at once use the same ports and registers, each ROUNDS times; what they read must be right, and what the VMM
# counted is known to the test (smp.c).
	.include "tests/machine/guests/guest.inc"
	.include "tests/machine/guests/smp.inc"
	.set	ROUNDS, 100
	.globl	_start
_start:
	map_devices
	take_interrupts 0x42, wrong
	read_cpus
	prepare_cpus
	movl	$IOAPIC, %eax
	movl	$1, (%rax)			# its version, which all will read
	movl	16(%rax), %eax
	movl	%eax, version
	start_all
	all_cpus
	await_online
	incl	go
	xorl	%ebx, %ebx
	jmp	main

	cpus_code main
main:	cmpl	$0, go
	pause
	je	main
	movl	$DEVICES, %r8d
	movl	$IOAPIC, %r9d
	movl	$DEVICES + 0x20000, %r10d	# nobody
	movl	$ROUNDS, %r11d
round:	outb	%al, $0x80
	movl	$0x3ff, %edx			# the serial port's scratch register
	inb	%dx, %al
	leal	97(%rbx), %eax			# "a" for the first CPU
	movl	$0x3f8, %edx
	outb	%al, %dx
	movl	$1, (%r9)
	movl	16(%r9), %eax
	cmpl	version, %eax
	jne	wrong
	cmpl	$0x74726976, (%r8)
	jne	wrong
	movl	$0, 0x70(%r8)			# a reset of the device
	cmpl	$0, 0x70(%r8)
	jne	wrong
	cmpl	$0xffffffff, (%r10)
	jne	wrong
	decl	%r11d
	jnz	round
	lock incl	done
	testl	%ebx, %ebx
	jz	await
1:	cli
	hlt
	jmp	1b
await:	pause
	cmpl	%r15d, done
	jne	await
	pass
wrong:	fail
	.data
	.balign	4
version:
	.long	0
go:	.long	0
done:	.long	0
