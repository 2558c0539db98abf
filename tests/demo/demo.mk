# `make run`: the whole path once, with real VMs; and the figures beside posix_spawn.

FIRST_BYTE := $(BUILD)/bench/first_byte
LINT_SRCS += tests/bench/first_byte.c
$(FIRST_BYTE): $(BUILD)/host/tests/bench/first_byte.o $(BUILD)/host/host-ctl/client.o $(COMMON_SRCS:%.c=$(BUILD)/host/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -ljansson -lhttp_parser

.PHONY: run run-built
## make run        install, build, and run commands in warm VMs, in the lab where KVM is not sound
run:
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$$(nproc) run-built
run-built: $(ALL) $(BUILD)/kernel/vmlinux-up images $(FIRST_BYTE)
	@tests/demo/run $(BUILD)
