# shellcheck shell=bash
# Kernels of a few instructions, made here byte by byte: no compiler, no Linux.
#
# elf CLASS MEMORY-SIZE [HEX]: an ELF file of one segment at 1 MiB that takes MEMORY-SIZE bytes; its code is HEX
# (in 64-bit mode, interrupts off, memory mapped to itself), filled up to TINY_CODE bytes with hlt.
readonly TINY_CODE=128

# le BYTES NUMBER: little-endian hex.
le() {
	local i
	for ((i = 0; i < $1; i++)); do
		printf '%02x' $((($2 >> (8 * i)) & 255))
	done
}

# The bytes that the hex digits of all arguments say.
bytes() {
	local hex=$* escapes='' i
	hex=${hex//[[:space:]]/}
	for ((i = 0; i < ${#hex}; i += 2)); do escapes+="\\x${hex:i:2}"; done
	# shellcheck disable=SC2059 # the escapes are the bytes
	printf "$escapes"
}

elf() {
	local code=${3-}
	code=${code//[[:space:]]/}
	while [ ${#code} -lt $((2 * TINY_CODE)) ]; do code+=f4; done
	# ELF header: executable for x86-64, entry 1 MiB, one program header behind it
	bytes "7f454c46 $(le 1 "$1") 0101 $(le 9 0) $(le 2 2) $(le 2 62) $(le 4 1) $(le 8 0x100000) $(le 8 64) $(le 8 0)" \
		"$(le 4 0) $(le 2 64) $(le 2 56) $(le 2 1) $(le 6 0)"
	# program header: load, readable and executable
	bytes "$(le 4 1) $(le 4 5) $(le 8 120) $(le 8 0x100000) $(le 8 0x100000) $(le 8 $TINY_CODE) $(le 8 "$2") $(le 8 0)"
	bytes "$code"
}

# Code for guests. The names are read by those who source this file.
# shellcheck disable=SC2034
{
	# A 2 MiB page at 0xd0000000, where the devices are; rbx = 0xd0100000, the power register.
	code_map="48c704251840000003002000 b8830000d0 4889042500042000 bb000010d0"
	code_poweroff="c703ff000000"              # movl $0xff, (%rbx)
	code_poweroff_wrong="c70301000000 c603ff c74304ff000000" # another value, another width, another offset
	code_panic="c6830010000001"               # movb $1, 0x1000(%rbx)
	code_panic_wrong="c6830010000004 66c7830010000001 00" # an unknown event, another width
	code_reset="b0fe e664"                    # movb $0xfe, %al; outb %al, $0x64
	code_reset_wrong="b0fd e664 66b8fe00 66e764" # another value, another width
	code_unknown="db3b"                       # fstpt (%rbx): KVM does not emulate x87
	code_triple="0f0b"                        # ud2, and there is no handler
	code_hi="66baf803 b068 ee b069 ee"        # "hi" to the serial port
	code_stray="e470 e7cf 8b8300200000 48898300800000" # ports and registers that nobody has
	code_idle="f4 ebfd"                       # hlt, for ever
	code_spin="ebfe"
}
