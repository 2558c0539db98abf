COMMON_SRCS := $(wildcard common/*.c)
LINT_SRCS += $(COMMON_SRCS)
# In vmm and guest-init, in place of what is larger in the C library.
STATIC_SRCS := $(wildcard common/static/*.c)
LINT_SRCS += $(STATIC_SRCS)
