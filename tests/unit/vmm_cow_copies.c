/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a copy-on-write disk: of its upper file, as children of a fork have it, and as one flat file. */
#include "tests/unit/vmm_cow_fixture.h"

#include <signal.h>
#include <sys/resource.h>

enum {
	BLOCKS = 48,
	TAIL = 3, /* sectors of the last block, which is no whole one */
	SECTORS = BLOCKS * COW_SECTORS + TAIL,
	HOLE = 16, /* blocks at the lower's end, but the last, that nobody wrote */
	STATE_BYTES = 16,
	STEPS = 120,
	SEEDS = 20,
};
#define DISK_BYTES ((uint64_t)SECTORS * BLK_SECTOR)

struct fixture {
	int lower, upper;
	struct blk_disk *disk;
	uint32_t random;
	uint64_t model[SECTORS];
};

static uint32_t below(struct fixture *f, uint32_t limit)
{
	f->random = f->random * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(f->random >> 4) * limit >> 28);
}

static void begin(struct fixture *f, uint32_t seed)
{
	memset(f, 0, sizeof(*f));
	f->random = seed;
	f->lower = cow_make_file("lower", DISK_BYTES);
	f->upper = cow_make_file("upper", 0);
	for (unsigned i = 0; i < SECTORS; i++) {
		if (i / COW_SECTORS >= BLOCKS - HOLE && i / COW_SECTORS < BLOCKS)
			continue;
		f->model[i] = 1000 + i;
		cow_put_sector(f->lower, i, f->model[i]);
	}
	assert_int_equal(cow_open(f->lower, f->upper, &f->disk), 0);
}

static void finish(struct fixture *f)
{
	f->disk->ops->destroy(f->disk);
	close(f->lower);
	close(f->upper);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_sync(0);
	begin(f, 1);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	finish(*state);
	free(*state);
	return 0;
}

static void write_sectors(struct fixture *f, unsigned first, unsigned count, uint64_t value)
{
	assert_int_equal(cow_write(f->disk, first, count, value), 0);
	for (unsigned i = first; i < first + count; i++)
		f->model[i] = value;
}

static void zero_sectors(struct fixture *f, unsigned first, unsigned count)
{
	assert_int_equal(
		f->disk->ops->zero(f->disk, (uint64_t)first * BLK_SECTOR, (uint64_t)count * BLK_SECTOR, true),
		0);
	for (unsigned i = first; i < first + count; i++)
		f->model[i] = 0;
}

static void change_at_random(struct fixture *f)
{
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned first = below(f, SECTORS),
			 count = 1 + below(f, SECTORS - first < 40 ? SECTORS - first : 40);

		if (below(f, 4))
			write_sectors(f, first, count, (uint64_t)f->random << 8 | 1);
		else
			zero_sectors(f, first, count);
	}
}

/* A file on another file system than memfds are, without a name. */
static int make_tmp_file(void)
{
	int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(file >= 0);
	return file;
}

static uint64_t room_of(int file)
{
	struct stat status;

	assert_int_equal(fstat(file, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

static void expect_model(struct fixture *f, int file)
{
	uint64_t words[BLK_SECTOR / sizeof(uint64_t)];

	assert_int_equal(lseek(file, 0, SEEK_END), DISK_BYTES);
	for (unsigned i = 0; i < SECTORS; i++) {
		assert_int_equal(
			pread(file, words, sizeof(words), (off_t)((uint64_t)i * BLK_SECTOR)), sizeof(words));
		for (unsigned j = 0; j < BLK_SECTOR / sizeof(words[0]); j++)
			assert_int_equal(words[j], f->model[i]);
	}
}

static void save(struct blk_disk *disk, bool copied, uint8_t bytes[STATE_BYTES])
{
	struct state_writer writer;

	state_writer_init(&writer, bytes, STATE_BYTES);
	writer.disks_copied = copied;
	disk->ops->save(disk, &writer);
	assert_int_equal(writer.error, 0);
	assert_int_equal(writer.length, STATE_BYTES);
}

static int load(struct blk_disk *disk, const uint8_t bytes[STATE_BYTES])
{
	struct state_reader reader;

	state_reader_init(&reader, bytes, STATE_BYTES);
	disk->ops->load(disk, &reader);
	return state_reader_finish(&reader);
}

/* flat */

static void a_flat_copy_is_what_the_guest_sees(void **state)
{
	struct fixture *f = *state;

	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		/* The kernel copies in the one; it does not know how to from memfds to the other. */
		int file = seed % 2 ? cow_make_file("flat", 0) : make_tmp_file();
		uint64_t written = 0;

		finish(f);
		begin(f, seed);
		change_at_random(f);
		assert_int_equal(f->disk->ops->copy(f->disk, file, &written), 0);
		assert_true(written > 0 && written <= DISK_BYTES);
		expect_model(f, file);
		write_sectors(f, 0, SECTORS, 77); /* and the disk goes on */
		close(file);
	}
}

static void a_flat_copy_of_a_disk_that_was_never_written_is_its_lower(void **state)
{
	struct fixture *f = *state;
	int file = cow_make_file("flat", 0);
	uint64_t written = 0;

	assert_int_equal(f->disk->ops->copy(f->disk, file, &written), 0);
	expect_model(f, file);
	assert_int_equal(written, DISK_BYTES - (uint64_t)HOLE * COW_BLOCK);
	close(file);
}

static void a_flat_copy_keeps_holes(void **state)
{
	struct fixture *f = *state;
	int file = cow_make_file("flat", 0);
	uint64_t written = 0;

	zero_sectors(f, 0, 20 * COW_SECTORS);
	write_sectors(f, (BLOCKS - 2) * COW_SECTORS, COW_SECTORS, 5);
	assert_int_equal(f->disk->ops->copy(f->disk, file, &written), 0);
	expect_model(f, file);
	/* Of the lower's data what is not zeroed now, and one block of its hole. */
	assert_int_equal(written, DISK_BYTES - (20 + HOLE - 1) * (uint64_t)COW_BLOCK);
	assert_int_equal(room_of(file), (BLOCKS + 1 - 20 - (HOLE - 1)) * (uint64_t)COW_BLOCK);
	close(file);
}

static void a_large_disk_costs_what_is_on_it(void **state)
{
	const uint64_t size = (uint64_t)1 << 36;
	int lower = cow_make_file("lower", size), upper = cow_make_file("upper", 0);
	int file = cow_make_file("flat", 0);
	struct blk_disk *disk;
	uint64_t written = 0, words[BLK_SECTOR / sizeof(uint64_t)];

	(void)state;
	cow_put_sector(lower, 0, 1);
	assert_int_equal(cow_open(lower, upper, &disk), 0);
	assert_int_equal(cow_write(disk, size / BLK_SECTOR - COW_SECTORS, COW_SECTORS, 2), 0);
	assert_int_equal(disk->ops->copy(disk, file, &written), 0);
	assert_int_equal(written, 2 * COW_BLOCK);
	assert_int_equal(lseek(file, 0, SEEK_END), size);
	assert_int_equal(pread(file, words, sizeof(words), (off_t)(size - BLK_SECTOR)), sizeof(words));
	assert_int_equal(words[0], 2);
	disk->ops->destroy(disk);
	close(lower);
	close(upper);
	close(file);
}

static void a_host_without_room_fails_the_copy_alone(void **state)
{
	struct fixture *f = *state;
	int file = make_tmp_file();
	struct rlimit before, little;
	uint64_t written = 0;

	write_sectors(f, 0, 8, 3);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	little = (struct rlimit){.rlim_cur = DISK_BYTES / 2, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	assert_int_equal(f->disk->ops->copy(f->disk, file, &written), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	write_sectors(f, 8, 8, 4);
	assert_int_equal(ftruncate(file, 0), 0);
	assert_int_equal(f->disk->ops->copy(f->disk, file, &written), 0);
	expect_model(f, file);
	close(file);
}

/* What is missing is no hole. */
static void files_that_were_cut_are_not_copied(void **state)
{
	struct fixture *f = *state;
	struct cow *cow = (struct cow *)f->disk;
	int file = cow_make_file("flat", 0);
	uint64_t written = 0;

	assert_int_equal(ftruncate(f->lower, (off_t)(DISK_BYTES - BLK_SECTOR)), 0);
	assert_int_equal(f->disk->ops->copy(f->disk, file, &written), -EIO);
	assert_int_equal(ftruncate(f->lower, (off_t)DISK_BYTES), 0);
	assert_int_equal(ftruncate(f->upper, (off_t)(cow->shape.length - 1)), 0);
	assert_int_equal(f->disk->ops->copy(f->disk, file, &written), -EIO);
	assert_int_equal(written, 0);
	assert_int_equal(lseek(file, 0, SEEK_END), 0);
	close(file);
}

static void what_lies_upon_a_flat_copy_is_known(void **state)
{
	struct fixture *f = *state;
	int file = cow_make_file("flat", 0), upper = cow_make_file("upper", 0);
	uint8_t flat[STATE_BYTES], own[STATE_BYTES];
	struct blk_disk *clone;
	uint64_t written = 0;

	change_at_random(f);
	save(f->disk, true, flat);
	save(f->disk, false, own);
	assert_memory_not_equal(flat, own, STATE_BYTES);
	assert_int_equal(f->disk->ops->copy(f->disk, file, &written), 0);
	assert_int_equal(load(f->disk, own), 0);
	assert_int_equal(load(f->disk, flat), -EBADMSG);
	assert_int_equal(cow_open(file, upper, &clone), 0);
	assert_int_equal(load(clone, flat), 0);
	assert_int_equal(load(clone, own), -EBADMSG);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(clone, i), f->model[i]);
	assert_int_equal(cow_write(clone, 3, 1, 9), 0); /* then its upper is another than that of the state */
	assert_int_equal(load(clone, flat), -EBADMSG);
	clone->ops->destroy(clone);
	close(upper);
	close(file);
}

/* of the upper file, byte by byte */

static int copy_file(int from)
{
	off_t length = lseek(from, 0, SEEK_END);
	int to = cow_make_file("copy", 0);
	char *bytes = malloc((size_t)length);

	assert_non_null(bytes);
	assert_int_equal(pread(from, bytes, (size_t)length, 0), length);
	assert_int_equal(pwrite(to, bytes, (size_t)length, 0), length);
	free(bytes);
	return to;
}

static void children_have_the_disk_as_it_was_saved(void **state)
{
	struct fixture *f = *state;

	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		uint64_t saved[SECTORS];
		uint8_t bytes[STATE_BYTES];
		struct blk_disk *children[2];
		int uppers[2];

		finish(f);
		begin(f, seed);
		change_at_random(f);
		save(f->disk, false, bytes);
		memcpy(saved, f->model, sizeof(saved));
		for (int i = 0; i < 2; i++) {
			uppers[i] = copy_file(f->upper);
			assert_int_equal(cow_open(f->lower, uppers[i], &children[i]), 0);
			assert_int_equal(load(children[i], bytes), 0);
		}
		/* The parent goes on, and so does one child. */
		change_at_random(f);
		assert_int_equal(cow_write(children[0], 0, SECTORS, 9), 0);
		for (unsigned i = 0; i < SECTORS; i++) {
			assert_int_equal(cow_value(children[0], i), 9);
			assert_int_equal(cow_value(children[1], i), saved[i]);
			assert_int_equal(cow_value(f->disk, i), f->model[i]);
		}
		for (int i = 0; i < 2; i++) {
			children[i]->ops->destroy(children[i]);
			close(uppers[i]);
		}
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_flat_copy_is_what_the_guest_sees),
		CASE(a_flat_copy_of_a_disk_that_was_never_written_is_its_lower),
		CASE(a_flat_copy_keeps_holes),
		CASE(a_large_disk_costs_what_is_on_it),
		CASE(a_host_without_room_fails_the_copy_alone),
		CASE(files_that_were_cut_are_not_copied),
		CASE(what_lies_upon_a_flat_copy_is_known),
		CASE(children_have_the_disk_as_it_was_saved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
