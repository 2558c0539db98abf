# SPDX-License-Identifier: Apache-2.0
# Writes every byte of memory, each page with a word of its own, and only then reads every byte back. The 2 MiB
# that the guest itself lies in come last: it is copied to a tested place and runs on there. Behind the end of
# memory nobody may answer. Says on the serial line how many bytes it found, in hex, and powers off.
	.include "tests/machine/guests/guest.inc"
	.set	BLOCK, 0x200000			# a large page; the guest's own is the first
	.set	COPY, 2 * BLOCK
	.set	GIBS, 16			# addresses that are mapped
	.set	RANGES, 8
	.set	E820_COUNT, 0x1e8		# in boot_params, which rsi points to
	.set	E820_TABLE, 0x2d0
	.set	E820_RAM, 1
	.set	LOW_END, 0x100000		# below is no usable range but the first
	.set	SERIAL, 0x3f8

	.globl	_start
_start:	movl	$stack_end, %esp
	call	save_ranges
	call	map_all

	leaq	fill_page(%rip), %r15
	call	each_page
	leaq	check_page(%rip), %r15
	call	each_page
	call	check_ends

	# the guest's own block: [0, BLOCK) and the copy change places
	xorl	%esi, %esi
	movl	$COPY, %edi
	movl	$BLOCK / 8, %ecx
	rep movsq
	addq	$COPY, top + COPY
	movl	$GIBS, %ecx
	movl	$directories + COPY, %edi
1:	addq	$COPY, -8(%rdi,%rcx,8)
	decl	%ecx
	jnz	1b
	movq	$COPY + 0x83, pages + COPY
	movq	$0x83, pages + COPY + 8 * COPY / BLOCK
	movl	$top + COPY, %eax
	movq	%rax, %cr3
	movl	$1, own(%rip)
	leaq	fill_page(%rip), %r15
	call	each_page
	leaq	check_page(%rip), %r15
	call	each_page

	call	print_total
	pass
wrong:	fail

# Keeps what boot_params say of usable memory, which is going to be overwritten.
save_ranges:
	movzbl	E820_COUNT(%rsi), %ecx
	addq	$E820_TABLE, %rsi
	movl	$ranges, %edi
1:	decl	%ecx
	js	2f
	movq	(%rsi), %rax			# start
	movq	8(%rsi), %rdx			# length, then end
	cmpl	$E820_RAM, 16(%rsi)
	jne	3f
	cmpl	$ranges + 16 * RANGES, %edi
	jae	wrong
	addq	%rdx, total
	addq	%rax, %rdx
	movq	%rax, (%rdi)
	movq	%rdx, 8(%rdi)
	addl	$16, %edi
3:	addq	$20, %rsi
	jmp	1b
2:	ret

# Maps GIBS GiB to themselves by large pages.
map_all:
	movl	$directories + 3, top
	movl	$pages + 3, %eax
	xorl	%ecx, %ecx
1:	movq	%rax, directories(,%rcx,8)
	addl	$4096, %eax
	incl	%ecx
	cmpl	$GIBS, %ecx
	jne	1b
	movl	$0x83, %eax
	xorl	%ecx, %ecx
1:	movq	%rax, pages(,%rcx,8)
	addq	$BLOCK, %rax
	incl	%ecx
	cmpl	$512 * GIBS, %ecx
	jne	1b
	movl	$top, %eax
	movq	%rax, %cr3
	ret

# Calls r15 with each page of memory in rdi: of the guest's own block if that has moved, else of all others.
each_page:
	movl	$ranges, %r14d
range:	movq	(%r14), %rdi
	movq	8(%r14), %r13
	testq	%r13, %r13
	jz	done
	cmpl	$0, own(%rip)
	jne	2f
	cmpq	$BLOCK, %rdi
	jae	4f
	movl	$BLOCK, %edi
	jmp	4f
2:	cmpq	$BLOCK, %r13
	jbe	3f
	movl	$BLOCK, %r13d
3:	addq	$COPY, %rdi			# where it is mapped now
	addq	$COPY, %r13
4:	cmpq	%r13, %rdi
	jae	next
	call	*%r15
	jmp	4b
next:	addl	$16, %r14d
	jmp	range
done:	ret

# The word of the page at rdi, in rax. No two pages have the same.
	.macro page_word
	movabsq	$0x9e3779b97f4a7c15, %rax
	imulq	%rdi, %rax
	xorq	%rdi, %rax
	.endm

# Both move rdi to the next page.
fill_page:
	page_word
	movl	$512, %ecx
	rep stosq
	ret
check_page:
	page_word
	leaq	4096(%rdi), %rdx
1:	xorl	%ebx, %ebx
	.set	offset, 0
	.rept	16
	movq	offset(%rdi), %rcx
	xorq	%rax, %rcx
	orq	%rcx, %rbx
	.set	offset, offset + 8
	.endr
	testq	%rbx, %rbx
	jnz	wrong
	addq	$128, %rdi
	cmpq	%rdx, %rdi
	jne	1b
	ret

# Behind each range but the first nobody is: all ones.
check_ends:
	movl	$ranges, %r14d
1:	movq	8(%r14), %rdi
	testq	%rdi, %rdi
	jz	3f
	cmpq	$LOW_END, %rdi
	jb	2f
	cmpl	$-1, (%rdi)
	jne	wrong
2:	addl	$16, %r14d
	jmp	1b
3:	ret

print_total:
	movq	total(%rip), %rbx
	movl	$16, %ecx
	movl	$SERIAL, %edx
1:	rolq	$4, %rbx
	movl	%ebx, %eax
	andl	$15, %eax
	movb	digits(%rax), %al
	outb	%al, %dx
	decl	%ecx
	jnz	1b
	ret

	.data
digits:	.ascii	"0123456789abcdef"
	.bss
	.balign	4096
top:	.space	4096
directories:
	.space	4096
pages:	.space	4096 * GIBS
	.balign	16
ranges:	.space	16 * (RANGES + 1)
total:	.space	8
own:	.space	4
	.balign	16
	.space	256
stack_end:
