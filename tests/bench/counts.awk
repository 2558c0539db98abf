# What one warm request cost, from the trace of it (tests/bench/counts): "name count", a line each.
# Variables: daemon, its threads; vmm, its first thread (the loop; every other is a vCPU); memory, bytes of the guest's; show, a file.

BEGIN {
	n = split(daemon, list, " ")
	for (i = 1; i <= n; i++) is_daemon[list[i]] = 1
	kick = "^kvm_(mmio: mmio write len 4 gpa 0x[0-9a-f]*050 val 0x1$|fast_mmio)" # the transmit queue's QueueNotify
}
/^#/ { next }
# "name-TID [CPU] flags time: event: words", where the name may hold spaces and dashes.
{
	if (!match($0, /-[0-9]+ +\[[0-9]+\] [^ ]+ +[0-9.]+: /)) next
	split(substr($0, RSTART + 1, RLENGTH), head, " ")
	tid = head[1]
	time = head[4]
	what = substr($0, RSTART + RLENGTH)
	count++
	text[count] = what
	at[count] = time + 0
	side[count] = tid in is_daemon ? "daemon" : tid == vmm ? "vmm" : "vcpu"
	if (what ~ /^tracing_mark_write: /) {
		side[count] = "client"
		if (what ~ /: request$/) first = count
		if (what ~ /: first byte$/ && !last) last = count
	}
}
# The last event of `who` before `end` that matches.
function find(who, end, pattern,   i) {
	for (i = end; i > first; i--)
		if (side[i] == who && text[i] ~ pattern) return i
	print "counts: no " pattern " of " who " before the first byte" >"/dev/stderr"
	failed = 1
	exit 1
}
function add(name, number) { if (!(name in counts)) order[++names] = name; counts[name] += number }
# Name and arguments of a call that begins.
function begins(what) { return what ~ /^sys_[a-z0-9_]+\(/ }
function call(what) { sub(/^sys_/, "", what); sub(/\(.*/, "", what); return what }
# Whatever its argument's size and direction, which are the digits before.
function is_kvm(what) { return what ~ /^sys_ioctl\(.*cmd: [0-9a-f]*ae[0-9a-f][0-9a-f],/ }
# Sleeps, and waits that end by themselves.
function is_timed(what) {
	if (what ~ /^sys_(clock_)?nanosleep/) return 1
	if (what ~ /^sys_(epoll_p?wait|poll)\(/) return what !~ /timeout(_msecs)?: (ffffffff|ffffffffffffffff|0)[,)]/
	if (what ~ /^sys_(ppoll|pselect6|select)\(/) return what !~ /(tsp|tvp): 0[,)]/
	if (what ~ /^sys_futex\(/) return what !~ /utime: 0,/ && what ~ /op: (0|9|80|89|109|189),/
	return 0
}
function count_call(who, i) {
	if (is_kvm(text[i])) {
		if (text[i] !~ /cmd: ae80,/) add("kvm_ioctls_other", 1)
		return
	}
	if (who == "daemon") who = who late
	add(who "_syscalls", 1)
	add(who "_syscall_" call(text[i]), 1)
	add("timed_waits", is_timed(text[i]))
}
function count_vcpu(i,   address) {
	if (text[i] ~ /^kvm_userspace_exit:/) add("kvm_run_returns", 1)
	else if (text[i] ~ /^kvm_exit:/) {
		reason = text[i]
		sub(/.*reason /, "", reason); sub(/ .*/, "", reason)
		# The host's own interrupts, its timer's above all, are not the path's.
		if (reason ~ /^(interrupt|INTR|intr|EXTERNAL_INTERRUPT|PREEMPTION_TIMER)$/) { add("host_interrupts", 1); return }
		add("kvm_exits", 1)
		add("kvm_exits_but_pf_fixed", 1)
		add("kvm_exit_" reason, 1)
		# Those of the guest's clock (its deadline is set; an interrupt waits until it can be taken) grow with the time that
		# the request takes.
		if (reason !~ /^(msr|MSR_WRITE|vintr|INTERRUPT_WINDOW)$/) add("kvm_exits_work", 1)
	} else if (text[i] ~ /^kvm_page_fault:/) {
		address = text[i]
		sub(/.*address 0x/, "", address); sub(/ .*/, "", address)
		if (length(address) <= 16 && number(address) < memory) { add("pf_fixed", 1); add("kvm_exits_work", -1); add("kvm_exits_but_pf_fixed", -1) }
	}
}
function number(hex,   i, value) {
	for (i = 1; i <= length(hex); i++) value = value * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
	return value
}
END {
	if (failed) exit 1
	if (!first || !last) { print "counts: the trace has not both marks" >"/dev/stderr"; exit 1 }
	end["daemon"] = find("daemon", last, "^sys_(sendmsg|sendto|write|writev)\\(")
	end["vmm"] = find("vmm", end["daemon"], "^sys_(sendmsg|sendto|write|writev)\\(")
	wake = find("vmm", end["vmm"], "^sys_epoll_(p?wait|pwait2) -> ")
	# The first kick since vmm began to wait is what woke it.
	end["vcpu"] = find("vmm", wake, "^sys_epoll_p?wait\\(")
	while (end["vcpu"] < wake && text[end["vcpu"]] !~ kick) end["vcpu"]++
	if (end["vcpu"] == wake) end["vcpu"] = find("vcpu", wake, kick)
	split("kvm_ioctls_other kvm_run_returns kvm_exits kvm_exits_work host_interrupts pf_fixed vmm_syscalls timed_waits vmm_page_faults", always, " ")
	for (i in always) add(always[i], 0)
	# A client whose request is not there yet when its connection is accepted makes the daemon wake once more for it.
	for (i = first + 1; i < end["daemon"]; i++)
		if (side[i] == "daemon") {
			if (asked && text[i] ~ /^sys_recvfrom -> 0xf/) late = "_late"
			asked = text[i] ~ /^sys_recvfrom\(.*flags: 0,/
		}
	for (i = first + 1; i <= last; i++) {
		later = i > end[side[i]]
		printf("%9.0f us %-6s %s%s\n", (at[i] - at[first]) * 1e6, side[i], text[i], later ? "   (later)" : "") >>show
		if (later) continue
		if (begins(text[i])) count_call(side[i], i)
		else if (text[i] ~ /^page_fault_/) { if (side[i] != "daemon") add("vmm_page_faults", 1); else add("daemon_page_faults", 1) }
		else if (side[i] == "vcpu") count_vcpu(i)
	}
	for (i = 1; i <= names; i++) print order[i], counts[order[i]]
}
