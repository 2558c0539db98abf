# host-ctl: the daemon and its clients, one dynamic executable.
HOST_CTL_SRCS := $(wildcard host-ctl/*.c host-ctl/*/*.c)
LINT_SRCS += $(HOST_CTL_SRCS)

HOST_CTL := $(BUILD)/host-ctl/host-ctl
HOST_CTL_OBJS := $(patsubst %.c,$(BUILD)/host/%.o,$(HOST_CTL_SRCS) $(COMMON_SRCS))
ALL += $(HOST_CTL)

$(HOST_CTL): $(HOST_CTL_OBJS)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -lmicrohttpd -ljansson -lhttp_parser -lsqlite3

.PHONY: host-ctl
host-ctl: $(HOST_CTL)

# The vmm that the daemon's own tests run: it plays the guest too, and needs no KVM.
FAKE_VMM := $(BUILD)/tests/fake-vmm
FAKE_VMM_SRCS := $(wildcard tests/fake-vmm/*.c)
LINT_SRCS += $(FAKE_VMM_SRCS)
CHECK_NEEDS += $(FAKE_VMM)
$(FAKE_VMM): $(patsubst %.c,$(BUILD)/host/%.o,$(FAKE_VMM_SRCS) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -static -o $@ $^
$(patsubst %.c,$(BUILD)/san/%,$(wildcard tests/unit/hostctl_*.c)): | $(FAKE_VMM)
$(BUILD)/san/tests/unit/hostctl_serve_check: | $(BUILD)/vmm/vmm
