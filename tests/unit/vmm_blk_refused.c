/* SPDX-License-Identifier: Apache-2.0 */
/* blk: requests that are refused, and a disk that stays as it was. */
#include "tests/unit/vmm_blk_fixture.h"

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
		struct blk_config config = {.fd = reopen(f->file, O_RDWR)};
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
	static const uint32_t types[] = {2, 3, 5, 12, 14 /* secure erase */, 99, UINT32_MAX};
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
	struct blk_config config = {.fd = reopen(f->file, O_RDWR), .read_only = true};

	fake_driver_finish(&f->driver);
	start_driver(f, &config, 0);
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

/* What else the loop has to do, a control request say, does not wait for a queue full of them. */
static void a_round_has_few_syncs(void **state)
{
	enum { FLUSHES = 3 * BLK_ROUND_SYNCS };
	struct fixture *f = *state;
	const struct fake_buffer buffers[] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = f->status, .length = 1, .writable = true},
	};

	set_header(f, VIRTIO_BLK_T_FLUSH, 0);
	for (unsigned i = 0; i < FLUSHES; i++)
		fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, 2));
	fake_sync(0);
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_int_equal(fake_sync_count(), BLK_ROUND_SYNCS);
	fake_driver_run(&f->driver);
	assert_int_equal(fake_sync_count(), FLUSHES);
	assert_int_equal(status_of(f), VIRTIO_BLK_S_OK);
	fake_driver_assert_idle(&f->driver);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(requests_outside_the_disk_fail),
		CASE_COW(requests_outside_the_disk_fail),
		CASE(lengths_that_are_no_sectors_fail),
		CASE_COW(lengths_that_are_no_sectors_fail),
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
		CASE(a_round_has_few_syncs),
		CASE(host_errors_are_logged_once_a_kind),
		CASE(a_file_that_was_cut_fails_and_stays_cut),
		CASE(a_host_error_reaches_the_guest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
