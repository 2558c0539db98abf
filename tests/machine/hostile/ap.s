# SPDX-License-Identifier: Apache-2.0
# The other processors' way from real mode to 64-bit code: copied to a page below 1 MiB, where they start.
	.globl	ap_start, ap_start_bytes, ap_tables
	.set	AT, 0x9000
	.set	CODE32, 0x30
	.set	CODE64, 0x10
	.set	DATA, 0x18
	.set	STACK, 4096

	.text
	.code16
ap_start:
	cli
	xorw	%ax, %ax
	movw	%ax, %ds
	lgdtl	AT + ap_segments - ap_start
	movl	%cr0, %eax
	orl	$1, %eax
	movl	%eax, %cr0
	ljmpl	$CODE32, $AT + 1f - ap_start
	.code32
1:	movw	$DATA, %ax
	movw	%ax, %ds
	movw	%ax, %ss
	movl	%cr4, %eax
	orl	$0x20, %eax
	movl	%eax, %cr4
	movl	AT + ap_tables - ap_start, %eax
	movl	%eax, %cr3
	movl	$0xc0000080, %ecx
	rdmsr
	orl	$0x100, %eax
	wrmsr
	movl	%cr0, %eax
	orl	$0x80000000, %eax
	movl	%eax, %cr0
	ljmpl	$CODE64, $2f
	.balign	8
ap_segments:
	.word	0x37
	.long	segments
ap_tables:
	.long	0
ap_start_end:

	.balign	8
ap_start_bytes:
	.quad	ap_start_end - ap_start

	.code64
2:	movl	$1, %edi
	lock xaddl %edi, ap_count
	movl	%edi, %eax
	incl	%eax
	imull	$STACK, %eax
	leal	ap_stacks(%rax), %esp
	incl	%edi			# the first is number 1
	call	run_other_processor
3:	cli
	hlt
	jmp	3b

	.bss
	.balign	16
ap_count:
	.long	0
	.balign	16
ap_stacks:
	.space	8 * STACK
