# The guest kernel: built by kernel-config/build-kernel, which caches by the hash of its inputs.

KERNEL := $(BUILD)/kernel/vmlinux-up

## make kernel     build the guest kernel (cached by the hash of its inputs, several minutes the first time)
.PHONY: kernel check-kernel-config
kernel: $(KERNEL)

# Always asked: only the script knows whether the compiler or the source package changed. It takes a
# fraction of a second and leaves the file alone when nothing did.
$(KERNEL): kernel-config-always
	@kernel-config/build-kernel --out $(@D) up
.PHONY: kernel-config-always
kernel-config-always:

check-kernel-config:
	@kernel-config/test-check-config
