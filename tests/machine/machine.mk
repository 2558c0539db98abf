# Machine tests: tiny guests, run by the real vmm where /dev/kvm is sound.
MACHINE_DIR := $(BUILD)/tests/machine
MACHINE_GUESTS := $(patsubst tests/machine/guests/%.s,$(MACHINE_DIR)/%.elf,$(wildcard tests/machine/guests/*.s))

# Linked where a kernel is; one segment that is all of it.
$(MACHINE_DIR)/%.elf: tests/machine/guests/%.s tests/machine/guests/guest.inc
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -nostdlib -static -no-pie -Wl,-N -Wl,--no-warn-rwx-segments -Wl,-Ttext=0x100000 -Wl,--build-id=none -Wl,-z,noexecstack -o $@ $<

LINT_SRCS += tests/machine/run.c
$(MACHINE_DIR)/run: $(BUILD)/san/tests/machine/run.o $(COMMON_SRCS:%.c=$(BUILD)/san/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^

CHECK_NEEDS += $(MACHINE_DIR)/run $(MACHINE_GUESTS)
.PHONY: machine-tests
machine-tests: $(MACHINE_DIR)/run $(MACHINE_GUESTS)
