# Counts of one trace, for tests/bench/versus: lines `INDEX NAME NUMBER`. What came before the last exec is the shell's that made it.

/ sys_enter: NR 59 / { reset(); next }
/ sys_enter: NR 16 \([0-9a-f]+, ae80,/ { if (runs++ == 0) before = calls; next }
/ sys_enter: NR 16 \([0-9a-f]+, [0-9a-f]*ae[0-9a-f][0-9a-f],/ { ioctls++ }
/ sys_enter: NR / { calls++ }
/ kvm_userspace_exit: / { returns++ }
/ kvm_exit: / { exits++ }
function reset() { runs = before = calls = ioctls = returns = exits = 0 }
END {
	print i, "returns~of~KVM_RUN", returns + 0
	print i, "exits~of~KVM", exits + 0
	print i, "ioctls~of~KVM,~but~KVM_RUN", ioctls + 0
	print i, "system~calls,~but~KVM_RUN", calls + 0
	print i, "system~calls~before~the~first~KVM_RUN", before + 0
}
