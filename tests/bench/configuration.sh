# shellcheck shell=bash
# What is measured, as words: `MACHINE [KEY=VALUE]… [OPTION…] [-- WORD…]`.
#
#   vmm       a cold boot, to the agent's hello        restore   the same of a guest that was saved at its hello
#   qemu      the same by QEMU's microvm machine       warm      a request to a warm VM, to the first byte of output
#                                                      spawn     posix_spawn of the same program on this host
#   kernel=   up, smp, foreign or a file (up)          initrd=   image=   program=   mem=128M
#   OPTION    more options of vmm (at a restore: of that, not of the boot before it), of qemu, or of host-ctl serve (warm)
#   WORD      more of the kernel's command line
#
# read_configuration INDEX TEXT   into machine[INDEX], kernel[INDEX], …; options[INDEX] and words[INDEX] have spaces between. 2: it is none
BUILD=${BUILD:-build}
declare -a machine kernel initrd image program memory options words

read_configuration() {
	local i=$1 word after=
	read -r -a word_list <<<"$2"
	machine[i]=${word_list[0]-}
	kernel[i]=$BUILD/kernel/vmlinux-up
	initrd[i]=$BUILD/images/initramfs.cpio
	image[i]=$BUILD/images/base.erofs
	program[i]=$BUILD/vmm/vmm
	memory[i]=128M options[i]='' words[i]=''
	case ${machine[i]} in
	vmm | restore | warm | spawn) ;;
	qemu) program[i]=qemu-system-x86_64 ;;
	*)
		echo "a configuration begins with vmm, restore, qemu, warm or spawn, not with '${machine[i]}'" >&2
		return 2
		;;
	esac
	for word in "${word_list[@]:1}"; do
		case $after$word in
		--) after=-- ;;
		kernel=up | kernel=smp | kernel=foreign) kernel[i]=$BUILD/kernel/vmlinux-${word#kernel=} ;;
		kernel=*) kernel[i]=${word#kernel=} ;;
		initrd=*) initrd[i]=${word#initrd=} ;;
		image=*) image[i]=${word#image=} ;;
		program=*) program[i]=${word#program=} ;;
		mem=*) memory[i]=${word#mem=} ;;
		*) if [ -n "$after" ]; then words[i]+=" $word"; else options[i]+=" $word"; fi ;;
		esac
	done
}
