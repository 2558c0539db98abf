/* SPDX-License-Identifier: Apache-2.0 */
/* blk: discard and write-zeroes (virtio 1.2, 5.2.6), on a raw disk and on a copy-on-write one. */
#include "tests/unit/vmm_blk_fixture.h"

#include <sys/stat.h>

enum { UNMAP = VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP, RANGES_MAX = BLK_DISCARD_RANGES + 1 };

struct range {
	uint64_t sector;
	uint32_t sectors, flags;
};

/* Sends the first bytes of that many ranges. */
static uint8_t send_bytes(
	struct fixture *f, uint32_t type, const struct range *ranges, unsigned count, uint32_t length)
{
	struct virtio_blk_discard_write_zeroes all[RANGES_MAX] = {{.sector = 0}};

	for (unsigned i = 0; i < count; i++)
		all[i] = (struct virtio_blk_discard_write_zeroes){.sector = ranges[i].sector,
			.num_sectors = ranges[i].sectors,
			.flags = ranges[i].flags};
	memcpy(data(f), all, sizeof(all));
	return request(f, type, 0, length, false, NULL);
}

static uint8_t send_ranges(struct fixture *f, uint32_t type, const struct range *ranges, unsigned count)
{
	return send_bytes(f, type, ranges, count, count * sizeof(struct virtio_blk_discard_write_zeroes));
}

static uint8_t send_one(struct fixture *f, uint32_t type, uint64_t sector, uint32_t sectors, uint32_t flags)
{
	struct range range = {sector, sectors, flags};

	return send_ranges(f, type, &range, 1);
}

static void assert_guest_sees(struct fixture *f, unsigned sector, uint8_t value)
{
	assert_int_equal(read_disk(f, sector, BLK_SECTOR), VIRTIO_BLK_S_OK);
	for (unsigned i = 0; i < BLK_SECTOR; i++)
		assert_int_equal(data(f)[i], value);
}

static void assert_all_as_before(struct fixture *f)
{
	for (unsigned i = 0; i < SECTORS; i++)
		assert_guest_sees(f, i, (uint8_t)i);
}

static uint64_t room(int file)
{
	struct stat status;

	assert_int_equal(fstat(file, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

static void zeroes_are_read_after_it(void **state)
{
	struct fixture *f = *state;

	for (uint32_t flags = 0; flags <= UNMAP; flags++) {
		unsigned first = flags ? 35 : 5;

		assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, first, 20, flags), VIRTIO_BLK_S_OK);
		for (unsigned i = first - 2; i < first + 22; i++)
			assert_guest_sees(f, i, i >= first && i < first + 20 ? 0 : (uint8_t)i);
	}
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, SECTORS, UNMAP), VIRTIO_BLK_S_OK);
	assert_guest_sees(f, SECTORS - 1, 0);
}

static void unmapped_zeroes_free_room_and_others_take_it(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(room(f->file), SECTORS * BLK_SECTOR);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 8, 16, UNMAP), VIRTIO_BLK_S_OK);
	assert_int_equal(room(f->file), (SECTORS - 16) * BLK_SECTOR);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 8, 16, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(room(f->file), SECTORS * BLK_SECTOR);
	assert_int_equal(lseek(f->file, 0, SEEK_END), SECTORS * BLK_SECTOR);
}

static void a_discard_frees_room(void **state)
{
	static const struct range ranges[] = {{0, 8, 0}, {32, 16, 0}};
	struct fixture *f = *state;

	assert_int_equal(send_ranges(f, VIRTIO_BLK_T_DISCARD, ranges, 2), VIRTIO_BLK_S_OK);
	assert_int_equal(room(f->file), (SECTORS - 24) * BLK_SECTOR);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_guest_sees(f, i, i < 8 || (i >= 32 && i < 48) ? 0 : (uint8_t)i);
}

static void ranges_outside_the_disk_or_too_many_change_nothing(void **state)
{
	static const struct range outside[] = {{SECTORS, 1, 0}, {SECTORS - 1, 2, 0}, {0, SECTORS + 1, 0},
		{UINT64_MAX, 1, 0}, {UINT64_MAX / BLK_SECTOR + 1, 1, 0}, {0, 0, 0}, {0, UINT32_MAX, 0}};
	struct fixture *f = *state;
	struct range many[RANGES_MAX];

	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		const struct range good_first[] = {{0, 8, 0}, outside[i]};

		assert_int_equal(send_ranges(f, VIRTIO_BLK_T_DISCARD, good_first, 2), VIRTIO_BLK_S_IOERR);
		assert_int_equal(
			send_ranges(f, VIRTIO_BLK_T_WRITE_ZEROES, &outside[i], 1), VIRTIO_BLK_S_IOERR);
	}
	for (unsigned i = 0; i < RANGES_MAX; i++)
		many[i] = (struct range){i, 1, 0};
	assert_int_equal(send_ranges(f, VIRTIO_BLK_T_DISCARD, many, RANGES_MAX), VIRTIO_BLK_S_IOERR);
	assert_int_equal(send_ranges(f, VIRTIO_BLK_T_WRITE_ZEROES, many, 2), VIRTIO_BLK_S_IOERR);
	assert_all_as_before(f);
	assert_int_equal(send_ranges(f, VIRTIO_BLK_T_DISCARD, many, BLK_DISCARD_RANGES), VIRTIO_BLK_S_OK);
	assert_int_equal(send_ranges(f, VIRTIO_BLK_T_WRITE_ZEROES, many, 1), VIRTIO_BLK_S_OK);
}

static void flags_that_are_unknown_are_unsupported(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(send_one(f, VIRTIO_BLK_T_DISCARD, 0, 8, UNMAP), VIRTIO_BLK_S_UNSUPP);
	for (unsigned bit = 1; bit < 32; bit++) {
		assert_int_equal(send_one(f, VIRTIO_BLK_T_DISCARD, 0, 8, 1u << bit), VIRTIO_BLK_S_UNSUPP);
		assert_int_equal(
			send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, UNMAP | 1u << bit), VIRTIO_BLK_S_UNSUPP);
	}
	assert_all_as_before(f);
}

static void lengths_that_are_no_ranges_fail(void **state)
{
	static const struct range range = {0, 8, 0};
	struct fixture *f = *state;

	for (uint32_t type = VIRTIO_BLK_T_DISCARD; type <= VIRTIO_BLK_T_WRITE_ZEROES; type += 2) {
		assert_int_equal(request(f, type, 0, 0, false, NULL), VIRTIO_BLK_S_IOERR);
		assert_int_equal(send_bytes(f, type, &range, 1, 15), VIRTIO_BLK_S_IOERR);
		assert_int_equal(send_bytes(f, type, &range, 1, 17), VIRTIO_BLK_S_IOERR);
		assert_int_equal(request(f, type, 0, 16, true, NULL), VIRTIO_BLK_S_IOERR); /* wrong way */
	}
	assert_all_as_before(f);
}

static void a_range_longer_than_the_bound_fails(void **state)
{
	struct fixture *f = *state;
	struct blk_config config;

	/* a disk that would be large enough */
	assert_int_equal(ftruncate(f->file, 2 * (off_t)BLK_DISCARD_MAX), 0);
	fake_driver_finish(&f->driver);
	config = (struct blk_config){.fd = reopen(f->file, O_RDWR)};
	start_driver(f, &config, 0);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_DISCARD, 0, BLK_DISCARD_MAX / BLK_SECTOR + 1, 0),
		VIRTIO_BLK_S_IOERR);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, BLK_ZEROES_MAX / BLK_SECTOR + 1, UNMAP),
		VIRTIO_BLK_S_IOERR);
	assert_guest_sees(f, 1, 1);
	assert_int_equal(
		send_one(f, VIRTIO_BLK_T_DISCARD, 0, BLK_DISCARD_MAX / BLK_SECTOR, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, BLK_ZEROES_MAX / BLK_SECTOR, UNMAP),
		VIRTIO_BLK_S_OK);
}

static int setup_without_either(void **state)
{
	return setup_with(state, false,
		VIRTIO_FEATURE(VIRTIO_BLK_F_DISCARD) | VIRTIO_FEATURE(VIRTIO_BLK_F_WRITE_ZEROES));
}

static void a_driver_that_did_not_take_them_has_neither(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(send_one(f, VIRTIO_BLK_T_DISCARD, 0, 8, 0), VIRTIO_BLK_S_UNSUPP);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, 0), VIRTIO_BLK_S_UNSUPP);
	assert_all_as_before(f);
}

static void without_flush_each_change_syncs(void **state)
{
	struct fixture *f = *state;

	fake_sync(0);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_DISCARD, 0, 8, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(fake_sync_count(), 1);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(fake_sync_count(), 2);
	fake_sync(EIO);
	assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, 0), VIRTIO_BLK_S_IOERR);
	fake_sync(0);
}

static void a_host_error_reaches_the_guest_and_is_logged_once_a_kind(void **state)
{
	struct fixture *f = *state;
	char text[512] = "";
	int fds[2];

	assert_int_equal(fcntl(f->upper >= 0 ? f->upper : f->file, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(pipe(fds), 0);
	log_set_fd(fds[1]);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(send_one(f, VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, UNMAP), VIRTIO_BLK_S_IOERR);
		assert_int_equal(write_disk(f, 0, BLK_SECTOR), VIRTIO_BLK_S_IOERR);
		if (f->upper < 0)
			assert_int_equal(send_one(f, VIRTIO_BLK_T_DISCARD, 0, 8, 0), VIRTIO_BLK_S_IOERR);
	}
	assert_all_as_before(f);
	log_set_fd(STDERR_FILENO);
	close(fds[1]);
	assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
	assert_string_equal(text, f->upper >= 0 ? ": error: blk: write-zeroes: Operation not permitted\n"
						  ": error: blk: write: Operation not permitted\n"
						: ": error: blk: write-zeroes: Operation not permitted\n"
						  ": error: blk: write: Operation not permitted\n"
						  ": error: blk: discard: Operation not permitted\n");
	close(fds[0]);
}

/* Zeros that must be written take as long as other data, a discard what the host's disk takes. */
static void a_round_of_the_loop_is_bounded(void **state)
{
	enum { REQUESTS = 3 * BLK_ROUND_SYNCS };
	const struct virtio_blk_discard_write_zeroes range = {.num_sectors = 8};
	struct fixture *f = *state;
	const struct fake_buffer buffers[] = {
		{.address = f->header, .length = sizeof(struct virtio_blk_outhdr)},
		{.address = f->data, .length = sizeof(range)},
		{.address = f->status, .length = 1, .writable = true},
	};

	set_header(f, VIRTIO_BLK_T_DISCARD, 0);
	memcpy(data(f), &range, sizeof(range));
	for (unsigned i = 0; i < REQUESTS; i++)
		fake_driver_offer(&f->driver, 0, fake_driver_chain(&f->driver, 0, buffers, 3));
	fake_driver_write(&f->driver, VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	assert_int_equal(loop_turn(f->driver.loop, 0), 0);
	assert_int_equal(f->driver.queues[0].used->idx, BLK_ROUND_SYNCS);
	fake_driver_run(&f->driver);
	assert_int_equal(f->driver.queues[0].used->idx, REQUESTS);
	fake_driver_assert_idle(&f->driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(zeroes_are_read_after_it),
		CASE_COW(zeroes_are_read_after_it),
		CASE(unmapped_zeroes_free_room_and_others_take_it),
		CASE(a_discard_frees_room),
		CASE(ranges_outside_the_disk_or_too_many_change_nothing),
		CASE_COW(ranges_outside_the_disk_or_too_many_change_nothing),
		CASE(flags_that_are_unknown_are_unsupported),
		CASE_COW(flags_that_are_unknown_are_unsupported),
		CASE(lengths_that_are_no_ranges_fail),
		CASE_COW(lengths_that_are_no_ranges_fail),
		CASE(a_range_longer_than_the_bound_fails),
		cmocka_unit_test_setup_teardown(
			a_driver_that_did_not_take_them_has_neither, setup_without_either, teardown),
		cmocka_unit_test_setup_teardown(
			without_flush_each_change_syncs, setup_without_flush, teardown),
		CASE(a_host_error_reaches_the_guest_and_is_logged_once_a_kind),
		CASE_COW(a_host_error_reaches_the_guest_and_is_logged_once_a_kind),
		CASE(a_round_of_the_loop_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
