VMM_SRCS := $(wildcard vmm/*.c vmm/virtio/*.c)
LINT_SRCS += $(VMM_SRCS)
