# guest-init: PID 1 and agent of the guest, one static executable.
GUEST_INIT_SRCS := $(wildcard guest-init/*.c)
LINT_SRCS += $(GUEST_INIT_SRCS)

GUEST_INIT := $(BUILD)/guest-init/guest-init
GUEST_INIT_OBJS := $(patsubst %.c,$(BUILD)/musl/%.o,$(GUEST_INIT_SRCS) $(COMMON_SRCS) $(STATIC_SRCS))
ALL += $(GUEST_INIT)

$(GUEST_INIT): $(GUEST_INIT_OBJS) $(STATIC_LD)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $(filter-out $(STATIC_LD),$^)

.PHONY: guest-init
guest-init: $(GUEST_INIT)

# guest-init in a real guest, over the vmm's vsock socket; tests/suites.txt runs it.
LINT_SRCS += tests/machine/agent.c tests/machine/agent_client.c
$(BUILD)/tests/machine/agent: $(patsubst %.c,$(BUILD)/san/%.o,tests/machine/agent.c tests/machine/agent_client.c $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^
CHECK_NEEDS += $(BUILD)/tests/machine/agent
