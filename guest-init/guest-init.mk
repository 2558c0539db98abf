GUEST_INIT_SRCS := $(wildcard guest-init/*.c)
LINT_SRCS += $(GUEST_INIT_SRCS)
