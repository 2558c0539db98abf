# Fuzzing: a target is one file tests/fuzz/MODULE_WHAT.c (tests/fuzz/support/fuzz.h), linked with all of its module
# but main.c. libFuzzer runs it for `make fuzz`; standalone.c runs its corpus for `make check`.
FUZZ_SRCS    := $(wildcard tests/fuzz/*.c)
FUZZ_TARGETS := $(FUZZ_SRCS:tests/fuzz/%.c=%)
FUZZ_SUPPORT := fuzz.c
FUZZ_SUPPORT_vmm := driver.c
FUZZ_SUPPORT_guest := fake_children.c fake_time.c
FUZZ_SUPPORT_hostctl := fake_guest.c fake_process.c fake_time.c
LINT_SRCS    += $(FUZZ_SRCS) $(wildcard tests/fuzz/support/*.c)

# Three builds of each: for libFuzzer; with any compiler for its corpus; and to measure what that reaches.
FUZZ_SAN    := -fsanitize=address,undefined -fno-sanitize-recover=all
FUZZ_CFLAGS := $(BASE_CFLAGS) -O1 -g -fno-omit-frame-pointer $(FUZZ_SAN) -fsanitize=fuzzer-no-link
COVERAGE    := -fprofile-instr-generate -fcoverage-mapping
$(eval $(call rules_for,fuzz,clang,$(FUZZ_CFLAGS)))
$(eval $(call rules_for,fuzz-coverage,clang,$(BASE_CFLAGS) -O1 -g $(FUZZ_SAN) $(COVERAGE)))

# What targets replace, by the linker.
comma := ,
FUZZ_WRAP := -Wl,--wrap=epoll_wait
FUZZ_WRAP_vmm := $(addprefix -Wl$(comma)--wrap=,getrandom preadv pwritev readv sendmsg)
FUZZ_WRAP_time := $(addprefix -Wl$(comma)--wrap=,timerfd_create timerfd_settime)
FUZZ_WRAP_guest := $(FUZZ_WRAP_time) $(addprefix -Wl$(comma)--wrap=,spawn_start kill wait4)
FUZZ_WRAP_hostctl := $(FUZZ_WRAP_time) $(addprefix -Wl$(comma)--wrap=,launch_start waitid log_at cgroup_create \
	cgroup_set_weight cgroup_kill cgroup_remove cgroup_open_events cgroup_had_oom_kill)
# What bodies ask the rest of the daemon for.
FUZZ_WRAP_hostctl_bodies := $(addprefix -Wl$(comma)--wrap=,templates_pool templates_set_target templates_build sandboxes_new \
	sandboxes_find sandbox_check sandbox_ask sandbox_discard_files sandbox_hold sandbox_release sandbox_fork_begin \
	sandbox_snapshot_begin \
	commands_find commands_find_token command_record command_start command_input command_kill command_to_json http_reply_error)
# The daemon around a look at changes, and around what is stored.
FUZZ_WRAP_hostctl_changes := $(addprefix -Wl$(comma)--wrap=,vm_ask_stream vm_forget sandbox_check sandbox_hold sandbox_release)
FUZZ_WRAP_hostctl_stored := -Wl,--wrap=templates_loaded

FUZZ_MODULE_common  = $(COMMON_SRCS)
FUZZ_MODULE_vmm     = $(VMM_SRCS) $(COMMON_SRCS)
FUZZ_MODULE_guest   = $(GUEST_INIT_SRCS) $(COMMON_SRCS)
FUZZ_MODULE_hostctl = $(HOST_CTL_SRCS) $(COMMON_SRCS)
# $(call fuzz_archive,flavour,module): so that a target takes only what it reaches.
define fuzz_archive
$(BUILD)/$(1)/fuzz-$(2).a: $(patsubst %.c,$(BUILD)/$(1)/%.o,$(filter-out %/main.c,$(FUZZ_MODULE_$(2))))
	@rm -f $$@ && $(AR) rcs $$@ $$^
endef
$(foreach flavour,fuzz san fuzz-coverage,$(foreach module,common vmm guest hostctl,\
	$(eval $(call fuzz_archive,$(flavour),$(module)))))
# $(call fuzz_objects,flavour,target)
fuzz_objects = $(patsubst %.c,$(BUILD)/$(1)/%.o,tests/fuzz/$(2).c \
	$(addprefix tests/fuzz/support/,$(FUZZ_SUPPORT) $(FUZZ_SUPPORT_$(call unit_module,$(2))))) \
	$(BUILD)/$(1)/fuzz-$(call unit_module,$(2)).a
fuzz_libs = $(FUZZ_WRAP) $(FUZZ_WRAP_$(call unit_module,$(1))) $(FUZZ_WRAP_$(1)) $(TEST_LIBS_$(call unit_module,$(1)))

FUZZ_BINS := $(FUZZ_TARGETS:%=$(BUILD)/fuzz/bin/%)
.SECONDEXPANSION:
$(FUZZ_BINS): $(BUILD)/fuzz/bin/%: $$(call fuzz_objects,fuzz,$$*)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@clang $(FUZZ_SAN) -fsanitize=fuzzer -o $@ $^ $(call fuzz_libs,$*)
FUZZ_CORPUS_BINS := $(FUZZ_TARGETS:%=$(BUILD)/san/tests/fuzz/%)
$(FUZZ_CORPUS_BINS): $(BUILD)/san/tests/fuzz/%: $(BUILD)/san/tests/fuzz/support/standalone.o $$(call fuzz_objects,san,$$*)
	@echo "  LD $@"
	@$(CC) $(SAN_LDFLAGS) -o $@ $^ $(call fuzz_libs,$*)
FUZZ_COVERAGE_BINS := $(FUZZ_TARGETS:%=$(BUILD)/fuzz-coverage/bin/%)
$(FUZZ_COVERAGE_BINS): $(BUILD)/fuzz-coverage/bin/%: \
		$(BUILD)/fuzz-coverage/tests/fuzz/support/standalone.o $$(call fuzz_objects,fuzz-coverage,$$*)
	@mkdir -p $(@D)
	@echo "  LD $@"
	@clang $(FUZZ_SAN) $(COVERAGE) -o $@ $^ $(call fuzz_libs,$*)

T ?= 60
FUZZ_CHOSEN = $(filter %$(FUZZ),$(FUZZ_TARGETS))
.PHONY: fuzz fuzz-build fuzz-corpus fuzz-corpora fuzz-coverage fuzz-mutant fuzz-mutant-search
## make fuzz       each fuzz target for T seconds (60), as many at once as there are CPUs (FUZZ=vsock: that one)
fuzz: fuzz-build
	@tests/fuzz/run $(BUILD) '$(T)' $(FUZZ_CHOSEN)
fuzz-build: $(filter %$(FUZZ),$(FUZZ_BINS))

## make fuzz-corpus  the corpora of the tree anew, from what the runs have found (FUZZ=vsock: that one)
fuzz-corpus: fuzz-build
	@tests/fuzz/pack $(BUILD) $(FUZZ_CHOSEN)

# What tests/fuzz/test-corpora and selftest run.
fuzz-corpora: $(FUZZ_CORPUS_BINS)
CHECK_NEEDS += $(FUZZ_CORPUS_BINS)
fuzz-mutant:
	@$(CC) $(SAN_CFLAGS) -Wno-error -c -o $(OUT).o $(SOURCE)
	@$(CC) $(SAN_LDFLAGS) -o $(OUT) $(BUILD)/san/tests/fuzz/support/standalone.o $(OUT).o \
		$(call fuzz_objects,san,$(TARGET)) $(call fuzz_libs,$(TARGET))

# The mutant stands before the archive that holds the sound object.
fuzz-mutant-search: $(BUILD)/fuzz/bin/$(TARGET)
	@clang $(FUZZ_CFLAGS) -Wno-error -c -o $(OUT).o $(SOURCE)
	@clang $(FUZZ_SAN) -fsanitize=fuzzer -o $(OUT) $(OUT).o $(call fuzz_objects,fuzz,$(TARGET)) $(call fuzz_libs,$(TARGET))

## make fuzz-coverage  lines of each source file that the corpora reach
fuzz-coverage: $(filter %$(FUZZ),$(FUZZ_COVERAGE_BINS))
	@tests/fuzz/coverage $(BUILD) $(FUZZ_CHOSEN)
