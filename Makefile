# Tinderbox: one non-recursive Makefile; each folder brings its own fragment.
# `make help` lists the targets.

.DEFAULT_GOAL := all
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:

BUILD := build
export TINDERBOX_CACHE ?= $(HOME)/.cache/tinderbox

CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
MUSL_CC  ?= musl-gcc

WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
BASE_CFLAGS := -std=c11 -D_GNU_SOURCE -I. $(WARN) -MMD -MP
# Kernel headers for musl: after musl's own, so that libc headers stay musl's.
MUSL_CFLAGS := $(BASE_CFLAGS) -Oz -fno-pie -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables \
	-fstack-protector-strong -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu
STATIC_LD := common/static.ld
MUSL_LDFLAGS := -static -no-pie -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,norelro -Wl,-T,$(STATIC_LD)
HOST_CFLAGS := $(BASE_CFLAGS) -O2 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2
SAN_CFLAGS  := $(BASE_CFLAGS) -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
SAN_LDFLAGS := -fsanitize=address,undefined

# What each fragment adds to.
ALL :=          # built by `make`
UNIT_TESTS :=   # executables run by `make check-unit`
LINT_SRCS :=    # C files that clang-tidy and cppcheck read
CLEAN_NOTE :=

# $(call rules_for,flavour,compiler,cflags): how a C file becomes an object in build/<flavour>/.
define rules_for
$(BUILD)/$(1)/%.o: %.c
	@mkdir -p $$(@D)
	@echo "  CC $(1) $$<"
	@$(2) $(3) -c -o $$@ $$<
endef
$(eval $(call rules_for,musl,$(MUSL_CC),$(MUSL_CFLAGS)))
$(eval $(call rules_for,host,$(CC),$(HOST_CFLAGS)))
$(eval $(call rules_for,san,$(CC),$(SAN_CFLAGS)))

FRAGMENTS := $(wildcard common/common.mk vmm/vmm.mk guest-init/guest-init.mk host-ctl/host-ctl.mk \
	kernel-config/kernel.mk rootfs/rootfs.mk tests/lab/lab.mk tests/lint/lint.mk tests/machine/machine.mk tests/e2e/e2e.mk tests/bench/bench.mk tests/demo/demo.mk tests/fuzz/fuzz.mk tests/python/python.mk tests/tests.mk)
include $(FRAGMENTS)

.PHONY: all help deps clean
all: $(ALL)

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make            build vmm, guest-init, host-ctl (not the kernel and the images)
## make help       this list
## make deps       install the Debian packages of packages.txt that are missing
deps:
	@missing=$$(sed 's/#.*//' packages.txt | xargs -n1 | while read -r p; do \
	    dpkg-query -W -f='$${Status}' "$$p" 2>/dev/null | grep -q 'ok installed' || echo "$$p"; done); \
	if [ -n "$$missing" ]; then echo "deps: installing" $$missing; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

## make clean      remove build/ (the kernel cache stays in $TINDERBOX_CACHE)
clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
