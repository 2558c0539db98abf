# SPDX-License-Identifier: Apache-2.0
# Eight CPUs, each in another state for ever: 0 runs without exits, 1 is halted for good, 2 waits for an interrupt, 3 was
# never started, 4 exits for a port and 5 for a register without end, 6 was stopped by INIT, 7 writes to the serial line.
	.include "tests/machine/guests/guest.inc"
	.include "tests/machine/guests/smp.inc"
	.globl	_start
_start:
	map_devices
	take_interrupts 0x42, wrong
	read_cpus
	cmpl	$CPUS_MAX, %r15d
	jne	wrong
	prepare_cpus
	start_one 1
	start_one 2
	start_one 4
	start_one 5
	start_one 6
	movl	$0x77, %eax
	await_online
	movl	$LAPIC, %edx
	movl	$6 << 24, LAPIC_TARGET(%rdx)
	movl	$COMMAND_INIT, LAPIC_COMMAND(%rdx)
	start_one 7
	movl	$0xf7, %eax
	await_online
1:	jmp	1b
wrong:	fail

	cpus_code main
main:	cmpl	$1, %ebx
	je	halted
	cmpl	$2, %ebx
	je	waits
	cmpl	$4, %ebx
	je	ports
	cmpl	$5, %ebx
	je	registers
	cmpl	$7, %ebx
	je	writes
1:	jmp	1b
halted:	cli
	hlt
	jmp	halted
waits:	sti
	hlt
	jmp	waits
ports:	inb	$0x80, %al
	jmp	ports
registers:
	movl	$DEVICES, %eax
	movl	(%rax), %eax
	jmp	registers
writes:	movl	$0x3f8, %edx
	movb	$'7', %al
	outb	%al, %dx
	jmp	writes
