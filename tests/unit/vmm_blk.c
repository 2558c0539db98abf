/* SPDX-License-Identifier: Apache-2.0 */
/* blk on a file: what becomes of the disk, and of the requests in a round. */
#include "tests/unit/vmm_blk_fixture.h"

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
	assert_int_equal(create(reopen(file, O_RDWR), false), 0);
	assert_int_equal(create(reopen(file, O_RDWR), true), 0);
	assert_int_equal(create(reopen(file, O_RDONLY), true), 0);
	assert_int_equal(create(reopen(file, O_RDONLY), false), -EACCES);
	assert_int_equal(create(reopen(file, O_WRONLY), false), -EACCES);
	assert_int_equal(create(reopen(file, O_WRONLY), true), -EACCES);
	assert_int_equal(create(open("/proc/self/exe", O_PATH | O_CLOEXEC), true), -EACCES);
	assert_int_equal(ftruncate(file, SECTORS * BLK_SECTOR - 1), 0);
	assert_int_equal(create(reopen(file, O_RDWR), false), -EINVAL);
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
			    VIRTIO_FEATURE(VIRTIO_BLK_F_FLUSH) | VIRTIO_FEATURE(VIRTIO_BLK_F_DISCARD) |
			    VIRTIO_FEATURE(VIRTIO_BLK_F_WRITE_ZEROES)));
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, max_discard_sectors)),
		BLK_DISCARD_MAX / BLK_SECTOR);
	assert_int_equal(
		config32(f, offsetof(struct virtio_blk_config, max_discard_seg)), BLK_DISCARD_RANGES);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, discard_sector_alignment)), 8);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, max_write_zeroes_sectors)),
		BLK_ZEROES_MAX / BLK_SECTOR);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, max_write_zeroes_seg)), 1);
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, write_zeroes_may_unmap)) & 0xff, 1);
}

static void a_read_only_disk_says_so(void **state)
{
	struct fixture *f = *state;
	uint64_t features = fake_driver_features(&f->driver);

	assert_true(features & VIRTIO_FEATURE(VIRTIO_BLK_F_RO));
	assert_false(features & VIRTIO_FEATURE(VIRTIO_BLK_F_FLUSH));
	assert_false(features & VIRTIO_FEATURE(VIRTIO_BLK_F_DISCARD));
	assert_false(features & VIRTIO_FEATURE(VIRTIO_BLK_F_WRITE_ZEROES));
	assert_int_equal(config32(f, offsetof(struct virtio_blk_config, max_write_zeroes_sectors)), 0);
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
		CASE_COW(sectors_are_read),
		CASE_COW(a_request_may_lie_in_many_pieces),
		CASE_COW(a_request_as_long_as_the_queue_works),
		CASE(the_serial_is_cut_and_padded),
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
