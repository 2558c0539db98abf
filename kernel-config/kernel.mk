# The guest kernels: built by kernel-config/build-kernel, which caches by the hash of their inputs.

# The product's: for one vCPU, and for 2 to 8.
KERNELS := $(BUILD)/kernel/vmlinux-up $(BUILD)/kernel/vmlinux-smp
# Only for tests: without device tree.
KERNEL_FOREIGN := $(BUILD)/kernel/vmlinux-foreign
CHECK_NEEDS += kernel-foreign

## make kernel     build the guest kernels (cached by the hash of their inputs, several minutes each the first time)
.PHONY: kernel kernel-foreign check-kernel-config
kernel: $(KERNELS)
## make kernel-foreign  build the one without device tree, which only tests boot
kernel-foreign: $(KERNEL_FOREIGN)

# Always asked: only the script knows whether the compiler or the source package changed. It takes a
# fraction of a second and leaves the file alone when nothing did. One after the other: each build takes all processors.
$(BUILD)/kernel/vmlinux-smp: | $(BUILD)/kernel/vmlinux-up
$(KERNEL_FOREIGN): | $(KERNELS)
$(KERNELS) $(KERNEL_FOREIGN): $(BUILD)/kernel/vmlinux-%: kernel-config-always
	@kernel-config/build-kernel --out $(@D) $*
.PHONY: kernel-config-always
kernel-config-always:

check-kernel-config:
	@kernel-config/test-check-config
