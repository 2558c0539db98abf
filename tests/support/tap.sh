# shellcheck shell=bash
# For suites written in bash: `ok NAME`, `not_ok NAME [WHY]`, `is NAME GOT WANTED`, `check NAME COMMAND…`;
# `tap_end` at the end prints the plan and exits non-zero when anything failed.
tap_count=0
tap_failed=0

ok() {
	tap_count=$((tap_count + 1))
	printf 'ok %d - %s\n' "$tap_count" "$1"
}

not_ok() {
	tap_count=$((tap_count + 1))
	tap_failed=$((tap_failed + 1))
	printf 'not ok %d - %s\n' "$tap_count" "$1"
	[ -z "${2-}" ] || printf '%s\n' "$2" | sed 's/^/#   /'
}

is() {
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "got:    $2
wanted: $3"
	fi
}

# The command must succeed; its output is shown when it does not.
check() {
	local name=$1 output
	shift
	if output=$("$@" 2>&1); then
		ok "$name"
	else
		not_ok "$name" "$output"
	fi
}

tap_end() {
	printf '1..%d\n' "$tap_count"
	[ "$tap_failed" -eq 0 ]
	exit
}
