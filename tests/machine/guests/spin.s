# SPDX-License-Identifier: Apache-2.0
# Never exits by itself.
	.globl	_start
_start:	jmp	_start
