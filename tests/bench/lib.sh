# shellcheck shell=bash
# For benchmarks of clones. Source in the repository's root.
#
# take_options "NAME…" ARGUMENT…   of the script's arguments those of the form `--NAME N`, N from 1 to 99999, into variables of these
#                             names, and `--json FILE` into json
# start_clones POOL MAX_VMS [OPTION…]
#                             starts a daemon and waits for POOL warm clones of the template "word", which holds /bin/word and has run it
# prepare_boots, boot KIND    boots QEMU's microvm machine (qemu) or vmm (vmm); prints "boot_KIND NS", from exec to the first byte of
#                             guest-init's hello
# print_table NAME            the table of standard input by tests/bench/NAME.awk; all figures to the file $json. 1: a target is missed
. tests/e2e/lib.sh
serve_image=$scratch/bench.erofs
cp "$BUILD/bench/base.erofs" "$serve_image"
cp "$BUILD/bench/word" "$scratch/"

# In place of that for base.
pool_number() {
	"$hostctl" pool --template word --json 2>/dev/null | grep -oE "\"$1\": ?[0-9]+" | grep -oE '[0-9]+$'
}
pool_is_warm() {
	[ "$(pool_number warm)" = "$1" ]
}
set_target() {
	"$hostctl" pool --template word --target "$1" >"$scratch/target.log" 2>&1
}
start_clones() {
	start_serve --pool 0 --max-vms "$2" "${@:3}" || return 1
	# Once, so that its file is in the memory of each clone as the shell's is. A later daemon finds it made, and loads it.
	[ -d "$scratch/state/templates/word" ] || "$hostctl" template build word --run /bin/word >"$scratch/build.log" 2>&1 || {
		sed 's/^/# /' "$scratch/build.log" >&2
		return 1
	}
	await 120 "the template word" set_target "$1" || {
		cat "$scratch/target.log" >&2
		return 1
	}
	await 600 "$1 warm clones" pool_is_warm "$1"
}

readonly MEMORY_MIB=128 # of a guest
json=/dev/null
say() { echo "${0##*/}: $*" >&2; }
fail() { # WHY [FILE], whose lines tell more
	say "$1"
	[ -z "${2-}" ] || sed "s/^/${0##*/}: | /" "$2" >&2
	exit 1
}

take_options() {
	local names=" $1 "
	shift
	while [ $# -gt 0 ]; do
		if [ "$1" = --json ]; then
			json=${2:?}
		elif [[ $1 != --* ]] || [[ $names != *" ${1#--} "* ]]; then
			sed -n 's/^# Usage: /usage: /p' "$0" >&2
			exit 2
		elif [[ ${2-} =~ ^[1-9][0-9]{0,4}$ ]]; then
			printf -v "${1#--}" %s "$2"
		else
			say "$1 takes a number from 1 to 99999"
			exit 2
		fi
		shift 2
	done
}

prepare_boots() {
	modprobe vhost_vsock 2>/dev/null || true
	[ -c /dev/vhost-vsock ] || fail "there is no /dev/vhost-vsock: load the module vhost_vsock"
	cp "$BUILD/bench/hello_time" "$scratch/"
}
boot_options="quiet reboot=t panic=-1"
boot_qemu() {
	"$scratch/hello_time" vsock qemu-system-x86_64 -M microvm,accel=kvm,pit=off,pic=off,rtc=off,isa-serial=off,acpi=off,auto-kernel-cmdline=on \
		-cpu host -m $MEMORY_MIB -nodefaults -no-user-config -display none -no-reboot -global virtio-mmio.force-legacy=false \
		-kernel "$serve_kernel" -initrd "$serve_initrd" -append "$boot_options" \
		-drive "id=base,file=$serve_image,format=raw,if=none,readonly=on" -device virtio-blk-device,drive=base \
		-device vhost-vsock-device,guest-cid=777 -device virtio-rng-device 2>"$scratch/log"
}
boot_vmm() {
	"$scratch/hello_time" "unix:$scratch/vsock_1024" "$serve_vmm" --kernel "$serve_kernel" --initrd "$serve_initrd" --mem ${MEMORY_MIB}M \
		--disk "$serve_image,ro" --vsock "$scratch/vsock" --serial none --cmdline "$boot_options" 2>"$scratch/log"
}
boot() {
	local ns
	rm -f "$scratch"/vsock*
	ns=$("boot_$1") || fail "$1's boot failed:" "$scratch/log"
	echo "boot_$1 $ns"
}

print_table() {
	awk -v json="$json" -v cpu="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *//' | head -n 1)" \
		-v kernel="$(uname -r)" -v qemu="$(qemu-system-x86_64 --version | sed -n '1s/.*version //p')" -f tests/bench/table.awk -f "tests/bench/$1.awk"
}
