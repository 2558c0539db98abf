# shellcheck shell=bash disable=SC2034,SC2154  # the sourcing script uses and sets them
# Shared by the image builders: messages, checks of tools, a staging directory, delivery by rename.
# The sourcing script sets $program. All functions exit 1 with a message that says what to do.

readonly image_date=@0 # of every file in an image: the same inputs give the same bytes
unset SOURCE_DATE_EPOCH     # mkfs.erofs would lay inodes out by it

fail() { echo "$program: error: $*" >&2; exit 1; }

# need_tool COMMAND PACKAGE
need_tool() {
	command -v "$1" >/dev/null || fail "'$1' is not installed: run 'make deps' (Debian package $2)"
}

need_root() {
	[ "$(id -u)" -eq 0 ] || fail "images hold files of several owners and device nodes: run as root (or under fakeroot)"
}

# run COMMAND…: its own message goes on.
run() { "$@" || fail_step "'$1' failed (its message is above)"; }

# As fail, but a full disk is named as what it is.
fail_step() {
	local free
	free=$(df -Pm "$stage" | awk 'NR == 2 { print $4 }')
	[ "${free:-0}" -ge 8 ] || fail "the disk of $stage is full ($free MiB free): make room and run again"
	fail "$@"
}

# make_stage OUTPUT: $stage becomes a private directory beside it, removed at exit.
make_stage() {
	mkdir -p "$(dirname "$1")" || fail "cannot make $(dirname "$1"): check its permissions"
	stage=$(mktemp -d "$(dirname "$1")/.stage.XXXXXX") || fail "cannot write to $(dirname "$1"): check its permissions"
	trap 'rm -rf "$stage"' EXIT
	trap 'exit 130' INT TERM HUP
}

# deliver FILE OUTPUT: by rename, and not at all when nothing changed.
deliver() {
	if cmp -s "$1" "$2"; then echo "$program: $2 is up to date ($(stat -c %s "$2") bytes)"; return; fi
	run chmod 0644 "$1"
	run mv -f "$1" "$2"
	echo "$program: $2: $(stat -c %s "$2") bytes"
}
