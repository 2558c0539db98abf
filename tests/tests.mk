# Tests. A unit test is one file tests/unit/<module>_<what>.c with its own main (cmocka), linked under ASan and
# UBSan with all of its module but main.c, and common/.
UNIT_SRCS := $(wildcard tests/unit/*.c)
UNIT_BINS := $(UNIT_SRCS:%.c=$(BUILD)/san/%)
TEST_LIBS_vmm      := -lfdt
TEST_LIBS_hostctl  := -lmicrohttpd -ljansson -lhttp_parser -lsqlite3
san_objects = $(patsubst %.c,$(BUILD)/san/%.o,$(filter-out %/main.c,$(1)))
UNIT_OBJS_common   = $(call san_objects,$(COMMON_SRCS))
UNIT_OBJS_vmm      = $(call san_objects,$(VMM_SRCS) $(COMMON_SRCS))
UNIT_OBJS_guest    = $(call san_objects,$(GUEST_INIT_SRCS) $(COMMON_SRCS))
UNIT_OBJS_hostctl  = $(call san_objects,$(HOST_CTL_SRCS) $(COMMON_SRCS))
# helpers shared by tests: tests/support/*.c. An archive, so that a test takes only those of its own module.
SUPPORT_OBJS := $(patsubst %.c,$(BUILD)/san/%.o,$(wildcard tests/support/*.c))
SUPPORT_LIB  := $(BUILD)/san/tests/support.a
$(SUPPORT_LIB): $(SUPPORT_OBJS)
	@rm -f $@ && $(AR) rcs $@ $^

# tests/support/fail_alloc.h and fake_sync.h
UNIT_WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=fdatasync
# its KVM is its own
SMP_WRAP := -Wl,--wrap=ioctl,--wrap=pthread_create
$(BUILD)/san/tests/unit/vmm_smp: UNIT_WRAP += $(SMP_WRAP)
$(BUILD)/san/tests/unit/vmm_kvm: UNIT_WRAP += -Wl,--wrap=ioctl
# its clock is its own
$(addprefix $(BUILD)/san/tests/unit/,vmm_trace vmm_trace_json): UNIT_WRAP += -Wl,--wrap=clock_gettime
# tests/unit/hostctl_calls_fixture.h
UNIT_WRAP_CALLS := -Wl,--wrap=fsync,--wrap=close,--wrap=unlinkat,--wrap=journal_sandbox_put,--wrap=sandboxes_begin_work
$(addprefix $(BUILD)/san/tests/unit/,hostctl_save hostctl_sandboxes_noted): UNIT_WRAP += $(UNIT_WRAP_CALLS)
# its disk is its own
$(BUILD)/san/tests/unit/guest_hold: UNIT_WRAP += -Wl,--wrap=syncfs
# its kernel has no vsock
$(BUILD)/san/tests/unit/guest_host_link: UNIT_WRAP += -Wl,--wrap=socket,--wrap=bind,--wrap=connect
# its machine has no ports
$(BUILD)/san/tests/unit/guest_marks: UNIT_WRAP += -Wl,--wrap=ioperm
# what its KVM can do is its own
$(BUILD)/san/tests/unit/hostctl_doctor: UNIT_WRAP += -Wl,--wrap=ioctl
# the clock of its wall is set
$(BUILD)/san/tests/unit/hostctl_clock: UNIT_WRAP += -Wl,--wrap=clock_gettime

# test files are named module_what.c: common_frame.c, vmm_virtq.c, guest_session.c, hostctl_api.c
unit_module = $(firstword $(subst _, ,$(notdir $(1))))
.SECONDEXPANSION:
$(UNIT_BINS): $(BUILD)/san/tests/unit/%: $(BUILD)/san/tests/unit/%.o $$(UNIT_OBJS_$$(call unit_module,$$*)) $(SUPPORT_LIB)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) $(UNIT_WRAP) -o $@ $^ -lcmocka $(TEST_LIBS_$(call unit_module,$*))

# The same under ThreadSanitizer: what several vCPU threads do to the VM.
$(BUILD)/tsan/tests/unit/vmm_smp: %: %.o $(patsubst %.c,$(BUILD)/tsan/%.o,$(filter-out %/main.c,$(VMM_SRCS)) $(COMMON_SRCS))
	@echo "  LD $@"
	@$(CC) -fsanitize=thread $(SMP_WRAP) -o $@ $^ -lcmocka $(TEST_LIBS_vmm)
CHECK_NEEDS += $(BUILD)/tsan/tests/unit/vmm_smp

.PHONY: check-unit unit
unit: $(UNIT_BINS)
## make check-unit  the unit tests, under ASan and UBSan (UNIT=name runs one)
UNIT_CHOSEN = $(filter %$(UNIT),$(UNIT_BINS))
check-unit: $(UNIT_CHOSEN)
	@[ -n '$(UNIT_CHOSEN)' ] || { echo "check-unit: no test in tests/unit has a name that ends in '$(UNIT)'" >&2; exit 2; }
	@for t in $(UNIT_CHOSEN); do echo "== $$t"; timeout 120 $$t; done

# What the suites run, beyond the programs and the unit tests; fragments add to it.
CHECK_NEEDS += $(ALL) $(UNIT_BINS) kernel images lab-prepare
.PHONY: check check-built
## make check      every test: units, machine tests and end to end, in the lab where KVM is not sound (SUITE='clones unit-vmm_elf': only these)
check: deps
	@$(MAKE) --no-print-directory -j$$(nproc) check-built
check-built: $$(CHECK_NEEDS)
	@tests/check $(BUILD)

.PHONY: check-long check-long-built
## make check-long  the suites of tests/suites-long.txt, which take too long for every day (LAB_LIMIT= seconds)
check-long: deps
	@$(MAKE) --no-print-directory -j$$(nproc) check-long-built
check-long-built: $$(CHECK_NEEDS)
	@TINDERBOX_SUITES=tests/suites-long.txt LAB_LIMIT=$${LAB_LIMIT:-14400} tests/check $(BUILD)
