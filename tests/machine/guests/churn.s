# SPDX-License-Identifier: Apache-2.0
# Changes a page at random in each round, and every fourth time that one comes to zeros, when all of it is as it was left:
# memory that a restore has mixed up ends it with `fail`. Reads a port each round, so that whether it runs can be told.
	.include "tests/machine/guests/guest.inc"
	.set	AREA, 0x400000
	.set	PAGES, 512
	.globl	_start

# What page rbx is full of, in rax, by how often it was changed. Clobbers rcx, rdx.
	.macro value
	movzwl	times(,%rbx,2), %ecx
	xorl	%eax, %eax
	testl	$3, %ecx
	jz	8f
	leal	1(%rbx), %eax
	imulq	%rcx, %rax
	movabsq	$0x9e3779b97f4a7c15, %rdx
	imulq	%rdx, %rax
8:
	.endm

_start:	movl	$1, %r12d
round:	imull	$1103515245, %r12d
	addl	$12345, %r12d
	movl	%r12d, %ebx
	shrl	$16, %ebx
	andl	$PAGES - 1, %ebx
	movl	%ebx, %edi
	shll	$12, %edi
	addl	$AREA, %edi
	value
	movl	%edi, %esi
	movl	$512, %ecx
1:	cmpq	%rax, (%rsi)
	jne	wrong
	addq	$8, %rsi
	decl	%ecx
	jnz	1b
	incw	times(,%rbx,2)
	value
	movl	$512, %ecx
	rep stosq
	inb	$0x80, %al
	jmp	round
wrong:	fail

	.bss
times:	.space	2 * PAGES
