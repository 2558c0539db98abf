/* SPDX-License-Identifier: Apache-2.0 */
/* blk on a file: requests well and badly built, and what becomes of the disk. */
#include "tests/support/unit.h"

#include "common/log.h"
#include "tests/support/fake_driver.h"
#include "tests/support/fake_sync.h"
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
	int file; /* ours: read and write */
	gpa_t header, data, status;
};

/* Another fd of the file, opened with flags. */
static int open_disk(int file, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* Each sector is filled with its number. */
static int make_file(void)
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

static int setup_with(void **state, bool read_only, uint64_t unwanted)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct blk_config config = {.read_only = read_only, .id = "disk-0123456789-abcdefghi"};
	struct virtio_device *device;

	assert_non_null(f);
	f->file = make_file();
	config.fd = open_disk(f->file, read_only ? O_RDONLY : O_RDWR);
	assert_int_equal(blk_create(&config, &device), 0);
	fake_driver_init(&f->driver);
	fake_driver_attach(&f->driver, device);
	f->header = fake_driver_alloc(&f->driver, sizeof(struct virtio_blk_outhdr));
	f->data = fake_driver_alloc(&f->driver, DATA_BYTES);
	f->status = fake_driver_alloc(&f->driver, 1);
	fake_driver_start(&f->driver, fake_driver_features(&f->driver) & ~unwanted);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, false, 0);
}

static int setup_read_only(void **state)
{
	return setup_with(state, true, 0);
}

static int setup_without_event_index(void **state)
{
	return setup_with(state, false, VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX));
}

static int setup_without_flush(void **state)
{
	return setup_with(state, false, VIRTIO_FEATURE(VIRTIO_BLK_F_FLUSH));
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_driver_finish(&f->driver);
	close(f->file);
	free(f);
	return 0;
}

static uint8_t *data(struct fixture *f)
{
	return fake_driver_at(&f->driver, f->data, DATA_BYTES);
}

static void set_header(struct fixture *f, uint32_t type, uint64_t sector)
{
	struct virtio_blk_outhdr header = {.type = type, .sector = sector};

	memcpy(fake_driver_at(&f->driver, f->header, sizeof(header)), &header, sizeof(header));
	*(uint8_t *)fake_driver_at(&f->driver, f->status, 1) = UNTOUCHED;
}

/* Sends the chain; it must come back. The bytes written. */
static uint32_t send_chain(struct fixture *f, const struct fake_buffer *buffers, unsigned count)
{
	uint16_t sent = fake_driver_chain(&f->driver, 0, buffers, count), head;
	uint32_t written;

	fake_driver_offer(&f->driver, 0, sent);
	fake_driver_kick(&f->driver, 0);
	assert_true(fake_driver_used(&f->driver, 0, &head, &written));
	assert_int_equal(head, sent);
	return written;
}

static uint8_t status_of(struct fixture *f)
{
	return *(uint8_t *)fake_driver_at(&f->driver, f->status, 1);
}

/* A request as Linux builds it: header, data in one piece if any, status. *written may be NULL. */
static uint8_t request(
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

static uint8_t read_disk(struct fixture *f, uint64_t sector, uint32_t length)
{
	return request(f, VIRTIO_BLK_T_IN, sector, length, true, NULL);
}

static uint8_t write_disk(struct fixture *f, uint64_t sector, uint32_t length)
{
	return request(f, VIRTIO_BLK_T_OUT, sector, length, false, NULL);
}

static void assert_sector(struct fixture *f, unsigned sector, uint8_t value)
{
	uint8_t bytes[BLK_SECTOR];

	assert_int_equal(pread(f->file, bytes, sizeof(bytes), (off_t)sector * BLK_SECTOR), sizeof(bytes));
	for (unsigned i = 0; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], value);
}

static void assert_disk_untouched(struct fixture *f)
{
	for (unsigned i = 0; i < SECTORS; i++)
		assert_sector(f, i, (uint8_t)i);
	assert_int_equal(lseek(f->file, 0, SEEK_END), SECTORS * BLK_SECTOR);
}

static void assert_needs_reset(struct fixture *f)
{
	uint16_t head;
	uint32_t written;

	assert_int_equal(fake_driver_status(&f->driver), 0xf | VIRTIO_CONFIG_S_NEEDS_RESET);
	assert_false(fake_driver_used(&f->driver, 0, &head, &written));
	assert_int_equal(f->driver.faults, 0);
	fake_driver_start(&f->driver, fake_driver_features(&f->driver));
	assert_int_equal(read_disk(f, 3, BLK_SECTOR), VIRTIO_BLK_S_OK);
}

/* create */

static int create(int fd, bool read_only)
{
	struct virtio_device *device = NULL;
	struct blk_config config = {.fd = fd, .read_only = read_only};
	int error = blk_create(&config, &device);

	assert_true(error == 0 || !device);
	virtio_device_destroy(device);
	assert_int_equal(fcntl(fd, F_GETFD), -1); /* taken over in any case */
	assert_int_equal(errno, EBADF);
	return error;
}

static void files_that_are_no_disk_are_refused(void **state)
{
	int file = make_file(), empty = memfd_create("empty", MFD_CLOEXEC), pair[2], pipes[2];

	(void)state;
	assert_int_equal(create(open_disk(file, O_RDWR), false), 0);
	assert_int_equal(create(open_disk(file, O_RDWR), true), 0);
	assert_int_equal(create(open_disk(file, O_RDONLY), true), 0);
	assert_int_equal(create(open_disk(file, O_RDONLY), false), -EACCES);
	assert_int_equal(create(open_disk(file, O_WRONLY), false), -EACCES);
	assert_int_equal(create(open_disk(file, O_WRONLY), true), -EACCES);
	assert_int_equal(create(open("/proc/self/exe", O_PATH | O_CLOEXEC), true), -EACCES);
	assert_int_equal(ftruncate(file, SECTORS * BLK_SECTOR - 1), 0);
	assert_int_equal(create(open_disk(file, O_RDWR), false), -EINVAL);
	assert_int_equal(create(empty, false), -EINVAL);
	assert_int_equal(create(open("/tmp", O_RDONLY | O_CLOEXEC), true), -ENOTBLK);
	assert_int_equal(create(open("/dev/zero", O_RDWR | O_CLOEXEC), false), -ENOTBLK);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(create(pipes[0], true), -ENOTBLK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(create(pair[0], false), -ENOTBLK);
	close(pipes[1]);
	close(pair[1]);
	close(file);
}

static uint32_t config32(struct fixture *f, size_t offset)
{
	return fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG + offset);
}

static void the_configuration_says_its_size_and_limits(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, capacity)), SECTORS);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, capacity) + 4), 0);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, size_max)), BLK_SEGMENT_MAX);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, seg_max)), BLK_SEGMENTS_MAX);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, blk_size)), BLK_SECTOR);
	assert_true(fake_driver_features(&f->driver) ==
		    (VIRTIO_FEATURES_COMMON | VIRTIO_FEATURE(VIRTIO_BLK_F_SIZE_MAX) |
			    VIRTIO_FEATURE(VIRTIO_BLK_F_SEG_MAX) | VIRTIO_FEATURE(VIRTIO_BLK_F_BLK_SIZE) |
			    VIRTIO_FEATURE(VIRTIO_BLK_F_FLUSH)));
}

static void a_read_only_disk_says_so(void **state)
{
	struct fixture *f = *state;
	uint64_t features = fake_driver_features(&f->driver);

	assert_true(features & VIRTIO_FEATURE(VIRTIO_BLK_F_RO));
	assert_false(features & VIRTIO_FEATURE(VIRTIO_BLK_F_FLUSH));
}

/* reading and writing */

static void sectors_are_read(void **state)
{
	struct fixture *f = *state;
	uint32_t written;

	assert_int_equal(request(f, VIRTIO_BLK_T_IN, 5, 3 * BLK_SECTOR, true, &written), VIRTIO_BLK_S_OK);
	assert_int_equal(written, 3 * BLK_SECTOR + 1);
	for (unsigned i = 0; i < 3 * BLK_SECTOR; i++)
		assert_int_equal(data(f)[i], 5 + i / BLK_SECTOR);
	assert_int_equal(data(f)[3 * BLK_SECTOR], 0);
	assert_int_equal(f->driver.interrupts, 1);
	assert_int_equal(read_disk(f, 0, SECTORS * BLK_SECTOR), VIRTIO_BLK_S_OK); /* all of it */
	assert_int_equal(data(f)[SECTORS * BLK_SECTOR - 1], SECTORS - 1);
}

static void sectors_are_written(void **state)
{
	struct fixture *f = *state;
	uint32_t written;

	memset(data(f), 0xab, 2 * BLK_SECTOR);
	assert_int_equal(request(f, VIRTIO_BLK_T_OUT, 10, 2 * BLK_SECTOR, false, &written), VIRTIO_BLK_S_OK);
	assert_int_equal(written, 1);
	assert_sector(f, 9, 9);
	assert_sector(f, 10, 0xab);
	assert_sector(f, 11, 0xab);
	assert_sector(f, 12, 12);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, 0, false, &written), VIRTIO_BLK_S_OK);
	assert_int_equal(written, 1);
	assert_int_equal(read_disk(f, 11, BLK_SECTOR), VIRTIO_BLK_S_OK);
	assert_int_equal(data(f)[0], 0xab);
}

static void a_request_may_lie_in_many_pieces(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[BLK_QUEUE_SIZE];
	unsigned count = 0, i;

	/* the header in three, the data in odd pieces across each other, the status behind data in one piece
	 */
	set_header(f, VIRTIO_BLK_T_IN, 7);
	buffers[count++] = (struct fake_buffer){.address = f->header, .length = 1};
	buffers[count++] = (struct fake_buffer){.address = f->header + 1, .length = 10};
	buffers[count++] = (struct fake_buffer){.address = f->header + 11, .length = 5};
	for (i = 0; i < 4; i++)
		buffers[count++] =
			(struct fake_buffer){.address = f->data + 4000 * i, .length = 111, .writable = true};
	buffers[count++] = (struct fake_buffer){
		.address = f->data + 20000, .length = BLK_SECTOR - 444 + 1, .writable = true};
	data(f)[20000 + BLK_SECTOR - 444] = UNTOUCHED;
	assert_int_equal(send_chain(f, buffers, count), BLK_SECTOR + 1);
	assert_int_equal(data(f)[20000 + BLK_SECTOR - 444], VIRTIO_BLK_S_OK);
	for (i = 0; i < 4; i++)
		assert_int_equal(data(f)[4000 * i + 110], 7);
	assert_int_equal(data(f)[20000 + BLK_SECTOR - 445], 7);
}

static void a_request_as_long_as_the_queue_works(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[BLK_QUEUE_SIZE];

	set_header(f, VIRTIO_BLK_T_IN, 1);
	buffers[0] = (struct fake_buffer){.address = f->header, .length = sizeof(struct virtio_blk_outhdr)};
	for (unsigned i = 0; i < BLK_SEGMENTS_MAX; i++) /* 63 sectors in halves */
		buffers[1 + i] =
			(struct fake_buffer){.address = f->data + i * 256, .length = 256, .writable = true};
	buffers[BLK_QUEUE_SIZE - 1] =
		(struct fake_buffer){.address = f->status, .length = 1, .writable = true};
	assert_int_equal(send_chain(f, buffers, BLK_QUEUE_SIZE), 63 * BLK_SECTOR + 1);
	assert_int_equal(status_of(f), VIRTIO_BLK_S_OK);
	assert_int_equal(data(f)[62 * BLK_SECTOR], 63);
}

static void the_serial_is_cut_and_padded(void **state)
{
	struct fixture *f = *state;
	uint32_t written;

	assert_int_equal(request(f, VIRTIO_BLK_T_GET_ID, 0, BLK_ID_BYTES, true, &written), VIRTIO_BLK_S_OK);
	assert_int_equal(written, BLK_ID_BYTES + 1);
	assert_memory_equal(data(f), "disk-0123456789-abcd", BLK_ID_BYTES);
	assert_int_equal(data(f)[BLK_ID_BYTES], 0);
	assert_int_equal(
		request(f, VIRTIO_BLK_T_GET_ID, 0, BLK_ID_BYTES - 1, true, &written), VIRTIO_BLK_S_IOERR);
	assert_int_equal(written, 0);
	assert_int_equal(request(f, VIRTIO_BLK_T_GET_ID, 0, 0, true, NULL), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(f, VIRTIO_BLK_T_GET_ID, 0, BLK_ID_BYTES, false, NULL), VIRTIO_BLK_S_IOERR);
}

/* refused */

static void requests_outside_the_disk_fail(void **state)
{
	static const struct {
		uint64_t sector;
		uint32_t sectors;
	} outside[] = {
		{SECTORS, 1},
		{SECTORS - 1, 2},
		{0, SECTORS + 1},
		{UINT64_MAX, 1},
		{UINT64_MAX / BLK_SECTOR, 1},
		{UINT64_MAX / BLK_SECTOR + 1, 1}, /* in bytes it wraps to 0 */
		{UINT64_C(1) << 55, 1},
	};
	struct fixture *f = *state;

	memset(data(f), 0xcc, DATA_BYTES);
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		uint32_t length = outside[i].sectors * BLK_SECTOR, written;

		assert_int_equal(request(f, VIRTIO_BLK_T_IN, outside[i].sector, length, true, &written),
			VIRTIO_BLK_S_IOERR);
		assert_int_equal(written, 0);
		assert_int_equal(data(f)[0], 0xcc);
		assert_int_equal(write_disk(f, outside[i].sector, length), VIRTIO_BLK_S_IOERR);
	}
	assert_disk_untouched(f);
	assert_int_equal(read_disk(f, SECTORS - 1, BLK_SECTOR), VIRTIO_BLK_S_OK); /* the very last */
	assert_int_equal(data(f)[0], SECTORS - 1);
}

static void lengths_that_are_no_sectors_fail(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(read_disk(f, 0, 0), VIRTIO_BLK_S_IOERR);
	assert_int_equal(read_disk(f, 0, 1), VIRTIO_BLK_S_IOERR);
	assert_int_equal(read_disk(f, 0, BLK_SECTOR + 1), VIRTIO_BLK_S_IOERR);
	assert_int_equal(write_disk(f, 0, 0), VIRTIO_BLK_S_IOERR);
	assert_int_equal(write_disk(f, 0, BLK_SECTOR - 1), VIRTIO_BLK_S_IOERR);
	assert_disk_untouched(f);
}

static void a_request_longer_than_the_bound_fails(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[20] = {{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)}};

	/* the same 2 MiB of memory again and again, for a disk that would be large enough */
	assert_int_equal(ftruncate(f->file, (off_t)BLK_REQUEST_MAX * 2), 0);
	fake_driver_finish(&f->driver);
	{
		struct blk_config config = {.fd = open_disk(f->file, O_RDWR)};
		struct virtio_device *device;

		assert_int_equal(blk_create(&config, &device), 0);
		fake_driver_init(&f->driver);
		fake_driver_attach(&f->driver, device);
	}
	f->header = fake_driver_alloc(&f->driver, sizeof(struct virtio_blk_outhdr));
	f->status = fake_driver_alloc(&f->driver, 1);
	f->data = fake_driver_alloc(&f->driver, BLK_REQUEST_MAX / 18);
	fake_driver_start(&f->driver, fake_driver_features(&f->driver));
	for (unsigned i = 1; i <= 18; i++)
		buffers[i] = (struct fake_buffer){
			.address = f->data, .length = BLK_REQUEST_MAX / 18, .writable = true};
	buffers[0].address = f->header;
	buffers[19] = (struct fake_buffer){.address = f->status, .length = 1, .writable = true};
	set_header(f, VIRTIO_BLK_T_IN, 0);
	assert_int_equal(send_chain(f, buffers, 20), BLK_REQUEST_MAX + 1);
	assert_int_equal(status_of(f), VIRTIO_BLK_S_OK);
	buffers[18].length += BLK_SECTOR;
	set_header(f, VIRTIO_BLK_T_IN, 0);
	assert_int_equal(send_chain(f, buffers, 20), 0);
	assert_int_equal(status_of(f), VIRTIO_BLK_S_IOERR);
}

static void wrong_directions_fail(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[4] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = f->data, .length = BLK_SECTOR},
		{.address = f->data + BLK_SECTOR, .length = BLK_SECTOR, .writable = true},
		{.address = f->status, .length = 1, .writable = true},
	};

	/* a read into memory that may only be read, a write from memory that may only be written */
	assert_int_equal(request(f, VIRTIO_BLK_T_IN, 1, BLK_SECTOR, false, NULL), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(f, VIRTIO_BLK_T_OUT, 1, BLK_SECTOR, true, NULL), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, BLK_SECTOR, true, NULL), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, BLK_SECTOR, false, NULL), VIRTIO_BLK_S_IOERR);
	for (uint32_t type = VIRTIO_BLK_T_IN; type <= VIRTIO_BLK_T_OUT; type++) { /* both at once */
		set_header(f, type, 1);
		assert_int_equal(send_chain(f, buffers, 4), 0);
		assert_int_equal(status_of(f), VIRTIO_BLK_S_IOERR);
	}
	assert_disk_untouched(f);
}

static void unknown_requests_are_unsupported(void **state)
{
	static const uint32_t types[] = {2, 3, 5, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES,
		14 /* secure erase */, 99, UINT32_MAX};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_int_equal(request(f, types[i], 0, BLK_SECTOR, false, NULL), VIRTIO_BLK_S_UNSUPP);
		assert_int_equal(request(f, types[i], 0, 0, false, NULL), VIRTIO_BLK_S_UNSUPP);
	}
	assert_disk_untouched(f);
}

static void a_short_header_fails(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[2] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr) - 1},
		{.address = f->status, .length = 1, .writable = true},
	};

	set_header(f, VIRTIO_BLK_T_FLUSH, 0);
	assert_int_equal(send_chain(f, buffers, 2), 1);
	assert_int_equal(status_of(f), VIRTIO_BLK_S_IOERR);
	set_header(f, VIRTIO_BLK_T_FLUSH, 0);
	assert_int_equal(send_chain(f, buffers + 1, 1), 1); /* no header at all */
	assert_int_equal(status_of(f), VIRTIO_BLK_S_IOERR);
}

static void no_room_for_a_status_needs_a_reset(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[2] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = f->data, .length = BLK_SECTOR},
	};

	set_header(f, VIRTIO_BLK_T_OUT, 1);
	fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, 2));
	fake_driver_kick(&f->driver, 0);
	assert_needs_reset(f);
	assert_disk_untouched(f);
}

static void bad_chains_need_a_reset(void **state)
{
	static const struct fake_buffer bad[] = {
		{.address = FAKE_MEMORY, .length = 512, .writable = true},
		{.address = FAKE_MEMORY - 1, .length = 2, .writable = true},
		{.address = UINT64_MAX - 100, .length = 512, .writable = true},
		{.address = 0x1000, .length = 0, .writable = true},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fake_buffer buffers[3] = {
			{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)}, bad[i],
			{.address = f->status, .length = 1, .writable = true}};

		set_header(f, VIRTIO_BLK_T_IN, 0);
		fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, 3));
		fake_driver_kick(&f->driver, 0);
		assert_int_equal(status_of(f), UNTOUCHED);
		assert_needs_reset(f);
	}
}

/* In a queue of the largest size: not one descriptor more than a chain can hold is looked at. */
static void a_loop_of_all_descriptors_needs_a_reset(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[BLK_QUEUE_SIZE];
	uint16_t head;

	set_header(f, VIRTIO_BLK_T_IN, 0);
	for (unsigned i = 0; i < BLK_QUEUE_SIZE; i++)
		buffers[i] = (struct fake_buffer){.address = f->status, .length = 1, .writable = true};
	head = fake_driver_chain(&f->driver, 0, buffers, BLK_QUEUE_SIZE);
	f->driver.queues[0].desc[BLK_QUEUE_SIZE - 1].flags |= VRING_DESC_F_NEXT;
	f->driver.queues[0].desc[BLK_QUEUE_SIZE - 1].next = head;
	fake_driver_offer(&f->driver, 0, head);
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(status_of(f), UNTOUCHED);
	assert_needs_reset(f);
}

static void an_index_far_ahead_ends_the_vm(void **state)
{
	struct fixture *f = *state;

	f->driver.queues[0].avail->idx = BLK_QUEUE_SIZE + 1;
	fake_driver_kick(&f->driver, 0);
	assert_int_equal(f->driver.faults, 1);
	assert_string_equal(
		f->driver.reason, "blk: queue 0: available index is further ahead than the queue is long");
}

static void a_read_only_disk_is_not_written(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(write_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, 0, false, NULL), VIRTIO_BLK_S_UNSUPP);
	assert_int_equal(read_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_OK);
	assert_disk_untouched(f);
}

static void a_driver_without_flush_may_not_flush(void **state)
{
	struct fixture *f = *state;

	memset(data(f), 0xab, BLK_SECTOR);
	assert_int_equal(write_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_OK);
	assert_sector(f, 1, 0xab);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, 0, false, NULL), VIRTIO_BLK_S_UNSUPP);
}

static void a_disk_said_to_be_read_only_is_not_written_though_its_file_could_be(void **state)
{
	struct fixture *f = *state;

	/* the fixture's disk is writable; one more, on the same file */
	struct blk_config config = {.fd = open_disk(f->file, O_RDWR), .read_only = true};
	struct virtio_device *device;

	fake_driver_finish(&f->driver);
	assert_int_equal(blk_create(&config, &device), 0);
	fake_driver_init(&f->driver);
	fake_driver_attach(&f->driver, device);
	f->header = fake_driver_alloc(&f->driver, sizeof(struct virtio_blk_outhdr));
	f->data = fake_driver_alloc(&f->driver, DATA_BYTES);
	f->status = fake_driver_alloc(&f->driver, 1);
	fake_driver_start(&f->driver, fake_driver_features(&f->driver));
	assert_true(fake_driver_features(&f->driver) & VIRTIO_FEATURE(VIRTIO_BLK_F_RO));
	assert_int_equal(write_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_IOERR);
	assert_disk_untouched(f);
}

static void flush_syncs_and_nothing_else_does(void **state)
{
	struct fixture *f = *state;

	fake_sync(0);
	assert_int_equal(write_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_OK);
	assert_int_equal(read_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_OK);
	assert_int_equal(fake_sync_count(), 0);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, 0, false, NULL), VIRTIO_BLK_S_OK);
	assert_int_equal(fake_sync_count(), 1);
	fake_sync(EIO);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, 0, false, NULL), VIRTIO_BLK_S_IOERR);
	assert_int_equal(fake_sync_count(), 1);
	fake_sync(0);
}

static void without_flush_each_write_syncs(void **state)
{
	struct fixture *f = *state;

	fake_sync(0);
	assert_int_equal(write_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_OK);
	assert_int_equal(fake_sync_count(), 1);
	assert_int_equal(read_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_OK);
	assert_int_equal(fake_sync_count(), 1);
	fake_sync(ENOSPC);
	assert_int_equal(write_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_IOERR);
	fake_sync(0);
}

static void host_errors_are_logged_once_a_kind(void **state)
{
	struct fixture *f = *state;
	char text[512] = "";
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	log_set_fd(fds[1]);
	assert_int_equal(ftruncate(f->file, 10 * BLK_SECTOR), 0);
	assert_int_equal(read_disk(f, 20, BLK_SECTOR), VIRTIO_BLK_S_IOERR);
	assert_int_equal(read_disk(f, 20, BLK_SECTOR), VIRTIO_BLK_S_IOERR);
	fake_sync(ENOSPC);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, 0, false, NULL), VIRTIO_BLK_S_IOERR);
	assert_int_equal(request(f, VIRTIO_BLK_T_FLUSH, 0, 0, false, NULL), VIRTIO_BLK_S_IOERR);
	fake_sync(0);
	log_set_fd(STDERR_FILENO);
	close(fds[1]);
	assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
	assert_string_equal(text, ": error: blk: read: Input/output error\n"
				  ": error: blk: flush: No space left on device\n");
	close(fds[0]);
}

static void a_file_that_was_cut_fails_and_stays_cut(void **state)
{
	struct fixture *f = *state;
	uint32_t written;

	assert_int_equal(ftruncate(f->file, 10 * BLK_SECTOR), 0);
	assert_int_equal(request(f, VIRTIO_BLK_T_IN, 9, 2 * BLK_SECTOR, true, &written), VIRTIO_BLK_S_IOERR);
	assert_int_equal(written, BLK_SECTOR); /* what did arrive */
	assert_int_equal(data(f)[0], 9);
	assert_int_equal(read_disk(f, 10, BLK_SECTOR), VIRTIO_BLK_S_IOERR);
	assert_int_equal(read_disk(f, 9, BLK_SECTOR), VIRTIO_BLK_S_OK);
}

static void a_host_error_reaches_the_guest(void **state)
{
	struct fixture *f = *state;
	uint32_t written;

	assert_int_equal(fcntl(f->file, F_ADD_SEALS, F_SEAL_WRITE), 0); /* a write is EPERM then */
	assert_int_equal(request(f, VIRTIO_BLK_T_OUT, 1, BLK_SECTOR, false, &written), VIRTIO_BLK_S_IOERR);
	assert_int_equal(written, 1);
	assert_disk_untouched(f);
	assert_int_equal(read_disk(f, 1, BLK_SECTOR), VIRTIO_BLK_S_OK);
}

/* rounds */

static void many_requests_are_served_and_interrupt_once(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[3] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = f->data, .length = BLK_SECTOR, .writable = true},
		{.address = f->status, .length = 1, .writable = true},
	};
	unsigned used = 0;
	uint16_t head;
	uint32_t written;

	set_header(f, VIRTIO_BLK_T_IN, 2);
	for (unsigned i = 0; i < 42; i++)
		fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, 3));
	fake_driver_kick(&f->driver, 0);
	while (fake_driver_used(&f->driver, 0, &head, &written))
		used++;
	assert_int_equal(used, 42);
	assert_int_equal(f->driver.interrupts, 1);
}

static void a_round_of_the_loop_is_bounded_by_bytes(void **state)
{
	enum { PIECE = 2 * 1024 * 1024, REQUESTS = 8 };
	struct fixture *f = *state;
	gpa_t memory = fake_driver_alloc(&f->driver, PIECE);
	struct fake_buffer buffers[4] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = memory, .length = PIECE, .writable = true},
		{.address = f->status, .length = 1, .writable = true},
	};
	unsigned rounds = 0;

	set_header(f, VIRTIO_BLK_T_IN, 0); /* outside the disk: it is the asking that counts */
	for (unsigned i = 0; i < REQUESTS; i++)
		fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, 3));
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	while (f->driver.queues[0].used->idx < REQUESTS) {
		assert_int_equal(loop_turn(f->driver.loop, 0), 0);
		assert_true(++rounds < 100);
	}
	assert_true(rounds >= 4);
}

static void the_event_index_holds_interrupts_back(void **state)
{
	struct fixture *f = *state;

	fake_driver_set_used_event(&f->driver, 0, 3);
	for (unsigned i = 0; i < 5; i++) {
		fake_driver_write(&f->driver, VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
		assert_int_equal(read_disk(f, i, BLK_SECTOR), VIRTIO_BLK_S_OK);
		assert_int_equal(f->driver.interrupts, i >= 3 ? 1 : 0);
	}
}

static void the_first_request_is_notified(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffer = {.address = f->status, .length = 1, .writable = true};

	fake_driver_run(&f->driver);
	fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, &buffer, 1));
	assert_true(fake_driver_must_kick(&f->driver, 0));
}

static void a_reset_between_requests_starts_afresh(void **state)
{
	struct fixture *f = *state;
	struct fake_buffer buffers[2] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = f->status, .length = 1, .writable = true},
	};

	set_header(f, VIRTIO_BLK_T_FLUSH, 0);
	fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, 2));
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_STATUS, 0); /* before the loop gets to it */
	fake_driver_run(&f->driver);
	assert_int_equal(f->driver.queues[0].used->idx, 0);
	assert_int_equal(status_of(f), UNTOUCHED);
	fake_driver_start(&f->driver, fake_driver_features(&f->driver));
	assert_int_equal(read_disk(f, 3, BLK_SECTOR), VIRTIO_BLK_S_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_that_are_no_disk_are_refused),
		CASE(the_configuration_says_its_size_and_limits),
		cmocka_unit_test_setup_teardown(a_read_only_disk_says_so, setup_read_only, teardown),
		CASE(sectors_are_read),
		CASE(sectors_are_written),
		CASE(a_request_may_lie_in_many_pieces),
		CASE(a_request_as_long_as_the_queue_works),
		CASE(the_serial_is_cut_and_padded),
		CASE(requests_outside_the_disk_fail),
		CASE(lengths_that_are_no_sectors_fail),
		CASE(a_request_longer_than_the_bound_fails),
		CASE(wrong_directions_fail),
		CASE(unknown_requests_are_unsupported),
		CASE(a_short_header_fails),
		CASE(no_room_for_a_status_needs_a_reset),
		CASE(bad_chains_need_a_reset),
		CASE(a_loop_of_all_descriptors_needs_a_reset),
		CASE(an_index_far_ahead_ends_the_vm),
		cmocka_unit_test_setup_teardown(a_read_only_disk_is_not_written, setup_read_only, teardown),
		cmocka_unit_test_setup_teardown(
			a_driver_without_flush_may_not_flush, setup_without_flush, teardown),
		CASE(a_disk_said_to_be_read_only_is_not_written_though_its_file_could_be),
		CASE(flush_syncs_and_nothing_else_does),
		cmocka_unit_test_setup_teardown(
			without_flush_each_write_syncs, setup_without_flush, teardown),
		CASE(host_errors_are_logged_once_a_kind),
		CASE(a_file_that_was_cut_fails_and_stays_cut),
		CASE(a_host_error_reaches_the_guest),
		CASE(many_requests_are_served_and_interrupt_once),
		cmocka_unit_test_setup_teardown(
			many_requests_are_served_and_interrupt_once, setup_without_event_index, teardown),
		CASE(a_round_of_the_loop_is_bounded_by_bytes),
		CASE(the_event_index_holds_interrupts_back),
		CASE(the_first_request_is_notified),
		CASE(a_reset_between_requests_starts_afresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
