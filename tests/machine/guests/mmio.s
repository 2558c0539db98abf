# SPDX-License-Identifier: Apache-2.0
# Reads and writes the device windows in every width, aligned and not, across their ends, and where nobody is;
# then the first device must still answer, and the machine must still power off.
	.include "tests/machine/guests/guest.inc"
	.globl	_start
_start:
	map_devices
	movabsq	$0xaaaaaaaaaaaaaaaa, %r8	# no panic, no power-off, no index that a ring has
	movl	$windows, %esi
window:	movl	(%rsi), %edx
	testl	%edx, %edx
	jz	done
	leaq	0x120(%rdx), %r9
next:	movb	(%rdx), %al
	movw	(%rdx), %ax
	movl	(%rdx), %eax
	movq	(%rdx), %rax
	movb	%r8b, (%rdx)
	movw	%r8w, (%rdx)
	movl	%r8d, (%rdx)
	movq	%r8, (%rdx)
	addq	$3, %rdx
	cmpq	%r9, %rdx
	jb	next
	addq	$4, %rsi
	jmp	window

done:	movl	$DEVICES, %edx
	cmpl	$0x74726976, (%rdx)		# "virt"
	jne	wrong
	cmpl	$2, 4(%rdx)
	jne	wrong
	movl	$DEVICES + 0x20000, %edx	# nobody
	cmpl	$0xffffffff, (%rdx)
	jne	wrong
	pass
wrong:	fail

	.data
	.balign	4
windows:
	.long	DEVICES, DEVICES + 0x0f80, DEVICES + 0x1f00, DEVICES + 0x20000
	.long	POWEROFF - 0x90, POWEROFF + 0xf80, PVPANIC - 0x90, IOAPIC - 0x90, IOAPIC, IOAPIC + 0xf80, 0
