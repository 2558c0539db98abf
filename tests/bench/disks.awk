# The table of tests/bench/disks, from lines "sample KIND NS", "figure NAME N".

function size_rows(mib) {
	time_row("suspend: request to its answer, " mib " MiB, " figure["filled_" mib] " filled", "suspend_" mib)
	time_row("  a copy of the file of pages, with fsync", "copy_" mib)
	time_row("wake: request to its answer", "wake_" mib)
	time_row("fork: pause_us of its parent, one child", "pause_" mib)
	time_row("  a copy of as many bytes, without fsync", "cached_" mib)
	time_row("fork: request to its answer", "fork_" mib)
}
function size_figures(mib,   pages) {
	pages = figure["pages_" mib] / 1024
	figure_row(mib " MiB: suspend / copy with fsync, medians", median("suspend_" mib) / median("copy_" mib))
	figure_row(mib " MiB: suspend / vmm's cold boot, medians", median("suspend_" mib) / median("boot_vmm"))
	figure_row(mib " MiB: wake / vmm's cold boot, medians", median("wake_" mib) / median("boot_vmm"))
	figure_row(mib " MiB: pause of a fork, lower quartile, ms", quantile("pause_" mib, 0.25) / 1e6)
	figure_row(mib " MiB: pause of a fork, upper quartile, ms", quantile("pause_" mib, 0.75) / 1e6)
	figure_row(mib " MiB: pause of a fork, longest, ms", quantile("pause_" mib, 1) / 1e6)
	figure_row(mib " MiB: pause of a fork / copy without fsync, medians", median("pause_" mib) / median("cached_" mib))
	figure_row(mib " MiB: pause of a fork / suspend, medians", median("pause_" mib) / median("suspend_" mib))
	figure_row(mib " MiB: on disk, its own pages, MiB", pages)
	figure_row(mib " MiB: on disk, its processors and devices, KiB", figure["state_" mib])
	figure_row(mib " MiB: its pages / what was filled", pages / figure["filled_" mib])
	figure_row(mib " MiB: shared with its template, MiB", figure["memory_" mib] / 1024)
}

$1 == "sample" { add($2, $3) }
$1 == "figure" { figure[$2] = $3 + 0 }
END {
	sort_kinds()
	printf "%-64s %10s %10s %6s\n", "times", "median, ms", "min, ms", "n"
	size_rows(128)
	size_rows(1024)
	time_row("cold boot, vmm, 128 MiB: exec to guest-init's hello", "boot_vmm")
	printf "\n%-64s %10s\n", "figures", ""
	size_figures(128)
	size_figures(1024)
	finish("")
}
