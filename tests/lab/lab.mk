# The lab: a test host with a sound /dev/kvm, made by QEMU's TCG. docs/testing.md describes it.

LAB_DIR := tests/lab
LIMIT ?= 600
MEM ?= 4096

LINT_SRCS += $(LAB_DIR)/kvm-api.c

.PHONY: lab lab-prepare check-lab

## make lab CMD='…'  run a bash line in the lab (LIMIT= seconds, MEM= MiB, OUT= folder for /results)
# The value as typed: a dollar sign in it is for the shell in the lab, not for make.
lab: override export CMD := $(value CMD)
lab:
	@[[ -n $$CMD ]] || { echo "usage: make lab CMD='…' [LIMIT=seconds] [MEM=MiB] [OUT=folder]" >&2; exit 2; }
	@$(LAB_DIR)/run --limit $(LIMIT) --memory $(MEM) $(if $(OUT),--out '$(OUT)') -- "$$CMD"

## make lab-prepare  build the lab's kernel and initramfs into $TINDERBOX_CACHE
lab-prepare:
	@$(LAB_DIR)/prepare >/dev/null

## make check-lab    test the lab itself
check-lab: lab-prepare
	@BUILD=$(BUILD) CC=$(CC) $(LAB_DIR)/selftest
