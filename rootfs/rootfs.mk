# Guest images: the base (erofs) and the initramfs with guest-init.

BASE_IMAGE := $(BUILD)/images/base.erofs
INITRAMFS  := $(BUILD)/images/initramfs.cpio
ROOTFS_DEPS := rootfs/lib.sh

## make images     build the base image and the initramfs
.PHONY: images check-images
images: $(BASE_IMAGE) $(INITRAMFS)

# `deliver` leaves an image alone when its bytes are the same, so mark the visit.
$(BASE_IMAGE): rootfs/build-base rootfs/base.manifest $(ROOTFS_DEPS) $(shell find rootfs/base -type f) $(wildcard /bin/busybox)
	@rootfs/build-base $@ && touch $@

$(INITRAMFS): rootfs/build-initramfs $(ROOTFS_DEPS) $(BUILD)/guest-init/guest-init
	@rootfs/build-initramfs $@ $(BUILD)/guest-init/guest-init && touch $@

check-images: images
	@rootfs/test-images $(BASE_IMAGE) $(INITRAMFS) $(BUILD)/guest-init/guest-init
