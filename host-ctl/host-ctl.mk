HOST_CTL_SRCS := $(wildcard host-ctl/*.c)
LINT_SRCS += $(HOST_CTL_SRCS)
