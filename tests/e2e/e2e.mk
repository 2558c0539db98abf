# What suites end to end need besides the programs themselves.
FAKE_DAEMON := $(BUILD)/e2e/fake_daemon
$(FAKE_DAEMON): $(BUILD)/host/tests/e2e/fake_daemon.o $(COMMON_SRCS:%.c=$(BUILD)/host/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -ljansson
LINT_SRCS += tests/e2e/fake_daemon.c
CHECK_NEEDS += $(FAKE_DAEMON)

# host-ctl with a doctor whose guest loops for hours: its time limit must end it.
DOCTOR_HANG := $(BUILD)/e2e/host-ctl-hang
$(eval $(call rules_for,hang,$(CC),$(HOST_CFLAGS) -DGUEST_LOOPS=1000000000000000))
DOCTOR_HANG_SRCS := host-ctl/doctor/doctor_guest_code_x86_64.c host-ctl/doctor/doctor_guest_x86_64.c
$(DOCTOR_HANG): $(DOCTOR_HANG_SRCS:%.c=$(BUILD)/hang/%.o) \
		$(patsubst %.c,$(BUILD)/host/%.o,$(filter-out $(DOCTOR_HANG_SRCS),$(HOST_CTL_SRCS)) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -lmicrohttpd -ljansson -lhttp_parser -lsqlite3
CHECK_NEEDS += $(DOCTOR_HANG)

# What a process in a guest sees of itself and of its VM. musl-gcc knows no static-pie: the start files are given.
PROBE := $(BUILD)/e2e/probe_guest
MUSL_LIB := /usr/lib/$(subst -gnu,-musl,$(shell $(CC) -dumpmachine))
$(PROBE): tests/e2e/probe_guest.c
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(filter-out -MMD -MP -fno-pie,$(MUSL_CFLAGS)) -fPIE -nostartfiles -static -Wl,-pie -Wl,--no-dynamic-linker \
		-Wl,-z,text -Wl,-z,noexecstack -s -o $@ $(MUSL_LIB)/rcrt1.o $(MUSL_LIB)/crti.o $< $(MUSL_LIB)/crtn.o
LINT_SRCS += tests/e2e/probe_guest.c
CHECK_NEEDS += $(PROBE)

# The programs with leaks that the suite `growth` has to find (tests/e2e/leaks/leak.h).
LEAKY := $(BUILD)/e2e/leaky
LINT_SRCS += $(addprefix tests/e2e/leaks/,daemon.c vmm.c guest.c)
$(LEAKY)/host-ctl: $(BUILD)/host/tests/e2e/leaks/daemon.o $(HOST_CTL_OBJS)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -Wl,--wrap=command_create -o $@ $^ -lmicrohttpd -ljansson -lhttp_parser -lsqlite3
$(LEAKY)/vmm: $(BUILD)/musl/tests/e2e/leaks/vmm.o $(VMM_OBJS)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -Wl,--wrap=vsock_connect -s -o $@ $^ $(LIBFDT_A)
$(LEAKY)/guest-init: $(BUILD)/musl/tests/e2e/leaks/guest.o $(GUEST_INIT_OBJS)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -Wl,--wrap=session_start -s -o $@ $^
$(LEAKY)/initramfs.cpio: rootfs/build-initramfs $(ROOTFS_DEPS) $(LEAKY)/guest-init
	@rootfs/build-initramfs $@ $(LEAKY)/guest-init && touch $@
CHECK_NEEDS += $(LEAKY)/host-ctl $(LEAKY)/vmm $(LEAKY)/initramfs.cpio

# What poses as the agent of a guest.
POSE_AGENT := $(BUILD)/e2e/pose_agent
$(POSE_AGENT): tests/e2e/pose_agent.c common/proto_guest.h
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(filter-out -MMD -MP,$(MUSL_CFLAGS)) -static -s -o $@ $<
LINT_SRCS += tests/e2e/pose_agent.c
CHECK_NEEDS += $(POSE_AGENT)

# What stops PID 1 of a guest.
STOP_AGENT := $(BUILD)/e2e/stop_agent
$(STOP_AGENT): tests/e2e/stop_agent.c
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(filter-out -MMD -MP,$(MUSL_CFLAGS)) -static -s -o $@ $<
LINT_SRCS += tests/e2e/stop_agent.c
CHECK_NEEDS += $(STOP_AGENT)
