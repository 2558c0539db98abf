# The table of tests/bench/clones, from lines "sample KIND NS", "count NAME MAX MIN", "private KIND KIB", "figure NAME N".

$1 == "sample" { add($2, $3) }
$1 == "private" { add("private_" $2, $3) }
$1 == "count" { high[$2] = $3 + 0; low[$2] = $4 + 0; names[++name_count] = $2 }
$1 == "figure" { figure[$2] = $3 + 0 }
END {
	sort_kinds()
	printf "%-64s %10s %10s %6s\n", "times", "median, ms", "min, ms", "n"
	time_row("warm request to first byte", "request")
	time_row("posix_spawn of the same program to first byte", "spawn")
	time_row("clone: start to parked", "clone")
	time_row("cold boot, vmm: exec to guest-init's hello", "boot_vmm")
	time_row("cold boot, qemu -M microvm: exec to the same hello", "boot_qemu")
	printf "\n%-64s %10s %12s\n", "figures", "", "target"
	row("warm request / posix_spawn, medians", median("request") / median("spawn"), 3)
	row("warm request / posix_spawn, minima", value["request", 1] / value["spawn", 1], 3)
	row("warm request / qemu's cold boot, medians", median("request") / median("boot_qemu"), 0.01)
	row("clone / qemu's cold boot, medians", median("clone") / median("boot_qemu"), 0.02)
	row("clone / vmm's cold boot, medians", median("clone") / median("boot_vmm"), 1)
	row("vmm's cold boot / qemu's, medians", median("boot_vmm") / median("boot_qemu"), 0.4)
	row("KVM ioctls other than KVM_RUN on the warm path", high["kvm_ioctls_other"], 0)
	row("returns of KVM_RUN", high["kvm_run_returns"], 8)
	row("exits of KVM, but for pf_fixed and the guest's clock", high["kvm_exits_work"], 20)
	row("the same with the clock's, fewest", low["kvm_exits_but_pf_fixed"], 20)
	row("system calls of the daemon", high["daemon_syscalls"], 20)
	row("system calls of vmm, beside KVM_RUN", high["vmm_syscalls"], 20)
	row("page faults of vmm", high["vmm_page_faults"], 0)
	row("sleeps and waits with a time-out", high["timed_waits"], 0)
	row("private memory of a parked clone, MiB, median", median("private_guest") / 1024, 4)
	row("vmm's own private memory beside the guest's, KiB, highest", value["private_rest", count["private_rest"]], 512)
	row("clones parked at once", figure["parked"], figure["wanted"], 1)
	row("memory they take, with the daemon and the template, MiB", figure["used_mib"], 2048 * figure["wanted"] / 200)
	row("of them answering", figure["answers"] - figure["claims_waited"], figure["wanted"], 1)
	printf "\n%-64s %10s %10s\n", "counted from connect to first byte", "highest", "lowest"
	for (i = 1; i <= name_count; i++) {
		printf "  %-62s %10d %10d\n", names[i], high[names[i]], low[names[i]]
		all = all sprintf("%s\n  \"%s\": {\"highest\": %d, \"lowest\": %d}", i > 1 ? "," : "", names[i], high[names[i]], low[names[i]])
	}
	finish(", \"counts\": {" all "\n}")
}
