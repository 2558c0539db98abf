# vmm: static, against musl; vmm.debug has the symbols of the same program.
VMM_SRCS := $(wildcard vmm/*.c vmm/virtio/*.c)
LINT_SRCS += $(VMM_SRCS)
ALL += $(BUILD)/vmm/vmm

VMM_OBJS := $(patsubst %.c,$(BUILD)/musl/%.o,$(VMM_SRCS) $(COMMON_SRCS) $(STATIC_SRCS))
# Debian's libfdt.a is built for glibc, but uses nothing of it that musl has not.
LIBFDT_A := $(shell $(CC) -print-file-name=libfdt.a)

$(BUILD)/vmm/vmm.debug: $(VMM_OBJS) $(STATIC_LD)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(MUSL_CC) $(MUSL_LDFLAGS) -o $@ $(filter-out $(STATIC_LD),$^) $(LIBFDT_A)
$(BUILD)/vmm/vmm: $(BUILD)/vmm/vmm.debug
	@strip -s -R .comment -o $@ $<
