/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile driver before a disk, which may be read-only or copy-on-write, and which the host may cut while
 * it is used.
 */
#include "tests/fuzz/support/driver.h"
#include "vmm/cow.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/blk_disk.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	DISK_BYTES = 64 * BLK_SECTOR,
	HEADER_AT = DRIVER_AREA,
	STATUS_AT = DRIVER_AREA + 0x100,
	RANGES_AT = DRIVER_AREA + 0x200,
	RANGES_MAX = BLK_DISCARD_RANGES + 1,
	COW = 0x40, /* in the first byte */
};

static int make_disk(void)
{
	int fd = memfd_create("disk", MFD_CLOEXEC);
	uint8_t pattern[DISK_BYTES];

	FUZZ_ASSERT(fd >= 0);
	memset(pattern, 0xd5, sizeof(pattern));
	FUZZ_ASSERT(pwrite(fd, pattern, sizeof(pattern), 0) == (ssize_t)sizeof(pattern));
	return fd;
}

/* The same file, for reading only: a device that writes to it all the same is refused by the kernel, and
 * seen. */
static int reopen_read_only(int disk)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", disk);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* The data of a discard or write-zeroes; mostly inside the disk. */
static struct driver_buffer place_ranges(struct driver *driver)
{
	struct virtio_blk_discard_write_zeroes ranges[RANGES_MAX];
	uint8_t shape = fuzz_u8(driver->input);
	unsigned count = shape & 0x80 ? 1 + shape % RANGES_MAX : 1;
	size_t room = count * sizeof(ranges[0]);

	for (unsigned i = 0; i < count; i++)
		ranges[i] = (struct virtio_blk_discard_write_zeroes){
			.sector = fuzz_below(driver->input, DISK_BYTES / BLK_SECTOR + 1),
			.num_sectors = fuzz_below(driver->input, 32),
			.flags = fuzz_u8(driver->input) & 3};
	if (shape & 0x40)
		ranges[count - 1].sector = fuzz_u64(driver->input);
	memcpy(driver_at(driver, RANGES_AT, &room), ranges, room);
	return (struct driver_buffer){.address = RANGES_AT, .length = (uint32_t)room - (shape & 1)};
}

/* A request as the device wants it, but for its content. */
static void step_request(struct driver *driver)
{
	struct virtio_blk_outhdr header = {.type = fuzz_below(driver->input, 16),
		.sector = fuzz_below(driver->input, DISK_BYTES / BLK_SECTOR + 4)};
	uint8_t shape = fuzz_u8(driver->input);
	bool ranges = header.type == VIRTIO_BLK_T_DISCARD || header.type == VIRTIO_BLK_T_WRITE_ZEROES;
	bool to_disk = header.type == VIRTIO_BLK_T_OUT || ranges;
	struct driver_buffer buffers[] = {
		{.address = HEADER_AT, .length = sizeof(header)},
		{.address = driver_some_address(driver),
			.length = driver_some_length(driver),
			.writable = !to_disk},
		{.address = driver_some_address(driver),
			.length = driver_some_length(driver),
			.writable = !to_disk},
		{.address = STATUS_AT, .length = 1, .writable = true},
	};
	unsigned data = ranges ? 1 : shape % 3;
	size_t room = sizeof(header);

	if (ranges)
		buffers[1] = place_ranges(driver);

	if (shape & 0x40)
		header.sector = fuzz_u64(driver->input);
	if (shape & 0x80)
		header.type = fuzz_u32(driver->input);
	memcpy(driver_at(driver, HEADER_AT, &room), &header, sizeof(header));
	buffers[1 + data] = buffers[3];
	driver_offer(driver, 0, driver_chain(driver, 0, buffers, 2 + data), 1);
	driver_kick(driver, 0);
}

static void check_disk(int disk, bool read_only, off_t size)
{
	uint8_t byte, pattern = 0xd5;

	FUZZ_ASSERT(lseek(disk, 0, SEEK_END) == size); /* a guest never changes the length */
	for (off_t at = 0; read_only && at < size; at += 61) {
		FUZZ_ASSERT(pread(disk, &byte, 1, at) == 1);
		FUZZ_ASSERT(byte == pattern);
	}
}

/* Another disk takes it, so it is an upper still, whatever the driver did. */
static void check_upper(int disk, int upper)
{
	struct blk_disk *again;

	FUZZ_ASSERT(cow_create(reopen_read_only(disk), fcntl(upper, F_DUPFD_CLOEXEC, 0), &again) == 0);
	again->ops->destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct blk_config config = {.id = "fuzz"};
	struct virtio_device *device;
	struct driver driver;
	off_t length = DISK_BYTES;
	int disk, upper = -1;
	bool kept;
	uint8_t kind;

	fuzz_begin();
	driver_init(&driver, &input);
	disk = make_disk();
	kind = fuzz_u8(&input);
	config.read_only = kind & 1;
	if (!config.read_only && (kind & COW)) {
		upper = memfd_create("upper", MFD_CLOEXEC);
		FUZZ_ASSERT(cow_create(reopen_read_only(disk), fcntl(upper, F_DUPFD_CLOEXEC, 0),
				    &config.disk) == 0);
	} else {
		config.fd = config.read_only ? reopen_read_only(disk) : fcntl(disk, F_DUPFD_CLOEXEC, 0);
	}
	kept = config.read_only || upper >= 0;
	FUZZ_ASSERT(blk_create(&config, &device) == 0);
	driver_attach(&driver, device);
	while (driver_goes_on(&driver)) {
		uint8_t choice = fuzz_u8(&input);

		if (choice == 0xff) {
			length = fuzz_u16(&input) % (DISK_BYTES + 1); /* it is cut, or filled up with zeros */
			length = length < DISK_BYTES / 2 ? length : DISK_BYTES / 2;
			FUZZ_ASSERT(ftruncate(disk, length) == 0);
		} else if (choice & 1) {
			step_request(&driver);
		} else {
			driver_step(&driver);
		}
	}
	driver_settle(&driver);
	/* A write may have filled up a file that was cut; the disk's own end stays its bound. */
	if (length == DISK_BYTES || kept)
		check_disk(disk, kept && length == DISK_BYTES, length);
	FUZZ_ASSERT(lseek(disk, 0, SEEK_END) <= DISK_BYTES);
	driver_finish(&driver);
	if (upper >= 0 && length == DISK_BYTES)
		check_upper(disk, upper);
	if (upper >= 0)
		close(upper);
	close(disk);
	fuzz_end();
	return 0;
}
