# The table of tests/bench/python, from lines "sample KIND NS", "figure NAME N".

$1 == "sample" { add($2, $3) }
$1 == "figure" { figure[$2] = $3 }
END {
	sort_kinds()
	printf "%-64s %10s %10s %6s\n", "times", "median, ms", "min, ms", "n"
	time_row("warm request to first byte of python3 -c 'print(1)', prefault", "with")
	time_row("  the same with --no-prefault", "without")
	time_row("posix_spawn of the same here (python " figure["version"] ") to first byte", "spawn")
	printf "\n%-64s %10s\n", "figures", ""
	figure_row("warm request / posix_spawn, prefault, medians", median("with") / median("spawn"))
	figure_row("warm request / posix_spawn, --no-prefault, medians", median("without") / median("spawn"))
	figure_row("prefault / --no-prefault, medians", median("with") / median("without"))
	finish("")
}
