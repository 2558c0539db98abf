COMMON_SRCS := $(wildcard common/*.c)
LINT_SRCS += $(COMMON_SRCS)
