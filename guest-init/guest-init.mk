# guest-init: PID 1 and agent of the guest, one static executable.
GUEST_INIT_SRCS := $(wildcard guest-init/*.c)
LINT_SRCS += $(GUEST_INIT_SRCS)

GUEST_INIT := $(BUILD)/guest-init/guest-init
GUEST_INIT_OBJS := $(patsubst %.c,$(BUILD)/musl/%.o,$(GUEST_INIT_SRCS) $(COMMON_SRCS))
ALL += $(GUEST_INIT)

$(GUEST_INIT): $(GUEST_INIT_OBJS)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -s -o $@ $^

.PHONY: guest-init
guest-init: $(GUEST_INIT)
