# Benchmarks: figures are ratios measured side by side in one start of the lab (or of this host).
BENCH_BINS := $(BUILD)/bench/init_reboot
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	@$(MUSL_CC) $(filter-out -MMD -MP,$(MUSL_CFLAGS)) $(MUSL_LDFLAGS) -s -o $@ $<

.PHONY: bench-boot
## make bench-boot  boot to init: vmm against qemu's microvm, alternating (ROUNDS=)
bench-boot: all kernel images lab-prepare $(BENCH_BINS)
	@if $(BUILD)/host-ctl/host-ctl doctor --kvm-only >/dev/null 2>&1; then tests/bench/boot $(ROUNDS); \
	 else tests/lab/run --limit 1200 --memory 6144 -- tests/bench/boot $(ROUNDS); fi
