# SPDX-License-Identifier: Apache-2.0
# Fills registers of every kind with values of its own, then compares them all, for ever: what a snapshot forgets ends it
# with `fail`. Reads a port each round, so that whether it runs can be told from the count of exits.
	.include "tests/machine/guests/guest.inc"
	.set	READS, 16			# of the port in each round
	.set	WORDS, 4096			# of memory, each of which counts the rounds
	.globl	_start

	.macro load_vector number
	movdqu	vectors + 16 * \number, %xmm\number
	.endm
	.macro check_vector number
	movdqu	%xmm\number, scratch
	movq	vectors + 16 * \number, %rax
	cmpq	scratch, %rax
	jne	wrong
	movq	vectors + 16 * \number + 8, %rax
	cmpq	scratch + 8, %rax
	jne	wrong
	.endm
	.macro every_vector what
	.irp	number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	\what	\number
	.endr
	.endm
	.macro check_debug number, value
	movq	%db\number, %rax
	cmpq	$\value, %rax
	jne	wrong
	.endm

_start:
	map_devices
	take_interrupts 0x40, wrong
	movq	%cr0, %rax			# the x87 and SSE, and XSAVE where it is
	andq	$~4, %rax
	orq	$2, %rax
	movq	%rax, %cr0
	movq	%cr4, %rax
	orq	$0x600, %rax
	movq	%rax, %cr4
	movl	$1, %eax
	cpuid
	btl	$26, %ecx
	jnc	1f
	movq	%cr4, %rax
	orq	$0x40000, %rax
	movq	%rax, %cr4
	xorl	%ecx, %ecx
	xorl	%edx, %edx
	movl	$3, %eax			# QEMU's SVM does not intercept it: not compared below
	xsetbv
1:	every_vector load_vector
	ldmxcsr	mxcsr
	fldcw	fcw
	fildl	number
	movl	$registers, %esi
2:	movl	(%rsi), %ecx
	movl	4(%rsi), %eax
	movl	8(%rsi), %edx
	wrmsr
	addl	$12, %esi
	cmpl	$registers_end, %esi
	jne	2b
	movl	$0x11111000, %eax
	movq	%rax, %db0
	movl	$0x22222000, %eax
	movq	%rax, %db1
	movl	$0x33333000, %eax
	movq	%rax, %db2
	movl	$0x44444000, %eax
	movq	%rax, %db3
	movl	$3, %eax
	movq	%rax, %cr8
	movl	$LAPIC, %eax
	movl	$0x00010042, 0x320(%rax)	# the timer's entry, masked
	movl	$0x00000043, 0x370(%rax)	# errors
	movl	$0x0000000b, 0x3e0(%rax)	# its divisor
	movl	$0x03000000, 0xd0(%rax)		# logical destination
	movl	$IOAPIC, %eax
	movl	$0x11, (%rax)
	movl	$0x01000000, 0x10(%rax)		# the first pin: to CPU 1, vector 0x55, masked
	movl	$0x10, (%rax)
	movl	$0x10055, 0x10(%rax)
	movabsq	$0x123456789abcdef0, %rbx
	movabsq	$0x0fedcba987654321, %rbp
	movabsq	$0x5555aaaa5555aaaa, %r12
	movabsq	$0x0102030405060708, %r13
	movabsq	$-2, %r14
	xorl	%r15d, %r15d
	movl	$stack_end - 64, %esp

round:	movl	$READS, %ecx
6:	inb	$0x80, %al
	decl	%ecx
	jnz	6b
	every_vector check_vector
	stmxcsr	scratch
	movl	mxcsr, %eax
	cmpl	scratch, %eax
	jne	wrong
	fstcw	scratch
	movw	fcw, %ax
	cmpw	scratch, %ax
	jne	wrong
	fistl	scratch
	movl	number, %eax
	cmpl	scratch, %eax
	jne	wrong
	movl	$registers, %esi
3:	movl	(%rsi), %ecx
	rdmsr
	cmpl	4(%rsi), %eax
	jne	wrong
	cmpl	8(%rsi), %edx
	jne	wrong
	addl	$12, %esi
	cmpl	$registers_end, %esi
	jne	3b
	check_debug 0, 0x11111000
	check_debug 1, 0x22222000
	check_debug 2, 0x33333000
	check_debug 3, 0x44444000
	movq	%cr8, %rax
	cmpl	$3, %eax
	jne	wrong
	movl	$LAPIC, %eax
	cmpl	$0x00010042, 0x320(%rax)
	jne	wrong
	cmpl	$0x00000043, 0x370(%rax)
	jne	wrong
	cmpl	$0x0000000b, 0x3e0(%rax)
	jne	wrong
	cmpl	$0x03000000, 0xd0(%rax)
	jne	wrong
	movl	$IOAPIC, %eax
	cmpl	$0x10, (%rax)			# the index is a register too
	jne	wrong
	cmpl	$0x10055, 0x10(%rax)
	jne	wrong
	movl	$0x11, (%rax)
	cmpl	$0x01000000, 0x10(%rax)
	jne	wrong
	movl	$0x10, (%rax)
	movabsq	$0x123456789abcdef0, %rax
	cmpq	%rax, %rbx
	jne	wrong
	movabsq	$0x0fedcba987654321, %rax
	cmpq	%rax, %rbp
	jne	wrong
	movabsq	$0x5555aaaa5555aaaa, %rax
	cmpq	%rax, %r12
	jne	wrong
	movabsq	$0x0102030405060708, %rax
	cmpq	%rax, %r13
	jne	wrong
	cmpq	$-2, %r14
	jne	wrong
	cmpq	$stack_end - 64, %rsp
	jne	wrong
	movl	$WORDS, %ecx			# each word has counted as many rounds
	movl	$words, %esi
4:	cmpq	%r15, (%rsi)
	jne	wrong
	incq	(%rsi)
	addl	$8, %esi
	decl	%ecx
	jnz	4b
	incq	%r15
	jmp	round
wrong:	fail

	.macro register index, value
	.long	\index
	.quad	\value
	.endm
	.data
mxcsr:	.long	0x3f80				# rounds down
fcw:	.word	0x0a7f
number:	.long	0x12345678			# on the x87's stack
	.balign	16
vectors:
	.irp	number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	.quad	0x1111111111111111 * \number + 7, 0x0123456789abcdef + \number
	.endr
registers:
	register 0xc0000081, 0x0023001011223344	# STAR
	register 0xc0000082, 0x00007f1234567890	# LSTAR
	register 0xc0000083, 0x00007f0987654321	# CSTAR
	register 0xc0000084, 0x0000000000047700	# SFMASK
	register 0xc0000100, 0x0000123400005678	# FS base
	register 0xc0000101, 0x0000432100008765	# GS base
	register 0xc0000102, 0xffff888811112222	# the kernel's GS base
	register 0x174, 0x10			# SYSENTER
	register 0x175, 0x0000000011223344
	register 0x176, 0x0000000055667788
	register 0x277, 0x0001050600070106	# PAT
	register 0x200, 0x00000000c0000001	# memory types: a variable range
	register 0x201, 0x0000000fc0000800
	register 0x250, 0x0606060606060606	# and a fixed one
	register 0x402, 0x0000000012345678	# an address of the machine check
registers_end:
	.bss
	.balign	16
scratch:
	.space	16
words:	.space	8 * WORDS
