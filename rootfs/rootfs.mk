# Guest images: the base (erofs), the initramfs with guest-init, and python's.

BASE_IMAGE := $(BUILD)/images/base.erofs
INITRAMFS  := $(BUILD)/images/initramfs.cpio
PYTHON_IMAGE := $(BUILD)/images/python.erofs
ROOTFS_DEPS := rootfs/lib.sh

## make images     build the base image and the initramfs
.PHONY: images check-images
images: $(BASE_IMAGE) $(INITRAMFS)

# `deliver` leaves an image alone when its bytes are the same, so mark the visit.
$(BASE_IMAGE): rootfs/build-base rootfs/base.manifest $(ROOTFS_DEPS) $(shell find rootfs/base -type f) $(wildcard /bin/busybox)
	@rootfs/build-base $@ && touch $@

$(INITRAMFS): rootfs/build-initramfs $(ROOTFS_DEPS) $(BUILD)/guest-init/guest-init
	@rootfs/build-initramfs $@ $(BUILD)/guest-init/guest-init && touch $@

## make image-python  build the image of Debian's python3 (kept in $TINDERBOX_CACHE; REFRESH=1 takes today's packages)
.PHONY: image-python
image-python: $(PYTHON_IMAGE)
$(PYTHON_IMAGE): rootfs/build-python rootfs/build-image rootfs/debian.sh $(ROOTFS_DEPS) $(shell find rootfs/base -type f) $(if $(REFRESH),rootfs-always)
	@rootfs/build-python $@ && touch $@
.PHONY: rootfs-always
rootfs-always:
CHECK_NEEDS += image-python

check-images: images
	@rootfs/test-images $(BASE_IMAGE) $(INITRAMFS) $(BUILD)/guest-init/guest-init
	@rootfs/test-build-image $(BASE_IMAGE)
