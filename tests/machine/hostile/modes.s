# SPDX-License-Identifier: Apache-2.0
# From long mode down to real mode, and an end that only real mode can bring about.
	.globl	enter_compatibility, enter_real
	.set	CODE32, 0x30
	.set	DATA, 0x18
	.set	CODE16, 0x38
	.set	DATA16, 0x40
	.set	REAL, 0x7000		# where the 16-bit code is copied to

	.text
# 32-bit code under long mode's page tables; an endless loop of its own.
enter_compatibility:
	pushq	$CODE32
	pushq	$1f
	lretq
	.code32
1:	movl	$0x80, %edx
	inb	%dx, %al
	jmp	1b

# Paging off, protection off, then reset by port 0x64.
	.code64
enter_real:
	movl	$real_code, %esi
	movl	$REAL, %edi
	movl	$real_end - real_code, %ecx
	rep movsb
	pushq	$CODE32
	pushq	$2f
	lretq
	.code32
2:	movl	%cr0, %eax
	andl	$0x7fffffff, %eax
	movl	%eax, %cr0
	movl	$0xc0000080, %ecx
	rdmsr
	andl	$~0x100, %eax
	wrmsr
	ljmp	$CODE16, $REAL
	.code16
real_code:
	movw	$DATA16, %ax
	movw	%ax, %ds
	movw	%ax, %es
	movw	%ax, %ss
	movl	%cr0, %eax
	andl	$0xfffffffe, %eax
	movl	%eax, %cr0
	ljmp	$0, $REAL + 3f - real_code
3:	xorw	%ax, %ax
	movw	%ax, %ds
	movw	%ax, %ss
	movw	$0x6000, %sp
	pushw	%ax
	popw	%bx
	movw	$0x64, %dx
	movb	$0xfe, %al
	outb	%al, %dx
4:	hlt
	jmp	4b
real_end:
