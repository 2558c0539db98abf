# SPDX-License-Identifier: Apache-2.0
# Sleeps with interrupts off: nothing but the VMM ends it.
	.globl	_start
_start:	cli
	hlt
	jmp	_start
