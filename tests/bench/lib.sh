# shellcheck shell=bash
# For benchmarks of clones. Source in the repository's root.
#
# start_clones POOL MAX_VMS   starts a daemon and waits for POOL warm clones of the template "word", which holds /bin/word and has run it
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
	start_serve --pool 0 --max-vms "$2" || return 1
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
