# SPDX-License-Identifier: Apache-2.0
# Jumps to a device's registers, which KVM cannot run.
	.include "tests/machine/guests/guest.inc"
	.globl	_start
_start:	map_devices
	movl	$DEVICES, %eax
	jmp	*%rax
