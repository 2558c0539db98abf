# SPDX-License-Identifier: Apache-2.0
# Where the hostile guest starts, its descriptor tables, and the ways into and out of exceptions.
	.set	VECTORS, 256
	.globl	_start, probe, load_tables, trap_stubs, task_descriptor, task_state, segments

	.text
_start:	movl	$stack_end, %esp
	movq	%rsi, %rdi
	call	hostile_main
1:	cli
	hlt
	jmp	1b

load_tables:
	lgdt	table_of_segments
	movl	$0x20, %eax
	ltr	%ax
	ret

# unsigned probe(function, a, b, c)
probe:	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	pushfq
	movq	%rsp, probe_stack
	movq	%rdi, %rax
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	call	*%rax
	xorl	%eax, %eax
probe_out:
	movq	$0, probe_stack
	popfq
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	ret

# One stub for each vector. Behind each: the error code (0 where the processor has none), the vector.
	.balign	16
trap_stubs:
	.set	vector, 0
	.rept	VECTORS
	.balign	16
	.if	vector != 8 && (vector < 10 || vector > 14) && vector != 17 && vector != 21 && vector != 29 && vector != 30
	pushq	$0
	.endif
	pushq	$vector
	jmp	trap
	.set	vector, vector + 1
	.endr

trap:	cld
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	movq	72(%rsp), %rdi		# the vector
	movq	88(%rsp), %rsi		# where it happened
	movq	probe_stack, %rdx
	call	handle_trap		# true: give the probe up
	testb	%al, %al
	jnz	1f
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%rax
	addq	$16, %rsp
	iretq
1:	movl	72(%rsp), %eax
	incl	%eax
	movq	probe_stack, %rsp
	jmp	probe_out

	.data
	.balign	8
segments:
	.quad	0, 0
	.quad	0x00af9b000000ffff	# 0x10: 64-bit code
	.quad	0x00cf93000000ffff	# 0x18: data
task_descriptor:
	.quad	0, 0			# 0x20
	.quad	0x00cf9b000000ffff	# 0x30: 32-bit code
	.quad	0x00009b000000ffff	# 0x38: 16-bit code
	.quad	0x000093000000ffff	# 0x40: 16-bit data
segments_end:
table_of_segments:
	.word	segments_end - segments - 1
	.quad	segments

	.bss
	.balign	16
task_state:
	.space	104
probe_stack:
	.space	8
	.balign	4096
	.space	32768
stack_end:
