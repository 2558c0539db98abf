# SPDX-License-Identifier: Apache-2.0
# Halts with interrupts off, for good: whoever lets it go on without a cause finds out.
	.include "tests/machine/guests/guest.inc"
	.globl	_start
_start:
	map_devices
	inb	$0x80, %al
	cli
	hlt
	fail
