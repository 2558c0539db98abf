/* SPDX-License-Identifier: Apache-2.0 */
/* The copy-on-write disk's files: what is refused, what is written when, and what a host that fails leaves.
 */
#include "tests/unit/vmm_cow_fixture.h"

#include "vmm/checksum.h"

enum { BLOCKS = 16, SECTORS = BLOCKS * COW_SECTORS, DATA = 2 * COW_BLOCK };

struct fixture {
	int lower, upper;
	struct blk_disk *disk;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->lower = cow_make_file("lower", (uint64_t)SECTORS * BLK_SECTOR);
	f->upper = cow_make_file("upper", 0);
	for (unsigned i = 0; i < SECTORS; i++)
		cow_put_sector(f->lower, i, 1000 + i);
	assert_int_equal(cow_open(f->lower, f->upper, &f->disk), 0);
	fake_sync(0);
	*state = f;
	return 0;
}

static void close_disk(struct fixture *f)
{
	if (f->disk)
		f->disk->ops->destroy(f->disk);
	f->disk = NULL;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_sync(0);
	close_disk(f);
	for (unsigned i = 0; i < SECTORS; i++) {
		uint64_t words[BLK_SECTOR / sizeof(uint64_t)];

		assert_int_equal(pread(f->lower, words, sizeof(words), (off_t)i * BLK_SECTOR), sizeof(words));
		assert_int_equal(words[0], 1000 + i); /* whatever was done */
	}
	close(f->lower);
	close(f->upper);
	free(f);
	return 0;
}

static uint64_t bitmap_word(const struct fixture *f)
{
	uint64_t word = 0;

	assert_int_equal(pread(f->upper, &word, sizeof(word), COW_BLOCK), sizeof(word));
	return word;
}

static uint64_t room(const struct fixture *f)
{
	struct stat status;

	assert_int_equal(fstat(f->upper, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

/* what is written when */

static void a_new_upper_is_sparse_and_reads_as_the_lower(void **state)
{
	struct fixture *f = *state;
	struct cow_header header;
	struct stat status;

	assert_int_equal(f->disk->size, SECTORS * BLK_SECTOR);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), 1000 + i);
	assert_int_equal(fstat(f->upper, &status), 0);
	assert_int_equal(status.st_size, DATA + BLOCKS * COW_BLOCK);
	assert_int_equal(room(f), COW_BLOCK); /* its header */
	assert_int_equal(pread(f->upper, &header, sizeof(header), 0), sizeof(header));
	assert_memory_equal(header.magic, "TNDX-COW", 8);
	assert_int_equal(header.version, 1);
	assert_int_equal(header.bytes, 48);
	assert_int_equal(header.size, SECTORS * BLK_SECTOR);
	assert_int_equal(header.block, 4096);
	assert_int_equal(header.checksum, checksum(&header, 40));
}

static void a_part_of_a_block_brings_the_rest_with_it(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 19, 1, 7), 0);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), i == 19 ? 7 : 1000 + i);
	assert_int_equal(room(f), 2 * COW_BLOCK);
}

/* From the middle of a block over whole ones to the middle of another. */
static void a_range_may_begin_and_end_anywhere(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 24, 8, 5), 0); /* one of them is there before */
	assert_int_equal(cow_write(f->disk, 13, 30, 7), 0);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), i >= 13 && i < 43 ? 7 : 1000 + i);
	assert_int_equal(room(f), 6 * COW_BLOCK);
}

static void the_bitmap_is_written_by_flush_after_the_data(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 8, 8, 7), 0);
	assert_int_equal(bitmap_word(f), 0);
	assert_int_equal(fake_sync_count(), 0);
	assert_int_equal(f->disk->ops->flush(f->disk), 0);
	assert_int_equal(bitmap_word(f), 2);
	assert_int_equal(fake_sync_count(), 2);
	/* what is there already needs no bit */
	assert_int_equal(cow_write(f->disk, 9, 1, 8), 0);
	assert_int_equal(f->disk->ops->flush(f->disk), 0);
	assert_int_equal(fake_sync_count(), 3);
	/* and nothing no sync */
	assert_int_equal(f->disk->ops->flush(f->disk), 0);
	assert_int_equal(fake_sync_count(), 3);
}

static void what_was_flushed_is_there_when_opened_again(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 127, 1, 7), 0);
	assert_int_equal(f->disk->ops->zero(f->disk, 0, COW_BLOCK, true), 0);
	assert_int_equal(f->disk->ops->flush(f->disk), 0);
	close_disk(f);
	assert_int_equal(cow_open(f->lower, f->upper, &f->disk), 0);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), i == 127 ? 7 : i < 8 ? 0 : 1000 + i);
}

static void what_was_not_flushed_is_there_after_an_end_in_order(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 127, 1, 7), 0);
	close_disk(f);
	assert_int_equal(fake_sync_count(), 2);
	assert_int_equal(cow_open(f->lower, f->upper, &f->disk), 0);
	assert_int_equal(cow_value(f->disk, 127), 7);
}

static void zeros_are_holes_and_free_what_was_there(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 0, SECTORS, 7), 0);
	assert_int_equal(room(f), COW_BLOCK * (1 + BLOCKS));
	assert_int_equal(f->disk->ops->zero(f->disk, 4 * BLK_SECTOR, 20 * BLK_SECTOR, true), 0);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), i >= 4 && i < 24 ? 0 : 7);
	assert_int_equal(room(f), COW_BLOCK * (1 + BLOCKS - 2));
}

static void zeros_that_may_not_be_holes_keep_their_room(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(f->disk->ops->zero(f->disk, 4 * BLK_SECTOR, 20 * BLK_SECTOR, false), 0);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), i >= 4 && i < 24 ? 0 : 1000 + i);
	assert_int_equal(room(f), COW_BLOCK * (1 + 3));
}

static void a_discard_frees_whole_blocks_of_the_upper(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 0, 32, 7), 0);
	assert_int_equal(f->disk->ops->discard(f->disk, 4 * BLK_SECTOR, 60 * BLK_SECTOR), 0);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), i < 8 ? 7 : i < 32 ? 0 : 1000 + i);
	assert_int_equal(room(f), COW_BLOCK * (1 + 1));
	assert_int_equal(f->disk->ops->discard(f->disk, 0, SECTORS * BLK_SECTOR), 0);
	assert_int_equal(room(f), COW_BLOCK);
}

/* Half of a write arrived before the host was full, and the block is the lower's still. */
static void what_lies_there_from_a_lost_write_is_never_seen(void **state)
{
	struct fixture *f = *state;

	cow_put_sector(f->upper, DATA / BLK_SECTOR + 17, 99);
	assert_int_equal(cow_value(f->disk, 17), 1017);
	assert_int_equal(cow_write(f->disk, 16, 1, 7), 0);
	assert_int_equal(cow_value(f->disk, 17), 1017);
	cow_put_sector(f->upper, DATA / BLK_SECTOR + 33, 99);
	assert_int_equal(f->disk->ops->zero(f->disk, 32 * BLK_SECTOR, COW_BLOCK, true), 0);
	assert_int_equal(cow_value(f->disk, 33), 0);
}

/* a host that fails */

static void data_that_was_not_synced_has_no_bits_and_ends_all_flushing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 8, 8, 7), 0);
	fake_sync(EIO);
	assert_int_equal(f->disk->ops->flush(f->disk), -EIO);
	assert_int_equal(bitmap_word(f), 0);
	fake_sync(0);
	assert_int_equal(f->disk->ops->flush(f->disk), -EIO);
	assert_int_equal(bitmap_word(f), 0);
	assert_int_equal(cow_value(f->disk, 8), 7); /* till the VM ends */
	close_disk(f);
	assert_int_equal(bitmap_word(f), 0);
	assert_int_equal(cow_open(f->lower, f->upper, &f->disk), 0);
	assert_int_equal(cow_value(f->disk, 8), 1008);
}

static void bits_that_were_not_synced_end_all_flushing_too(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 8, 8, 7), 0);
	fake_sync_later(1, ENOSPC);
	assert_int_equal(f->disk->ops->flush(f->disk), -ENOSPC);
	fake_sync(0);
	assert_int_equal(f->disk->ops->flush(f->disk), -ENOSPC);
}

/* The seal stands for a full host: it refuses each write, and holes. */
static void a_host_that_takes_nothing_fails_the_change_alone(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(cow_write(f->disk, 0, 8, 7), 0);
	assert_int_equal(fcntl(f->upper, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(cow_write(f->disk, 64, 16, 8), -EPERM);
	assert_int_equal(cow_write(f->disk, 65, 1, 8), -EPERM);
	assert_int_equal(f->disk->ops->zero(f->disk, 96 * BLK_SECTOR, COW_BLOCK, true), -EPERM);
	assert_int_equal(f->disk->ops->discard(f->disk, 0, COW_BLOCK), -EPERM);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(f->disk, i), i < 8 ? 7 : 1000 + i);
	assert_int_equal(f->disk->ops->flush(f->disk), -EPERM); /* its bitmap */
}

static void a_lower_that_was_cut_fails_what_needs_it(void **state)
{
	struct fixture *f = *state;
	uint8_t data[BLK_SECTOR];
	struct iovec piece;
	struct virtq_bytes bytes = cow_bytes(&piece, data, sizeof(data));

	assert_int_equal(cow_write(f->disk, 64, 8, 7), 0);
	assert_int_equal(ftruncate(f->lower, 60 * BLK_SECTOR), 0);
	assert_int_equal(f->disk->ops->read(f->disk, &bytes, 72 * BLK_SECTOR), -EIO);
	assert_int_equal(cow_write(f->disk, 73, 1, 8), -EIO);
	assert_int_equal(cow_write(f->disk, 72, 8, 8), 0);
	assert_int_equal(cow_value(f->disk, 64), 7);
	assert_int_equal(cow_value(f->disk, 73), 8);
	for (unsigned i = 60; i < SECTORS; i++)
		cow_put_sector(f->lower, i, 1000 + i);
}

/* files that are refused */

static int try(int lower, int lower_flags, int upper, int upper_flags)
{
	struct blk_disk *disk = NULL;
	int a = reopen(lower, lower_flags), b = reopen(upper, upper_flags);
	int r = cow_check(a, b);

	assert_int_equal(cow_create(a, b, &disk), r);
	assert_true((r == 0) == (disk != NULL));
	if (disk)
		disk->ops->destroy(disk);
	assert_int_equal(fcntl(a, F_GETFD), -1); /* taken over in any case */
	assert_int_equal(fcntl(b, F_GETFD), -1);
	return r;
}

/* Of a copy of the fixture's upper, with that changed. */
static int try_changed(struct fixture *f, off_t at, const void *bytes, size_t length, off_t size)
{
	static uint8_t whole[DATA + BLOCKS * COW_BLOCK];
	int copy = cow_make_file("copy", 0), r;

	assert_int_equal(pread(f->upper, whole, sizeof(whole), 0), sizeof(whole));
	assert_int_equal(pwrite(copy, whole, sizeof(whole), 0), sizeof(whole));
	if (length)
		assert_int_equal(pwrite(copy, bytes, length, at), length);
	assert_int_equal(ftruncate(copy, size), 0);
	r = try(f->lower, O_RDONLY, copy, O_RDWR);
	close(copy);
	return r;
}

static int try_header(struct fixture *f, size_t at, uint64_t value, size_t length, bool signed_again)
{
	struct cow_header header;

	assert_int_equal(pread(f->upper, &header, sizeof(header), 0), sizeof(header));
	memcpy((uint8_t *)&header + at, &value, length);
	if (signed_again)
		header.checksum = checksum(&header, offsetof(struct cow_header, checksum));
	return try_changed(f, 0, &header, sizeof(header), DATA + BLOCKS * COW_BLOCK);
}

static void headers_that_are_wrong_are_refused(void **state)
{
	static const struct {
		size_t at;
		uint64_t value;
		size_t length;
		int damaged, forged; /* the checksum as it was; right again */
	} cases[] = {
		{offsetof(struct cow_header, magic), 'X', 1, -EMEDIUMTYPE, -EMEDIUMTYPE},
		{offsetof(struct cow_header, version), 2, 4, -EBADMSG, -EMEDIUMTYPE},
		{offsetof(struct cow_header, bytes), 47, 4, -EBADMSG, -EMEDIUMTYPE},
		{offsetof(struct cow_header, size), 512, 8, -EBADMSG, -ESTALE},
		{offsetof(struct cow_header, size), UINT64_MAX, 8, -EBADMSG, -ESTALE},
		{offsetof(struct cow_header, block), 8192, 4, -EBADMSG, -EMEDIUMTYPE},
		{offsetof(struct cow_header, reserved), 1, 4, -EBADMSG, -EMEDIUMTYPE},
		{offsetof(struct cow_header, lower), 1, 8, -EBADMSG, -ESTALE},
		{offsetof(struct cow_header, checksum), 1, 8, -EBADMSG, 0},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(
			try_header(f, cases[i].at, cases[i].value, cases[i].length, false), cases[i].damaged);
		assert_int_equal(
			try_header(f, cases[i].at, cases[i].value, cases[i].length, true), cases[i].forged);
	}
}

static void files_of_other_lengths_and_bits_beyond_the_disk_are_refused(void **state)
{
	const off_t whole = DATA + BLOCKS * COW_BLOCK;
	const uint8_t bit = 1, zeros[COW_BLOCK] = {0};
	struct fixture *f = *state;

	assert_int_equal(try_changed(f, 0, NULL, 0, whole), 0);
	assert_int_equal(try_changed(f, 0, NULL, 0, whole - 1), -EBADMSG);
	assert_int_equal(try_changed(f, 0, NULL, 0, whole + 1), -EBADMSG);
	assert_int_equal(try_changed(f, 0, NULL, 0, COW_BLOCK), -EBADMSG);
	assert_int_equal(try_changed(f, 0, NULL, 0, COW_BLOCK - 1), -EMEDIUMTYPE);
	assert_int_equal(try_changed(f, 0, NULL, 0, 1), -EMEDIUMTYPE);
	assert_int_equal(try_changed(f, COW_BLOCK + BLOCKS / 8 - 1, &bit, 1, whole), 0);
	assert_int_equal(try_changed(f, COW_BLOCK + BLOCKS / 8, &bit, 1, whole), -EBADMSG);
	assert_int_equal(try_changed(f, DATA - 1, &bit, 1, whole), -EBADMSG);
	/* power was lost before the first flush; or it is somebody's file of zeros */
	assert_int_equal(try_changed(f, 0, zeros, sizeof(zeros), whole), 0);
	assert_int_equal(try_changed(f, 0, zeros, sizeof(zeros), whole - 512), -EMEDIUMTYPE);
	assert_int_equal(cow_write(f->disk, 0, 1, 7), 0);
	assert_int_equal(f->disk->ops->flush(f->disk), 0);
	assert_int_equal(try_changed(f, 0, zeros, sizeof(zeros), whole), -EMEDIUMTYPE);
}

static void an_upper_belongs_to_its_lower(void **state)
{
	struct fixture *f = *state;
	int other = cow_make_file("other", (uint64_t)SECTORS * BLK_SECTOR);

	close_disk(f);
	assert_int_equal(try(f->lower, O_RDONLY, f->upper, O_RDWR), 0);
	assert_int_equal(try(other, O_RDONLY, f->upper, O_RDWR), -ESTALE);
	cow_put_sector(f->lower, 3, 1);
	assert_int_equal(try(f->lower, O_RDONLY, f->upper, O_RDWR), -ESTALE);
	cow_put_sector(f->lower, 3, 1003);
	assert_int_equal(ftruncate(f->lower, (SECTORS - 1) * BLK_SECTOR), 0);
	assert_int_equal(try(f->lower, O_RDONLY, f->upper, O_RDWR), -ESTALE);
	cow_put_sector(f->lower, SECTORS - 1, 1000 + SECTORS - 1);
	close(other);
}

static void files_that_are_no_disk_are_refused(void **state)
{
	struct fixture *f = *state;
	int empty = cow_make_file("empty", 0), odd = cow_make_file("odd", 1000), large, pipes[2];

	assert_int_equal(try(empty, O_RDONLY, empty, O_RDWR), -EINVAL);
	assert_int_equal(try(odd, O_RDONLY, empty, O_RDWR), -EINVAL);
	assert_int_equal(try(f->lower, O_WRONLY, empty, O_RDWR), -EACCES);
	assert_int_equal(try(f->lower, O_RDONLY, empty, O_RDONLY), -EACCES);
	assert_int_equal(try(f->lower, O_RDONLY, empty, O_RDWR | O_APPEND), -EACCES);
	assert_int_equal(try(f->lower, O_RDONLY, odd, O_RDWR), -EMEDIUMTYPE);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(try(pipes[0], O_RDONLY, empty, O_RDWR), -ENOTBLK);
	assert_int_equal(try(f->lower, O_RDONLY, pipes[0], O_RDWR), -ENOTBLK);
	large = cow_make_file("large", COW_SIZE_MAX + BLK_SECTOR);
	assert_int_equal(try(large, O_RDONLY, empty, O_RDWR), -EFBIG);
	assert_int_equal(lseek(empty, 0, SEEK_END), 0); /* nothing was changed */
	assert_int_equal(ftruncate(large, COW_SIZE_MAX), 0);
	assert_int_equal(try(large, O_RDONLY, empty, O_RDWR), 0);
	close(pipes[0]);
	close(pipes[1]);
	close(large);
	close(odd);
	close(empty);
}

static void an_upper_is_one_vms(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(try(f->lower, O_RDONLY, f->upper, O_RDWR), -EBUSY);
	close_disk(f);
	assert_int_equal(try(f->lower, O_RDONLY, f->upper, O_RDWR), 0);
}

/* snapshots */

static size_t save(struct fixture *f, uint8_t *bytes, size_t size, int error)
{
	struct state_writer writer;

	state_writer_init(&writer, bytes, size);
	f->disk->ops->save(f->disk, &writer);
	assert_int_equal(writer.error, error);
	return writer.length;
}

static int load(struct fixture *f, const uint8_t *bytes, size_t length)
{
	struct state_reader reader;

	state_reader_init(&reader, bytes, length);
	f->disk->ops->load(f->disk, &reader);
	return state_reader_finish(&reader);
}

static void a_snapshot_knows_its_upper(void **state)
{
	struct fixture *f = *state;
	uint8_t before[64], after[64];
	size_t length = save(f, before, sizeof(before), 0);

	assert_int_equal(length, 16);
	assert_int_equal(fake_sync_count(), 0);
	assert_int_equal(load(f, before, length), 0);
	assert_int_equal(load(f, before, 0), 0); /* of a raw disk, whose file is the lower now */
	assert_int_equal(cow_write(f->disk, 8, 8, 7), 0);
	assert_int_equal(save(f, after, sizeof(after), 0), length);
	assert_int_equal(bitmap_word(f), 2); /* a copy of the file has it all */
	assert_int_equal(fake_sync_count(), 2);
	assert_int_equal(load(f, after, length), 0);
	assert_int_equal(load(f, before, length), -EBADMSG);
	assert_int_equal(load(f, after, length - 1), -EBADMSG);
	assert_int_equal(load(f, after, 0), -EBADMSG);
	after[0] ^= 1; /* of another lower */
	assert_int_equal(load(f, after, length), -EBADMSG);
}

static void a_disk_that_cannot_be_synced_is_not_saved(void **state)
{
	struct fixture *f = *state;
	uint8_t bytes[64];

	assert_int_equal(cow_write(f->disk, 8, 8, 7), 0);
	fake_sync(EIO);
	save(f, bytes, sizeof(bytes), -EIO);
	fake_sync(0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_new_upper_is_sparse_and_reads_as_the_lower),
		CASE(a_part_of_a_block_brings_the_rest_with_it),
		CASE(a_range_may_begin_and_end_anywhere),
		CASE(the_bitmap_is_written_by_flush_after_the_data),
		CASE(what_was_flushed_is_there_when_opened_again),
		CASE(what_was_not_flushed_is_there_after_an_end_in_order),
		CASE(zeros_are_holes_and_free_what_was_there),
		CASE(zeros_that_may_not_be_holes_keep_their_room),
		CASE(a_discard_frees_whole_blocks_of_the_upper),
		CASE(what_lies_there_from_a_lost_write_is_never_seen),
		CASE(data_that_was_not_synced_has_no_bits_and_ends_all_flushing),
		CASE(bits_that_were_not_synced_end_all_flushing_too),
		CASE(a_host_that_takes_nothing_fails_the_change_alone),
		CASE(a_lower_that_was_cut_fails_what_needs_it),
		CASE(headers_that_are_wrong_are_refused),
		CASE(files_of_other_lengths_and_bits_beyond_the_disk_are_refused),
		CASE(an_upper_belongs_to_its_lower),
		CASE(files_that_are_no_disk_are_refused),
		CASE(an_upper_is_one_vms),
		CASE(a_snapshot_knows_its_upper),
		CASE(a_disk_that_cannot_be_synced_is_not_saved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
