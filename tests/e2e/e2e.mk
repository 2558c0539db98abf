# What suites end to end need besides the programs themselves.
FAKE_DAEMON := $(BUILD)/e2e/fake_daemon
$(FAKE_DAEMON): $(BUILD)/host/tests/e2e/fake_daemon.o $(COMMON_SRCS:%.c=$(BUILD)/host/%.o)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@$(CC) -o $@ $^ -ljansson
LINT_SRCS += tests/e2e/fake_daemon.c
CHECK_NEEDS += $(FAKE_DAEMON)
