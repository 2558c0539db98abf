# host-ctl: the daemon and its clients, one dynamic executable.
HOST_CTL_SRCS := $(wildcard host-ctl/*.c)
LINT_SRCS += $(HOST_CTL_SRCS)

HOST_CTL := $(BUILD)/host-ctl/host-ctl
HOST_CTL_OBJS := $(patsubst %.c,$(BUILD)/host/%.o,$(HOST_CTL_SRCS) $(COMMON_SRCS))
ALL += $(HOST_CTL)

$(HOST_CTL): $(HOST_CTL_OBJS)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -lmicrohttpd -ljansson -lhttp_parser

.PHONY: host-ctl
host-ctl: $(HOST_CTL)

