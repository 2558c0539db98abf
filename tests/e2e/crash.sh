# shellcheck shell=bash
# shellcheck disable=SC2154 # what tests/e2e/lib.sh has set
# Sandboxes whose files are written, and which are suspended, woken and forked, by chance, until something ends that; and what has to be
# there after. Source after tests/e2e/lib.sh. There are two: `memory` has its files in memory, `disk` on a disk.
#
# What is asked and what is answered is noted in the file $crash_log, a line each, which is all that is known of them:
#
#   made SANDBOX ID              it is new, and has no files
#   memory SANDBOX SUM           its memory holds a file of that checksum, from now on
#   cleared SANDBOX              its files are removed
#   settled SANDBOX STATE        it was looked at: nothing else is under way
#   begin SANDBOX OPERATION      asked; then one of the next two, or neither, if the client was ended as well
#   done SANDBOX OPERATION [FILE SUM]      answered: of `write`, the file is synced
#   failed SANDBOX OPERATION     it may have come about or not
#   child SANDBOX ID             a fork of it has answered with that child; told before `done` or `failed`
#   childless SANDBOX            all children of it were looked at and removed
#
# A child has what was acknowledged of its parent before the fork was asked for. One that nobody was told of is there with all of that,
# or not at all.
#
# Another operation on one sandbox is a function crash_do_NAME, its name in crash_when_ready or crash_when_suspended, and, if the
# sandbox may be in another state after it, a line in crash_states.
crash_log=$scratch/crash.log
exec {crash_out}>&1
crash_tell=       # if set, each line is told on standard output as well, after the word "log"
crash_goes_on=    # if set, what fails does not end the work
crash_round=0     # makes the names of files new
crash_when_ready=(write write suspend fork)
crash_when_suspended=(wake)
readonly CRASH_SANDBOXES="memory disk" CRASH_DISK_MIB=64 CRASH_FILE_MAX=400000 CRASH_MEMORY_BYTES=3000000
readonly CRASH_FILES_MAX=50 # then they are removed, once they were looked at
readonly CRASH_CHILDREN_MAX=2 # of a sandbox, until they were looked at

crash_note() {
	echo "$*" >>"$crash_log"
	[ -n "$crash_tell" ] || return 0
	echo "log $*" >&"$crash_out"
	# What begins is to be known outside before it does.
	[ "$1" != begin ] || sleep 0.1
}
in_it() { # SANDBOX LINE
	timeout 60 "$hostctl" exec "$1" -- sh -c "$2"
}
crash_id() { # SANDBOX
	awk -v who="$1" '$1 == "made" && $2 == who { id = $3 } END { print id }' "$crash_log"
}
crash_state() { # SANDBOX, or the id of a child
	local id
	id=$(crash_id "$1")
	"$hostctl" ls --json 2>/dev/null | tr -d ' \n' | grep -oE "\"id\":\"${id:-$1}\",\"state\":\"[a-z]+\"" | grep -oE '[a-z]+"$' | tr -d '"'
}
crash_is_settled() { # SANDBOX, or the id of a child
	[[ $(crash_state "$1") != *ing ]]
}
crash_settled() { # SANDBOX: its state, when it is on no way any more
	await 60 "the end of what is under way in $1" crash_is_settled "$1" >&2
	crash_state "$1"
}

# A process counts and a file is kept where no disk is.
crash_fill_memory() { # SANDBOX
	local sum
	sum=$(in_it "$1" "head -c $CRASH_MEMORY_BYTES /dev/urandom >/run/bulk && sha256sum </run/bulk") || return 1
	crash_note memory "$1" "${sum%% *}"
}
crash_make() { # SANDBOX
	local id
	id=$("$hostctl" create --name "$1" --template "$([ "$1" = disk ] && echo disk || echo base)") || return 1
	crash_note made "$1" "$id"
	crash_fill_memory "$1" && crash_note settled "$1" ready
}
crash_make_all() {
	local sandbox
	timeout 200 "$hostctl" template build disk --disk ${CRASH_DISK_MIB}M >"$scratch/build.log" 2>&1 || {
		sed 's/^/# /' "$scratch/build.log"
		return 1
	}
	for sandbox in $CRASH_SANDBOXES; do
		crash_make "$sandbox" || return 1
	done
}

# --- the work ---
# Each sets `answer`, what is noted with `done`, and fails with the operation.
crash_do_write() { # SANDBOX NUMBER
	local name=/root/f$crash_round.$2 bytes=$((1 + (RANDOM * 32768 + RANDOM) % CRASH_FILE_MAX)) sum
	# The status is dd's, which is that of fsync as well.
	sum=$(in_it "$1" "head -c $bytes /dev/urandom | dd of=$name conv=fsync 2>/dev/null && sha256sum <$name" 2>/dev/null) || return 1
	answer="$name ${sum%% *}"
}
crash_do_suspend() {
	timeout 120 "$hostctl" suspend "$1" >/dev/null 2>&1
}
crash_do_wake() {
	timeout 120 "$hostctl" wake "$1" >/dev/null 2>&1
}
# Whoever is told of a child by its id has it, whatever becomes of the others.
crash_do_fork() { # SANDBOX NUMBER
	local count=$((1 + RANDOM % CRASH_CHILDREN_MAX)) left ids id status=0
	left=$((CRASH_CHILDREN_MAX - $(crash_children "$1" | wc -l)))
	[ $left -gt 0 ] || return 0
	[ $count -le $left ] || count=$left
	ids=$(timeout 120 "$hostctl" fork --count $count --name "$1-c$crash_round.$2" "$1" 2>/dev/null) || status=1
	for id in $ids; do crash_note child "$1" "$id"; done
	return $status
}
# crash_work SANDBOX SEED: one operation after the other until there is $scratch/enough, or one fails. The sandbox is ready.
crash_work() {
	local sandbox=$1 state=ready number=0 operation answer
	RANDOM=$2
	while [ ! -e "$scratch/enough" ]; do
		case $state in
		ready) operation=${crash_when_ready[RANDOM % ${#crash_when_ready[@]}]} ;;
		suspended) operation=${crash_when_suspended[RANDOM % ${#crash_when_suspended[@]}]} ;;
		*) return 0 ;;
		esac
		number=$((number + 1)) answer=
		crash_note begin "$sandbox" "$operation"
		if "crash_do_$operation" "$sandbox" $number; then
			crash_note "done" "$sandbox" "$operation" "$answer"
			case $operation in
			suspend) state=suspended ;;
			wake) state=ready ;;
			esac
		else
			crash_note failed "$sandbox" "$operation"
			[ -n "$crash_goes_on" ] || return 0
			state=$(crash_settled "$sandbox")
			crash_note settled "$sandbox" "$state"
		fi
	done
}
crash_begin_work() { # SEED
	local sandbox
	crash_workers=()
	rm -f "$scratch/enough"
	crash_round=$((crash_round + 1))
	for sandbox in $CRASH_SANDBOXES; do
		crash_work "$sandbox" $(($1 + crash_round * 7 + ${#crash_workers[@]})) &
		crash_workers+=($!)
	done
}
crash_end_work() {
	touch "$scratch/enough"
	wait "${crash_workers[@]}"
}

# --- what has to be there ---
# crash_states SANDBOX HOW [KILLED]: in which states it may be; HOW it ended: daemon, vmm (that of the sandbox KILLED), power, or full: nothing did
crash_states() {
	awk -v who="$1" -v how="$2" -v killed="${3-}" '
		$2 != who { next }
		$1 == "settled" { state = $3; pending = "" }
		$1 == "begin" { pending = $3 }
		$1 == "done" { pending = ""; if ($3 == "suspend") state = "suspended"; if ($3 == "wake") state = "ready" }
		END {
			may[state]
			if (pending == "suspend" || pending == "wake") { may["ready"]; may["suspended"] }
			if (pending == "suspend" && how == "daemon") may["paused"]
			lost = who == "disk" ? "stopped" : "failed"
			if (how == "vmm" && who == killed) may[lost]
			if (how == "power" && "ready" in may) { delete may["ready"]; may[lost] }
			for (state in may) print state
		}' "$crash_log"
}
crash_files() { # SANDBOX [LINES]: `SUM FILE` of all that are acknowledged, in so many lines
	awk -v who="$1" -v lines="${2-}" 'lines && NR > lines { exit } $2 != who { next } $1 == "made" || $1 == "cleared" { n = 0 }
		$1 == "done" && $3 == "write" { line[++n] = $5 " " $4 }
		END { for (i = 1; i <= n; i++) print line[i] }' "$crash_log"
}
crash_memory() { # SANDBOX [LINES]
	awk -v who="$1" -v lines="${2-}" 'lines && NR > lines { exit } $1 == "memory" && $2 == who { sum = $3 } END { print sum }' "$crash_log"
}
crash_children() { # SANDBOX: the ids of those that are acknowledged, and were not looked at yet
	awk -v who="$1" '$2 != who { next } $1 == "childless" { n = 0 } $1 == "child" { id[++n] = $3 } END { for (i = 1; i <= n; i++) print id[i] }' "$crash_log"
}
crash_children_there() { # SANDBOX: the ids of all of its children
	"$hostctl" ls --json 2>/dev/null | tr -d ' \n' | grep -oE '"(name|id)":"[^"]*"' | tr -d '"' |
		awk -F: -v start="$1-c" '$1 == "name" { name = $2 } $1 == "id" { if (index(name, start) == 1) print $2; name = "" }'
}
crash_forked_at() { # SANDBOX ID: the line in which the fork was asked for that this is a child of; of one that nobody knows, the last one
	awk -v who="$1" -v id="$2" '$2 != who { next } $1 == "begin" && $3 == "fork" { at = NR } $1 == "child" && $3 == id { exit } END { print at + 0 }' "$crash_log"
}
# Names every file in the state folder that should not be there.
crash_strange() {
	local path sandbox id names
	declare -A of=()
	for sandbox in $CRASH_SANDBOXES; do
		for id in "$(crash_id "$sandbox")" $(crash_children_there "$sandbox"); do
			names=" memory image saved.json "
			[ "$sandbox" = memory ] || names+="upper lower boot.json "
			[ "$(crash_state "$id")" != suspended ] || names+="state pages "
			of[$id]=$names
		done
	done
	(cd "$serve_state" && find . -mindepth 1 -printf '%P\n') | while IFS= read -r path; do
		case $path in
		journal.db | journal.db-wal | templates | images | images/names | sandboxes) continue ;;
		templates/*)
			[[ ! $path =~ ^templates/(base|disk)(/(template.json|state|memory|working-set))?$ && $path != templates/disk/disk ]] || continue
			;;
		sandboxes/*)
			id=${path#sandboxes/}
			[[ -z ${of[${id%%/*}]-} ]] || [[ $id == */* && ${of[${id%%/*}]} != *" ${id#*/} "* ]] || continue
			;;
		esac
		echo "$path"
	done
}
# What there is of VMs: processes, cgroups, sockets.
crash_census_is() {
	local processes cgroups
	processes=$(pgrep -fc "^$serve_vmm ")
	cgroups=$(find /sys/fs/cgroup/tinderbox -mindepth 1 -type d | wc -l)
	[ "$processes $cgroups $(find "$runtime" -type s ! -name host-ctl.sock | wc -l)" = "$1" ]
}

# Its files and its memory, whatever has become of it; it is ready after.
crash_look_at() { # NAME SANDBOX STATE HOW
	local wanted told='^$'
	# Where the host's disk was full ext4 notes so in its superblock, and tells of it at each mount from then on.
	[ "$4" != full ] || told='recorded from previous mount|mounting fs with errors'
	check "$1: $2, $3, wakes" timeout 120 "$hostctl" wake "$2"
	wanted=$(crash_files "$2")
	is "$1: $2 has all files that are acknowledged" \
		"$([ -z "$wanted" ] || in_it "$2" "cd /root && sha256sum $(awk '{ printf "%s ", $2 }' <<<"$wanted")" 2>&1 | tr -s ' ')" "$wanted"
	if [ "$3" != stopped ]; then
		is "$1: $2 has its memory" "$(in_it "$2" 'sha256sum </run/bulk' 2>&1 | cut -d ' ' -f 1)" "$(crash_memory "$2")"
	else
		check "$1: $2 has memory again" crash_fill_memory "$2"
	fi
	if [ "$(wc -l <<<"$wanted")" -gt $CRASH_FILES_MAX ] && in_it "$2" 'rm /root/f*'; then crash_note cleared "$2"; fi
	is "$1: $2 has a sound file system" "$(in_it "$2" dmesg 2>&1 | complaints 'ext4.*(error|corrupt)|oops' | grep -vE "$told")" ""
}
# Whole, or, without a disk and with its VM lost, nothing: then it is told so.
crash_look_at_child() { # NAME SANDBOX ID HOW
	local state wanted at may=ready complaints='ext4.*(error|corrupt)|oops'
	[ "$4" != power ] || may=$([ "$2" = disk ] && echo stopped || echo failed)
	state=$(crash_settled "$3")
	is "$1: child $3 of $2 is what it may be" "$state" "$may"
	[ "$state" != failed ] || return 0
	at=$(crash_forked_at "$2" "$3")
	wanted=$(crash_files "$2" "$at")
	check "$1: child $3 of $2 wakes" timeout 120 "$hostctl" wake "$3"
	is "$1: child $3 of $2 has the files that it was to have" \
		"$([ -z "$wanted" ] || in_it "$3" "cd /root && sha256sum $(awk '{ printf "%s ", $2 }' <<<"$wanted")" 2>&1 | tr -s ' ')" "$wanted"
	[ "$state" = stopped ] ||
		is "$1: child $3 of $2 has the memory" "$(in_it "$3" 'sha256sum </run/bulk' 2>&1 | cut -d ' ' -f 1)" "$(crash_memory "$2" "$at")"
	# Where the host's disk was full, what could not be written is told.
	[ "$4" != full ] || complaints='ext4.*corrupt|oops'
	check "$1: child $3 of $2 has a sound file system" test -z "$(in_it "$3" "dmesg 2>/dev/null | grep -iE '$complaints'")"
}
crash_verify_children() { # NAME HOW
	local sandbox id there acknowledged
	for sandbox in $CRASH_SANDBOXES; do
		there=$(crash_children_there "$sandbox") acknowledged=$(crash_children "$sandbox")
		is "$1: each child of $sandbox that was told of is there" "$(comm -23 <(sort <<<"$acknowledged") <(sort <<<"$there"))" ""
		for id in $there; do
			crash_look_at_child "$1" "$sandbox" "$id" "$2"
			check "$1: child $id of $sandbox is removed" timeout 60 "$hostctl" rm "$id"
		done
		crash_note childless "$sandbox"
	done
}
# crash_verify NAME HOW [KILLED]: results of both, as of crash_states. After it both are ready.
crash_verify() {
	local sandbox state may
	for sandbox in $CRASH_SANDBOXES; do
		may=$(crash_states "$sandbox" "$2" "${3-}" | sort | paste -sd ' ')
		state=$(crash_settled "$sandbox")
		echo "# $1: $sandbox is $state, may be $may; $(crash_files "$sandbox" | grep -c .) files"
		check "$1: $sandbox is what it may be" grep -qxF "$state" <(tr ' ' '\n' <<<"$may")
	done
	is "$1: nothing half made is in the state folder" "$(crash_strange)" ""
	crash_verify_children "$1" "$2"
	for sandbox in $CRASH_SANDBOXES; do
		state=$(crash_state "$sandbox")
		if [ "$state" = failed ]; then
			check "$1: $sandbox, failed, is removed" timeout 60 "$hostctl" rm "$sandbox"
			check "$1: and made anew" crash_make "$sandbox"
		else
			crash_look_at "$1" "$sandbox" "$state" "$2"
			crash_note settled "$sandbox" "$(crash_settled "$sandbox")"
		fi
	done
	is "$1: nor when they are ready" "$(crash_strange)" ""
	check "$1: three VMs are there, the pool's and theirs, and nothing of others" await 60 "3 3 3" crash_census_is "3 3 3"
}
