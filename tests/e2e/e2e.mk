# What suites end to end need besides the programs themselves.
FAKE_DAEMON := $(BUILD)/e2e/fake_daemon
$(FAKE_DAEMON): $(BUILD)/host/tests/e2e/fake_daemon.o $(COMMON_SRCS:%.c=$(BUILD)/host/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -ljansson
LINT_SRCS += tests/e2e/fake_daemon.c
CHECK_NEEDS += $(FAKE_DAEMON)

# host-ctl with a doctor whose guest loops for hours: its time limit must end it.
DOCTOR_HANG := $(BUILD)/e2e/host-ctl-hang
$(eval $(call rules_for,hang,$(CC),$(HOST_CFLAGS) -DGUEST_LOOPS=1000000000000000))
DOCTOR_HANG_SRCS := host-ctl/doctor_guest_code_x86_64.c host-ctl/doctor_guest_x86_64.c
$(DOCTOR_HANG): $(DOCTOR_HANG_SRCS:%.c=$(BUILD)/hang/%.o) \
		$(patsubst %.c,$(BUILD)/host/%.o,$(filter-out $(DOCTOR_HANG_SRCS),$(HOST_CTL_SRCS)) $(COMMON_SRCS))
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -lmicrohttpd -ljansson -lhttp_parser
CHECK_NEEDS += $(DOCTOR_HANG)
