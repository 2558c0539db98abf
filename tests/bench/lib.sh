# shellcheck shell=bash
# For benchmarks of clones. Source in the repository's root.
#
# start_clones POOL MAX_VMS   starts a daemon whose base holds /bin/word and has run it once, and waits for POOL warm clones
. tests/e2e/lib.sh
serve_image=$scratch/bench.erofs
cp "$BUILD/bench/base.erofs" "$serve_image"
cp "$BUILD/bench/word" "$scratch/"

pool_is_warm() {
	[ "$(pool_number warm)" = "$1" ]
}
start_clones() {
	start_serve --pool 0 --max-vms "$2" || return 1
	# Once, so that its file is in the memory of each clone as the shell's is.
	"$hostctl" template build base --run /bin/word >"$scratch/build.log" 2>&1 || {
		sed 's/^/# /' "$scratch/build.log" >&2
		return 1
	}
	"$hostctl" pool --target "$1" >/dev/null
	await 600 "$1 warm clones" pool_is_warm "$1"
}
