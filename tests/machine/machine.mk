# Machine tests: tiny guests, run by the real vmm where /dev/kvm is sound.
MACHINE_DIR := $(BUILD)/tests/machine
MACHINE_GUESTS := $(patsubst tests/machine/guests/%.s,$(MACHINE_DIR)/%.elf,$(wildcard tests/machine/guests/*.s))

# Linked where a kernel is; one segment that is all of it.
$(MACHINE_DIR)/%.elf: tests/machine/guests/%.s tests/machine/guests/guest.inc tests/machine/guests/smp.inc
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -nostdlib -static -no-pie -Wl,-N -Wl,--no-warn-rwx-segments -Wl,-Ttext=0x100000 -Wl,--build-id=none -Wl,-z,noexecstack -o $@ $<

LINT_SRCS += tests/machine/run.c tests/machine/smp.c tests/machine/machine.c
$(MACHINE_DIR)/run $(MACHINE_DIR)/smp $(MACHINE_DIR)/smp_linux: $(MACHINE_DIR)/%: $(BUILD)/san/tests/machine/%.o \
		$(BUILD)/san/tests/machine/machine.o $(COMMON_SRCS:%.c=$(BUILD)/san/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^

CHECK_NEEDS += $(MACHINE_DIR)/run $(MACHINE_DIR)/smp $(MACHINE_GUESTS)
.PHONY: machine-tests
## make machine-tests  build what the machine tests run: guests of their own, and who starts them (docs/vmm.md)
machine-tests: $(MACHINE_DIR)/run $(MACHINE_DIR)/smp $(MACHINE_GUESTS)

# The devices before Linux's drivers: a guest of our own as PID 1, told what to do by the test.
DEVICES_INITRAMFS := $(MACHINE_DIR)/devices.cpio
LINT_SRCS += tests/machine/devices.c tests/machine/devices_guest.c
$(MACHINE_DIR)/devices_guest: $(BUILD)/musl/tests/machine/devices_guest.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $^
$(DEVICES_INITRAMFS): rootfs/build-initramfs rootfs/lib.sh $(MACHINE_DIR)/devices_guest
	@rootfs/build-initramfs $@ $(MACHINE_DIR)/devices_guest && touch $@
$(MACHINE_DIR)/devices: $(BUILD)/san/tests/machine/devices.o $(BUILD)/san/common/parse.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(MACHINE_DIR)/devices $(DEVICES_INITRAMFS)
machine-tests: $(MACHINE_DIR)/devices $(DEVICES_INITRAMFS)

# Its network device, in the same way.
NET_INITRAMFS := $(MACHINE_DIR)/net.cpio
LINT_SRCS += tests/machine/net.c tests/machine/net_taps.c tests/machine/net_guest.c
$(MACHINE_DIR)/net_guest: $(BUILD)/musl/tests/machine/net_guest.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $^
$(NET_INITRAMFS): rootfs/build-initramfs rootfs/lib.sh $(MACHINE_DIR)/net_guest
	@rootfs/build-initramfs $@ $(MACHINE_DIR)/net_guest && touch $@
$(MACHINE_DIR)/net: $(BUILD)/san/tests/machine/net.o $(BUILD)/san/tests/machine/net_taps.o $(COMMON_SRCS:%.c=$(BUILD)/san/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(MACHINE_DIR)/net $(NET_INITRAMFS)
machine-tests: $(MACHINE_DIR)/net $(NET_INITRAMFS)

# Linux with several CPUs.
SMP_INITRAMFS := $(MACHINE_DIR)/smp.cpio
LINT_SRCS += tests/machine/smp_linux.c tests/machine/smp_guest.c
$(MACHINE_DIR)/smp_guest: $(BUILD)/musl/tests/machine/smp_guest.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $^
$(SMP_INITRAMFS): rootfs/build-initramfs rootfs/lib.sh $(MACHINE_DIR)/smp_guest
	@rootfs/build-initramfs $@ $(MACHINE_DIR)/smp_guest && touch $@
CHECK_NEEDS += $(MACHINE_DIR)/smp_linux $(SMP_INITRAMFS)
machine-tests: $(MACHINE_DIR)/smp_linux $(SMP_INITRAMFS)

# The same program under the sanitizers: what a guest can provoke must not only end well.
$(MACHINE_DIR)/vmm-san: $(patsubst %.c,$(BUILD)/san/%.o,$(VMM_SRCS) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^ -lfdt
CHECK_NEEDS += $(MACHINE_DIR)/vmm-san

# And under ThreadSanitizer: several vCPUs and the loop share its state.
TSAN_CFLAGS := $(BASE_CFLAGS) -O1 -g -fno-omit-frame-pointer -fsanitize=thread -Wno-tsan
$(eval $(call rules_for,tsan,$(CC),$(TSAN_CFLAGS)))
$(MACHINE_DIR)/vmm-tsan: $(patsubst %.c,$(BUILD)/tsan/%.o,$(VMM_SRCS) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -fsanitize=thread -o $@ $^ -lfdt
CHECK_NEEDS += $(MACHINE_DIR)/vmm-tsan

# The balloon before Linux's driver, in the same way.
BALLOON_INITRAMFS := $(MACHINE_DIR)/balloon.cpio
LINT_SRCS += tests/machine/balloon.c tests/machine/balloon_guest.c
$(MACHINE_DIR)/balloon_guest: $(BUILD)/musl/tests/machine/balloon_guest.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $^
$(BALLOON_INITRAMFS): rootfs/build-initramfs rootfs/lib.sh $(MACHINE_DIR)/balloon_guest
	@rootfs/build-initramfs $@ $(MACHINE_DIR)/balloon_guest && touch $@
$(MACHINE_DIR)/balloon: $(BUILD)/san/tests/machine/balloon.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(MACHINE_DIR)/balloon $(BALLOON_INITRAMFS)
machine-tests: $(MACHINE_DIR)/balloon $(BALLOON_INITRAMFS)

# Hostile guests: one freestanding program, told by its command line what to attack, and who watches the vmm it runs in.
HOSTILE_DIR := $(MACHINE_DIR)/hostile_guest
HOSTILE_OBJS := $(patsubst tests/machine/hostile/%,$(HOSTILE_DIR)/%.o,$(wildcard tests/machine/hostile/*.c tests/machine/hostile/*.s))
HOSTILE_CFLAGS := $(BASE_CFLAGS) -O2 -ffreestanding -fno-pic -fno-pie -mno-red-zone -mgeneral-regs-only -fno-stack-protector \
	-fcf-protection=none -fno-asynchronous-unwind-tables -fno-tree-loop-distribute-patterns
$(HOSTILE_DIR)/%.o: tests/machine/hostile/%
	@mkdir -p $(@D)
	@echo "  CC guest $<"
	@$(CC) $(HOSTILE_CFLAGS) -c -o $@ $<
$(MACHINE_DIR)/hostile.elf: $(HOSTILE_OBJS)
	@echo "  LD $@"
	@$(CC) -nostdlib -static -no-pie -Wl,-N -Wl,--no-warn-rwx-segments -Wl,-Ttext=0x100000 -Wl,--build-id=none -Wl,-z,noexecstack -o $@ $^
HOSTILE_SRCS := $(addprefix tests/machine/,hostile.c hostile_flood.c hostile_suite.c hostile_vm.c)
LINT_SRCS += $(HOSTILE_SRCS) $(wildcard tests/machine/hostile/*.c)
$(MACHINE_DIR)/hostile: $(patsubst %.c,$(BUILD)/san/%.o,$(HOSTILE_SRCS) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(MACHINE_DIR)/hostile $(MACHINE_DIR)/hostile.elf
machine-tests: $(MACHINE_DIR)/hostile $(MACHINE_DIR)/hostile.elf

# Snapshots of tiny guests; the test reads the state files with vmm's own modules.
LINT_SRCS += tests/machine/snapshot.c tests/machine/snapshot_vm.c
$(MACHINE_DIR)/snapshot: $(BUILD)/san/tests/machine/snapshot.o $(BUILD)/san/tests/machine/snapshot_vm.o \
		$(BUILD)/san/tests/machine/machine.o $(patsubst %.c,$(BUILD)/san/%.o,$(filter-out vmm/main.c,$(VMM_SRCS)) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^ -lfdt
CHECK_NEEDS += $(MACHINE_DIR)/snapshot
machine-tests: $(MACHINE_DIR)/snapshot

# What differs from another memory.
LINT_SRCS += tests/machine/snapshot_pages.c
$(MACHINE_DIR)/snapshot_pages: $(BUILD)/san/tests/machine/snapshot_pages.o $(BUILD)/san/tests/machine/snapshot_vm.o \
		$(BUILD)/san/tests/machine/machine.o $(COMMON_SRCS:%.c=$(BUILD)/san/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(MACHINE_DIR)/snapshot_pages
machine-tests: $(MACHINE_DIR)/snapshot_pages

# Working sets, and a vmm in standby.
LINT_SRCS += tests/machine/standby.c
$(MACHINE_DIR)/standby: $(BUILD)/san/tests/machine/standby.o $(BUILD)/san/tests/machine/snapshot_vm.o \
		$(BUILD)/san/tests/machine/machine.o $(COMMON_SRCS:%.c=$(BUILD)/san/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(MACHINE_DIR)/standby
machine-tests: $(MACHINE_DIR)/standby

# Copy-on-write disks before Linux; the test reads them with vmm's own module.
LINT_SRCS += tests/machine/disk.c
$(MACHINE_DIR)/disk: $(BUILD)/san/tests/machine/disk.o $(BUILD)/san/tests/machine/snapshot_vm.o \
		$(BUILD)/san/tests/machine/machine.o $(patsubst %.c,$(BUILD)/san/%.o,$(filter-out vmm/main.c,$(VMM_SRCS)) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^ -lfdt
CHECK_NEEDS += $(MACHINE_DIR)/disk
machine-tests: $(MACHINE_DIR)/disk

# And of Linux that works meanwhile.
SNAPSHOT_INITRAMFS := $(MACHINE_DIR)/snapshot.cpio
LINT_SRCS += tests/machine/snapshot_linux.c tests/machine/snapshot_guest.c
$(MACHINE_DIR)/snapshot_guest: $(BUILD)/musl/tests/machine/snapshot_guest.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $^
$(SNAPSHOT_INITRAMFS): rootfs/build-initramfs rootfs/lib.sh $(MACHINE_DIR)/snapshot_guest
	@rootfs/build-initramfs $@ $(MACHINE_DIR)/snapshot_guest && touch $@
$(MACHINE_DIR)/snapshot_linux: $(BUILD)/san/tests/machine/snapshot_linux.o $(BUILD)/san/tests/machine/snapshot_vm.o \
		$(BUILD)/san/tests/machine/machine.o $(COMMON_SRCS:%.c=$(BUILD)/san/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(MACHINE_DIR)/snapshot_linux $(SNAPSHOT_INITRAMFS)
machine-tests: $(MACHINE_DIR)/snapshot_linux $(SNAPSHOT_INITRAMFS)

# The serial line before Linux's driver, in the same way; a script types.
SERIAL_INITRAMFS := $(MACHINE_DIR)/serial.cpio
LINT_SRCS += tests/machine/serial_guest.c
$(MACHINE_DIR)/serial_guest: $(BUILD)/musl/tests/machine/serial_guest.o
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $^
$(SERIAL_INITRAMFS): rootfs/build-initramfs rootfs/lib.sh $(MACHINE_DIR)/serial_guest
	@rootfs/build-initramfs $@ $(MACHINE_DIR)/serial_guest && touch $@
CHECK_NEEDS += $(SERIAL_INITRAMFS)
machine-tests: $(SERIAL_INITRAMFS)
