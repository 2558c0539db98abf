# Benchmarks: figures are ratios measured side by side in one start of the lab (or of this host).
BENCH_BINS := $(BUILD)/bench/init_reboot $(BUILD)/bench/hello_time $(BUILD)/bench/word
# The base with the program that is timed and counted.
BENCH_IMAGE := $(BUILD)/bench/base.erofs
$(BENCH_IMAGE): $(BUILD)/bench/word $(BASE_IMAGE)
	@{ cat rootfs/base.manifest; echo "host /bin/word 0755 0:0 $(abspath $<)"; } >$(BUILD)/bench/base.manifest
	@rootfs/build-base $@ $(BUILD)/bench/base.manifest && touch $@
LINT_SRCS += tests/bench/hello_time.c tests/bench/word.c
CHECK_NEEDS += $(BUILD)/bench/first_byte $(BENCH_IMAGE)
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	@$(MUSL_CC) $(filter-out -MMD -MP,$(MUSL_CFLAGS)) $(MUSL_LDFLAGS) -s -o $@ $<

# $(call where-kvm-is,limit,command): here, or in the lab where /dev/kvm is not sound.
where-kvm-is = if $(BUILD)/host-ctl/host-ctl doctor --kvm-only >/dev/null 2>&1; then $(2); \
	else tests/lab/run --limit $(1) --memory 6144 -- $(2); fi

RESULTS := $(BUILD)/bench/results
.PHONY: bench
## make bench      clones: warm requests against posix_spawn and QEMU, exact counts, memory (BENCH_ARGS='--rounds N --parked N')
bench: all kernel images lab-prepare $(BENCH_BINS) $(BENCH_IMAGE) $(BUILD)/bench/first_byte
	@mkdir -p $(RESULTS)
	@if $(BUILD)/host-ctl/host-ctl doctor --kvm-only >/dev/null 2>&1; then \
		tests/bench/clones $(BENCH_ARGS) --json $(RESULTS)/clones.json; \
	else tests/lab/run --limit 1800 --memory 6144 --out $(RESULTS) -- \
		tests/bench/clones $(BENCH_ARGS) --json /results/clones.json; fi

.PHONY: bench-boot bench-exits bench-rehearsal bench-prefault bench-standby
## make bench-boot  boot to init: vmm against qemu's microvm, alternating (ROUNDS=)
bench-boot: all kernel images lab-prepare $(BENCH_BINS)
	@$(call where-kvm-is,1200,tests/bench/boot $(ROUNDS))

## make bench-exits  VM exits from vmm's start to the agent's hello, by reason and device
bench-exits: all kernel images lab-prepare
	@$(call where-kvm-is,600,tests/bench/exits)

## make bench-rehearsal  warm request to first byte, with and without the daemon's rehearsal
bench-rehearsal: all kernel images lab-prepare $(BUILD)/bench/first_byte
	@$(call where-kvm-is,900,tests/bench/rehearsal $(ROUNDS))

## make bench-prefault  page faults and time of a clone's start, with and without its working set
bench-prefault: all kernel images lab-prepare
	@$(call where-kvm-is,900,tests/bench/prefault $(ROUNDS))

## make bench-standby  a clone's start, with vmms in standby and without; also by a vmm that only plays a guest
bench-standby: all kernel images lab-prepare $(BUILD)/tests/fake-vmm
	@$(call where-kvm-is,900,tests/bench/standby $(ROUNDS))

## make bench-throughput  disk, vsock, network: vmm against qemu's microvm, alternating (BENCH_ARGS='--rounds N --tests blk')
THROUGHPUT_BINS := $(BUILD)/bench/throughput_guest $(BUILD)/bench/throughput_host
$(THROUGHPUT_BINS): tests/bench/throughput.h
.PHONY: bench-throughput
bench-throughput: all kernel images lab-prepare $(THROUGHPUT_BINS)
	@mkdir -p $(RESULTS)
	@if $(BUILD)/host-ctl/host-ctl doctor --kvm-only >/dev/null 2>&1; then \
		tests/bench/throughput $(BENCH_ARGS) --json $(RESULTS)/throughput.json; \
	else tests/lab/run --limit 1800 --memory 6144 --out $(RESULTS) -- \
		tests/bench/throughput $(BENCH_ARGS) --json /results/throughput.json; fi
