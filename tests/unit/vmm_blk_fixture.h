/* SPDX-License-Identifier: Apache-2.0 */
/* A disk of numbered sectors, and requests for it. */
#ifndef TESTS_UNIT_VMM_BLK_FIXTURE_H
#define TESTS_UNIT_VMM_BLK_FIXTURE_H

#include "tests/support/unit.h"

#include "common/log.h"
#include "tests/support/fake_driver.h"
#include "tests/support/fake_sync.h"
#include "tests/support/reopen.h"
#include "vmm/cow.h"
#include "vmm/virtio/blk.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SECTORS = 64, UNTOUCHED = 0xee, DATA_BYTES = 64 * 1024 };

struct fixture {
	struct fake_driver driver;
	int file;  /* ours: read and write */
	int upper; /* -1: file is the disk, not its lower file only */
	gpa_t header, data, status;
};

/* Each sector is filled with its number. */
static inline int make_file(void)
{
	int file = memfd_create("disk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t sector[BLK_SECTOR];

	assert_true(file >= 0);
	for (unsigned i = 0; i < SECTORS; i++) {
		memset(sector, (int)i, sizeof(sector));
		assert_int_equal(pwrite(file, sector, sizeof(sector), (off_t)i * BLK_SECTOR), sizeof(sector));
	}
	return file;
}

/* The driver of a new device, which takes all features but the unwanted. */
static inline void start_driver(struct fixture *f, const struct blk_config *config, uint64_t unwanted)
{
	struct virtio_device *device;

	assert_int_equal(blk_create(config, &device), 0);
	fake_driver_init(&f->driver);
	fake_driver_attach(&f->driver, device);
	f->header = fake_driver_alloc(&f->driver, sizeof(struct virtio_blk_outhdr));
	f->data = fake_driver_alloc(&f->driver, DATA_BYTES);
	f->status = fake_driver_alloc(&f->driver, 1);
	fake_driver_start(&f->driver, fake_driver_features(&f->driver) & ~unwanted);
}

static inline int setup_on(void **state, bool read_only, bool cow, uint64_t unwanted)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct blk_config config = {.read_only = read_only, .id = "disk-0123456789-abcdefghi"};

	assert_non_null(f);
	f->file = make_file();
	f->upper = -1;
	config.fd = reopen(f->file, read_only || cow ? O_RDONLY : O_RDWR);
	if (cow) {
		f->upper = memfd_create("upper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(cow_create(config.fd, reopen(f->upper, O_RDWR), &config.disk), 0);
	}
	start_driver(f, &config, unwanted);
	*state = f;
	return 0;
}

static inline int setup_with(void **state, bool read_only, uint64_t unwanted)
{
	return setup_on(state, read_only, false, unwanted);
}

static inline int setup_cow(void **state)
{
	return setup_on(state, false, true, 0);
}

static inline int setup(void **state)
{
	return setup_with(state, false, 0);
}

static inline int setup_read_only(void **state)
{
	return setup_with(state, true, 0);
}

static inline int setup_without_event_index(void **state)
{
	return setup_with(state, false, VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX));
}

static inline int setup_without_flush(void **state)
{
	return setup_with(state, false, VIRTIO_FEATURE(VIRTIO_BLK_F_FLUSH));
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	fake_driver_finish(&f->driver);
	close(f->file);
	if (f->upper >= 0)
		close(f->upper);
	free(f);
	return 0;
}

static inline uint8_t *data(struct fixture *f)
{
	return fake_driver_at(&f->driver, f->data, DATA_BYTES);
}

static inline void set_header(struct fixture *f, uint32_t type, uint64_t sector)
{
	struct virtio_blk_outhdr header = {.type = type, .sector = sector};

	memcpy(fake_driver_at(&f->driver, f->header, sizeof(header)), &header, sizeof(header));
	*(uint8_t *)fake_driver_at(&f->driver, f->status, 1) = UNTOUCHED;
}

/* Sends the chain; it must come back. The bytes written. */
static inline uint32_t send_chain(struct fixture *f, const struct fake_buffer *buffers, unsigned count)
{
	uint16_t sent = fake_driver_chain(&f->driver, 0, buffers, count), head;
	uint32_t written;

	fake_driver_offer(&f->driver, 0, sent);
	fake_driver_kick(&f->driver, 0);
	assert_true(fake_driver_used(&f->driver, 0, &head, &written));
	assert_int_equal(head, sent);
	return written;
}

static inline uint8_t status_of(struct fixture *f)
{
	return *(uint8_t *)fake_driver_at(&f->driver, f->status, 1);
}

/* A request as Linux builds it: header, data in one piece if any, status. *written may be NULL. */
static inline uint8_t request(
	struct fixture *f, uint32_t type, uint64_t sector, uint32_t length, bool to_guest, uint32_t *written)
{
	struct fake_buffer buffers[3] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = f->data, .length = length, .writable = to_guest},
		{.address = f->status, .length = 1, .writable = true},
	};
	uint32_t bytes;

	set_header(f, type, sector);
	if (length == 0)
		buffers[1] = buffers[2];
	bytes = send_chain(f, buffers, length ? 3 : 2);
	if (written)
		*written = bytes;
	return status_of(f);
}

static inline uint8_t read_disk(struct fixture *f, uint64_t sector, uint32_t length)
{
	return request(f, VIRTIO_BLK_T_IN, sector, length, true, NULL);
}

static inline uint8_t write_disk(struct fixture *f, uint64_t sector, uint32_t length)
{
	return request(f, VIRTIO_BLK_T_OUT, sector, length, false, NULL);
}

static inline void assert_sector(struct fixture *f, unsigned sector, uint8_t value)
{
	uint8_t bytes[BLK_SECTOR];

	assert_int_equal(pread(f->file, bytes, sizeof(bytes), (off_t)sector * BLK_SECTOR), sizeof(bytes));
	for (unsigned i = 0; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], value);
}

static inline void assert_disk_untouched(struct fixture *f)
{
	for (unsigned i = 0; i < SECTORS; i++)
		assert_sector(f, i, (uint8_t)i);
	assert_int_equal(lseek(f->file, 0, SEEK_END), SECTORS * BLK_SECTOR);
}

static inline void assert_needs_reset(struct fixture *f)
{
	uint16_t head;
	uint32_t written;

	assert_int_equal(fake_driver_status(&f->driver), 0xf | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_false(fake_driver_used(&f->driver, 0, &head, &written));
	assert_int_equal(f->driver.faults, 0);
	fake_driver_start(&f->driver, fake_driver_features(&f->driver));
	assert_int_equal(read_disk(f, 3, BLK_SECTOR), VIRTIO_BLK_S_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
/* The same with a copy-on-write disk. */
#define CASE_COW(name) cmocka_unit_test_setup_teardown(name, setup_cow, teardown)

#endif
