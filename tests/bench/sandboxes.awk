# The table of tests/bench/sandboxes, from lines "sample KIND NS", "load KIND ANSWERED FAILED WARM NS", "growth NAME BEFORE AFTER",
# "figure NAME N".

function rate_row(name, kind, clients,   of) {
	kind = kind "_" clients
	of = "process_" clients
	printf "%-44s %8d %9.1f %9.2f %9.2f %10s %10s %6d\n", name, clients, median("rate_" kind), median(kind) / 1e6, quantile(kind, 0.99) / 1e6,
		of in count ? text_of(median("rate_" kind) / median("rate_" of)) : "", of in count ? text_of(median(kind) / median(of)) : "", count[kind]
}
function growth_row(   i, by) {
	printf "\n%-44s %12s %12s %10s\n", "after " figure["commands"] " commands in one sandbox", "before", "after", "growth"
	for (i = 1; i <= growth_count; i++) {
		by = after[grown[i]] - before[grown[i]]
		printf "%-44s %12d %12d %10d\n", grown[i], before[grown[i]], after[grown[i]], by
		growth = growth sprintf("%s\n  \"%s\": {\"before\": %d, \"after\": %d}", i > 1 ? "," : "", grown[i], before[grown[i]], after[grown[i]])
	}
}
function bytes_a_command(name) { return (after[name] - before[name]) * (name ~ /_kib$/ ? 1024 : 1) / figure["commands"] }

$1 == "sample" { add($2, $3) }
$1 == "load" {
	failed += $4
	if ($2 ~ /^run_/) {
		runs += $3
		warm += $5
	}
	add("rate_" $2, $3 * 1e9 / $6)
	if ($2 == "processes_in_a_row") add("processes", $6)
}
$1 == "growth" {
	grown[++growth_count] = $2
	before[$2] = $3
	after[$2] = $4
	if ($2 !~ /_(kib|bytes)$/ && $4 > $3) counts_grown++
}
$1 == "figure" { figure[$2] = $3 + 0 }
END {
	sort_kinds()
	printf "%-44s %8s %9s %9s %9s %10s %10s %6s\n", "requests", "clients", "a second", "p50, ms", "p99, ms", "rate, x", "p50, x", "n"
	split("1 16 64", levels, " ")
	for (i = 1; i in levels; i++) rate_row("a process by posix_spawn, of a server", "process", levels[i])
	for (i = 1; i in levels; i++) rate_row("POST /v1/run, VMs warm", "run", levels[i])
	rate_row("POST /v1/run, as fast as VMs are cloned", "refilled", 64)
	for (i = 1; i in levels; i++) rate_row("POST /v1/sandboxes/ID/run, 4 sandboxes", "command", levels[i])
	print "x: as a multiple of the processes' at as many clients"
	growth_row()
	printf "\n%-64s %10s %10s %6s\n", "times", "median, ms", "min, ms", "n"
	time_row("recovery: daemon's exec to all " figure["sandboxes"] " sandboxes ready", "recovery")
	time_row("as many processes, one after the other", "processes")
	time_row("cold boot, qemu -M microvm: exec to guest-init's hello", "boot_qemu")
	printf "\n%-64s %10s %12s\n", "figures", "", "target"
	row("requests that were not answered as they should", failed, 0)
	row("runs that found no warm VM, of those that were to", runs - warm, 0)
	row("counts that grew (fds, threads, cgroups, zombies, sockets, files)", counts_grown + 0, 0)
	row("heap of the daemon, bytes a command", bytes_a_command("daemon_heap_bytes"), 1)
	row("memory of the daemon, bytes a command", bytes_a_command("daemon_kib"), 1)
	row("memory of vmm, bytes a command", bytes_a_command("vmm_kib"), 1)
	row("memory of guest-init, bytes a command", bytes_a_command("guest_init_kib"), 1)
	row("recovery / as many processes, medians", median("recovery") / median("processes"), 10)
	row("recovery / qemu's cold boot of one VM, medians", median("recovery") / median("boot_qemu"), 1)
	finish(", \"growth\": {" growth "\n}")
}
