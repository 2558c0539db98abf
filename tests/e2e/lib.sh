# shellcheck shell=bash
# For suites that talk to a real daemon with real VMs. Source after tests/support/tap.sh, in the repository's root.
#
# start_serve [OPTION…]   starts a daemon on a socket of its own and returns when its pool is full (1: it died)
# stop_serve              ends it as a service manager does; its exit status
# leftovers               names every process, cgroup, mount and file of it that is still there
BUILD=${BUILD:-build}
hostctl=$BUILD/host-ctl/host-ctl
scratch=$(mktemp -d /tmp/tinderbox-e2e.XXXXXX)
runtime=$scratch/run
export TINDERBOX_SOCKET=$runtime/host-ctl.sock
serve_pid=

# What the daemon is started with; a suite may change them before start_serve.
# A clone out of standby does not have --restore on its command line, by which suites tell clones from boots.
serve_standby=0
# Copies: the vmm's processes are known by its path, and nothing is read through the lab's network file system.
serve_vmm=$scratch/vmm
serve_kernel=$scratch/vmlinux
serve_initrd=$scratch/initramfs.cpio
serve_image=$scratch/base.erofs
serve_wait=300 # seconds for its pool to be full
serve_state=$scratch/state
cp "$BUILD/vmm/vmm" "$serve_vmm"
cp "$BUILD/kernel/vmlinux-up" "$serve_kernel"
cp "$BUILD/images/initramfs.cpio" "$BUILD/images/base.erofs" "$scratch/"
chmod 755 "$scratch"

e2e_cleanup() {
	[ -z "$serve_pid" ] || kill -KILL "$serve_pid" 2>/dev/null || true
	pkill -KILL -f "^$serve_vmm " 2>/dev/null || true
	rm -rf "$scratch"
}
trap e2e_cleanup EXIT

# Starts the daemon with fd 9 for the byte that it writes when its pool is full; does not wait. (Opened for both,
# because for writing alone it would wait for a reader.)
launch_serve() {
	rm -f "$scratch/ready"
	mkfifo "$scratch/ready"
	mkdir -p "$runtime"
	"$hostctl" serve --socket "$TINDERBOX_SOCKET" --runtime-dir "$runtime" --state-dir "$serve_state" --vmm "$serve_vmm" \
		--kernel "$serve_kernel" --initrd "$serve_initrd" --image "$serve_image" \
		--ready-fd 9 --standby "$serve_standby" "$@" 9<>"$scratch/ready" >>"$scratch/serve.log" 2>&1 &
	serve_pid=$!
}

start_serve() {
	local byte
	launch_serve "$@"
	# End of file, and so failure, when the daemon ends before it is ready.
	if ! IFS= read -r -d '' -n 1 -t "$serve_wait" byte <"$scratch/ready" || [ -z "$byte" ]; then
		echo "# the daemon did not become ready:"
		sed 's/^/# /' "$scratch/serve.log"
		return 1
	fi
}

stop_serve() {
	local status=0
	kill -TERM "$serve_pid"
	wait "$serve_pid" || status=$?
	serve_pid=
	return $status
}

leftovers() {
	pgrep -af "^$serve_vmm " | sed 's/^/process /'
	find /sys/fs/cgroup/tinderbox -mindepth 1 -type d 2>/dev/null | sed 's/^/cgroup /'
	grep -F "$scratch" /proc/mounts | sed 's/^/mount /'
	find "$runtime" -mindepth 1 2>/dev/null | sed 's/^/file /'
}

# One number of `host-ctl pool --json`.
pool_number() {
	"$hostctl" pool --json 2>/dev/null | grep -oE "\"$1\": ?[0-9]+" | grep -oE '[0-9]+$'
}

# Lines of a kernel's log (standard input: what dmesg prints) that match, as of grep -iE. No log is told too: where there is none
# nothing could be found.
complaints() { # PATTERN
	local log
	log=$(cat)
	grep -qE '^(<[0-9]+>)?\[ *[0-9]+\.[0-9]+\] ' <<<"$log" || echo "no kernel's log: ${log:0:200}"
	grep -iE "$1" <<<"$log"
}

# await SECONDS WHAT COMMAND…: for what has no event to wait for; fails with the name of WHAT.
await() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || {
			echo "# never came: $what"
			return 1
		}
		sleep 0.2
	done
}
