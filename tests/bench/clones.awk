# The table and the JSON of tests/bench/clones, from lines "sample KIND NS", "count NAME MAX MIN", "private KIND KIB", "figure NAME N".

function sort_kind(kind,   i, j, n, t) {
	n = count[kind]
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && value[kind, j - 1] > value[kind, j]; j--) {
			t = value[kind, j]; value[kind, j] = value[kind, j - 1]; value[kind, j - 1] = t
		}
}
function median(kind,   n) {
	n = count[kind]
	return n % 2 ? value[kind, (n + 1) / 2] : (value[kind, n / 2] + value[kind, n / 2 + 1]) / 2
}
function list(kind,   i, text) {
	for (i = 1; i <= count[kind]; i++) text = text (i > 1 ? ", " : "") value[kind, i]
	return "[" text "]"
}
function add(kind, number) {
	if (!(kind in count)) kinds[++kind_count] = kind
	value[kind, ++count[kind]] = number + 0
}
# A figure and its target: at most `limit`, or at least when `least`.
function row(name, figure, limit, least,   met) {
	met = least ? figure >= limit : figure <= limit
	if (!met) missed++
	printf "%-64s %10s %9s   %s\n", name, text_of(figure), (least ? ">= " : "<= ") text_of(limit), met ? "" : "MISSED"
	rows = rows sprintf("%s\n  {\"name\": \"%s\", \"figure\": %.6g, \"target\": %.6g, \"at_least\": %s, \"met\": %s}", rows ? "," : "", name,
		figure, limit, least ? "true" : "false", met ? "true" : "false")
}
function text_of(number) { return number == int(number) ? sprintf("%d", number) : sprintf("%.4g", number) }
function time_row(name, kind) {
	printf "%-64s %10.2f %10.2f %6d\n", name, median(kind) / 1e6, value[kind, 1] / 1e6, count[kind]
}

$1 == "sample" { add($2, $3) }
$1 == "private" { add("private_" $2, $3) }
$1 == "count" { high[$2] = $3 + 0; low[$2] = $4 + 0; names[++name_count] = $2 }
$1 == "figure" { figure[$2] = $3 + 0 }
END {
	for (i = 1; i <= kind_count; i++) sort_kind(kinds[i])
	printf "%-64s %10s %10s %6s\n", "times", "median, ms", "min, ms", "n"
	time_row("warm request to first byte", "request")
	time_row("posix_spawn of the same program to first byte", "spawn")
	time_row("clone: start to parked", "clone")
	time_row("cold boot, vmm: exec to guest-init's hello", "boot_vmm")
	time_row("cold boot, qemu -M microvm: exec to the same hello", "boot_qemu")
	printf "\n%-64s %10s %12s\n", "figures", "", "target"
	row("warm request / posix_spawn, medians", median("request") / median("spawn"), 6)
	row("warm request / posix_spawn, minima", value["request", 1] / value["spawn", 1], 6)
	row("warm request / qemu's cold boot, medians", median("request") / median("boot_qemu"), 0.01)
	row("clone / qemu's cold boot, medians", median("clone") / median("boot_qemu"), 0.02)
	row("clone / vmm's cold boot, medians", median("clone") / median("boot_vmm"), 1)
	row("KVM ioctls other than KVM_RUN on the warm path", high["kvm_ioctls_other"], 0)
	row("returns of KVM_RUN", high["kvm_run_returns"], 12)
	row("exits of KVM, but for pf_fixed and the guest's clock", high["kvm_exits_work"], 20)
	row("the same with the clock's, fewest", low["kvm_exits_but_pf_fixed"], 20)
	row("system calls of the daemon", high["daemon_syscalls"], 20)
	row("system calls of vmm, beside KVM_RUN", high["vmm_syscalls"], 20)
	row("page faults of vmm", high["vmm_page_faults"], 0)
	row("sleeps and waits with a time-out", high["timed_waits"], 0)
	row("private memory of a parked clone, MiB, median", median("private_guest") / 1024, 4)
	row("vmm's own private memory beside the guest's, KiB, highest", value["private_rest", count["private_rest"]], 512)
	row("clones parked at once", figure["parked"], wanted, 1)
	row("memory they take, with the daemon and the template, MiB", figure["used_mib"], 2048 * wanted / 200)
	row("of them answering", figure["answers"] - figure["claims_waited"], wanted, 1)
	printf "\n%-64s %10s %10s\n", "counted from connect to first byte", "highest", "lowest"
	for (i = 1; i <= name_count; i++) {
		printf "  %-62s %10d %10d\n", names[i], high[names[i]], low[names[i]]
		all = all sprintf("%s\n  \"%s\": {\"highest\": %d, \"lowest\": %d}", i > 1 ? "," : "", names[i], high[names[i]], low[names[i]])
	}
	printf "\n%s; Linux %s; QEMU %s\n", cpu, kernel, qemu
	for (i = 1; i <= kind_count; i++)
		raw = raw sprintf("%s\n  \"%s\": %s", i > 1 ? "," : "", kinds[i], list(kinds[i]))
	printf("{\"machine\": \"%s\", \"kernel\": \"%s\", \"qemu\": \"%s\", \"rows\": [%s\n], \"counts\": {%s\n}, \"samples\": {%s\n}}\n", cpu, kernel,
		qemu, rows, all, raw) >json
	exit missed > 0
}
