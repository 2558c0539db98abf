# Benchmarks: figures are ratios measured side by side in one start of the lab (or of this host).
BENCH_BINS := $(addprefix $(BUILD)/bench/,init_count hello_time word load spawn_server compare)
# The base with the program that is timed and counted.
BENCH_IMAGE := $(BUILD)/bench/base.erofs
$(BENCH_IMAGE): $(BUILD)/bench/word $(BASE_IMAGE)
	@{ cat rootfs/base.manifest; echo "host /bin/word 0755 0:0 $(abspath $<)"; } >$(BUILD)/bench/base.manifest
	@rootfs/build-base $@ $(BUILD)/bench/base.manifest && touch $@
LINT_SRCS += $(addprefix tests/bench/,hello_time.c word.c load.c spawn_server.c init_count.c compare.c)
CHECK_NEEDS += $(addprefix $(BUILD)/bench/,first_byte load hello_time compare) $(BENCH_IMAGE)
# These speak to the daemon as host-ctl's own clients do.
FIRST_BYTE := $(BUILD)/bench/first_byte
READY_TIME := $(BUILD)/bench/ready_time
LINT_SRCS += tests/bench/first_byte.c tests/bench/ready_time.c
# And these measure as its `bench` does.
HOST_BENCH := $(FIRST_BYTE) $(READY_TIME) $(BUILD)/bench/hello_time $(BUILD)/bench/compare
$(HOST_BENCH): $(BUILD)/bench/%: $(BUILD)/host/tests/bench/%.o $(BUILD)/host/host-ctl/cli/client.o \
		$(addprefix $(BUILD)/host/host-ctl/bench/,hello.o warm.o series.o statistics.o) $(COMMON_SRCS:%.c=$(BUILD)/host/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -ljansson -lhttp_parser
# Without builtins: else a compiler may find calloc in what calloc does.
HEAP_COUNT := $(BUILD)/bench/heap_count.so
$(HEAP_COUNT): tests/bench/heap_count.c
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(filter-out -MMD -MP,$(HOST_CFLAGS)) -fno-builtin -fPIC -shared -o $@ $<
LINT_SRCS += tests/bench/heap_count.c
CHECK_NEEDS += $(HEAP_COUNT)
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	@$(MUSL_CC) $(filter-out -MMD -MP,$(MUSL_CFLAGS)) $(MUSL_LDFLAGS) -s -o $@ $<

comma := ,
# $(call where-kvm-is,limit,command): here, or in the lab where /dev/kvm is not sound.
where-kvm-is = if $(BUILD)/host-ctl/host-ctl doctor --kvm-only >/dev/null 2>&1; then $(2); \
	else tests/lab/run --limit $(1) --memory 6144 -- $(2); fi

RESULTS := $(BUILD)/bench/results
# $(call bench-with-results,line): the same for a line of bash whose figures go to the folder $$results.
bench-with-results = mkdir -p $(RESULTS); \
	if $(BUILD)/host-ctl/host-ctl doctor --kvm-only >/dev/null 2>&1; then results=$(RESULTS) bash -c '$(1)'; \
	else tests/lab/run --limit 1800 --memory 6144 --out $(RESULTS) -- 'results=/results; $(1)'; fi

.PHONY: bench bench-clones bench-sandboxes bench-disks bench-python
ifneq ($(filter disks python,$(BENCH)),)
bench: bench-$(BENCH)
else ifneq ($(BENCH),)
## make bench BENCH=boot|restore|warm|disks|python  A and B in turns, with their counts; disks, python: as bench-disks, bench-python (A='vmm kernel=smp --cpus 2 -- nosmt' B='qemu' N=40; tests/bench/configuration.sh)
A_boot := vmm
B_boot := qemu
A_restore := restore
B_restore := vmm
A_warm := warm
B_warm := spawn
N_boot := 20
N_restore := 20
N_warm := 200
A ?= $(A_$(BENCH))
B ?= $(B_$(BENCH))
N ?= $(N_$(BENCH))
bench: bench-needs
	@[ -n '$(A_$(BENCH))' ] || { echo "bench: '$(BENCH)' is none of boot, restore, warm, disks and python" >&2; exit 2; }
	@[ '$(BENCH)' != boot ] || tests/bench/instructions '$(A)' '$(B)'
	@$(call bench-with-results,tests/bench/versus --rounds $(N) --json $$results/$(BENCH).json "$(A)" "$(B)")
else
## make bench      warm requests and clones against posix_spawn and QEMU, rates, growth, recovery: both of the next two
bench: bench-needs
	@$(call bench-with-results,$(BENCH_CLONES); met=$$?; $(BENCH_SANDBOXES); exit $$((met | $$?)))
endif

## make bench-clones  warm requests against posix_spawn and QEMU, exact counts, memory (BENCH_ARGS='--rounds N --parked N')
BENCH_CLONES = tests/bench/clones $(BENCH_ARGS) --json $$results/clones.json
bench-clones: bench-needs
	@$(call bench-with-results,$(BENCH_CLONES))

## make bench-sandboxes  rates at 1, 16 and 64 clients, growth, recovery (SANDBOXES_ARGS='--commands N --sandboxes N')
BENCH_SANDBOXES = tests/bench/sandboxes $(SANDBOXES_ARGS) --json $$results/sandboxes.json
bench-sandboxes: bench-needs
	@$(call bench-with-results,$(BENCH_SANDBOXES))

## make bench-python  a warm python3 to its first byte against posix_spawn, prefault on and off (PYTHON_ARGS='--blocks N --requests N')
bench-python: bench-needs $(BUILD)/images/python.erofs
	@$(call bench-with-results,tests/bench/python $(PYTHON_ARGS) --json $$results/python.json)

.PHONY: bench-needs
bench-needs: all kernel images lab-prepare $(BENCH_BINS) $(BENCH_IMAGE) $(FIRST_BYTE) $(READY_TIME) $(HEAP_COUNT)

.PHONY: bench-exits bench-rehearsal bench-prefault bench-standby
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
	@$(call bench-with-results,tests/bench/throughput $(BENCH_ARGS) --json $$results/throughput.json)

## make bench-disks  suspend, wake and the pause of a fork against a copy and a boot, bytes on disk; copy-on-write disks against raw ones (DISKS_ARGS='--rounds N')
bench-disks: bench-needs $(THROUGHPUT_BINS)
	@$(call bench-with-results,tests/bench/disks $(DISKS_ARGS) --json $$results/disks.json && \
		tests/bench/throughput --machines cow$(comma)raw $(COW_ARGS) --json $$results/cow.json)
