# SPDX-License-Identifier: Apache-2.0
# Every CPU counts, on its own and together, with an exit now and then, until a byte comes by the serial line. Then
# the sum must be what they counted together, whatever was done to them meanwhile.
	.include "tests/machine/guests/guest.inc"
	.include "tests/machine/guests/smp.inc"
	.globl	_start
_start:
	map_devices
	take_interrupts 0x42, wrong
	read_cpus
	prepare_cpus
	start_all
	all_cpus
	await_online
	xorl	%ebx, %ebx
	jmp	main

	cpus_code main
main:	movl	%ebx, %esi
	shll	$6, %esi			# a cache line each
	xorl	%ecx, %ecx
count:	cmpl	$0, stop
	jne	stopped
	incq	own(%rsi)
	lock incq	total
	incb	%cl
	jnz	count
	movl	$0x3fd, %edx			# line status; bit 0: a byte is there
	testl	%ebx, %ebx
	jz	look
	outb	%al, $0x80
	jmp	count
look:	inb	%dx, %al
	testb	$1, %al
	jz	count
	incl	stop
stopped:
	lock incl	done
	testl	%ebx, %ebx
	jz	await
1:	cli
	hlt
	jmp	1b
await:	pause
	cmpl	%r15d, done
	jne	await
	xorl	%eax, %eax
	xorl	%esi, %esi
	xorl	%ecx, %ecx
sum:	cmpq	$0, own(%rsi)			# each has counted
	je	wrong
	addq	own(%rsi), %rax
	addl	$64, %esi
	incl	%ecx
	cmpl	%r15d, %ecx
	jne	sum
	cmpq	%rax, total
	jne	wrong
	pass
wrong:	fail
	.bss
	.balign	64
own:	.space	CPUS_MAX * 64
total:	.quad	0
stop:	.long	0
done:	.long	0
