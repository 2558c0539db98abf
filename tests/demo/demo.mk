# `make run`: the whole path once, with real VMs; and the figures beside posix_spawn.

.PHONY: run run-built
## make run        install, build, and run commands in warm VMs, in the lab where KVM is not sound
run:
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$$(nproc) run-built
run-built: $(ALL) $(BUILD)/kernel/vmlinux-up images $(FIRST_BYTE)
	@tests/demo/run $(BUILD)
