/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy-on-write disk against a flat model: random reads, writes, zeros, discards and flushes, closed and
 * opened again, and crashes. After a crash each sector of the upper file is, at random, as it was at the last
 * sync or as it was written since; the crash may fall between the two syncs of a flush. What a sector of the
 * disk then is must be what it was at the last flush that was answered, or something written since.
 */
#include "tests/unit/vmm_cow_fixture.h"

enum {
	WINDOW = 40, /* sectors */
	WINDOWS = 3,
	SECTORS = WINDOWS * WINDOW,
	SEEDS = 60,
	STEPS = 300,
	SINCE_MAX = 64, /* values of a sector between two flushes */
	BOOKS_MAX = 4 * COW_BLOCK,
	PIECES_MAX = 8,
};

/* The first bitmap page's last blocks, the disk's end, which is no whole block, and its beginning. */
#define DISK_BYTES ((uint64_t)COW_PAGE_BLOCKS * COW_BLOCK * 2 + 5 * COW_BLOCK + 3 * BLK_SECTOR)
static const uint64_t window_starts[WINDOWS] = {
	0, (uint64_t)COW_PAGE_BLOCKS *COW_SECTORS - WINDOW / 2, DISK_BYTES / BLK_SECTOR - WINDOW};

/* What of the upper file the model looks at: header and bitmap, and the windows' sectors. */
struct image {
	uint8_t books[BOOKS_MAX];
	uint64_t sectors[SECTORS][BLK_SECTOR / sizeof(uint64_t)];
};

struct sector {
	uint64_t now, flushed;
	uint64_t since[SINCE_MAX];
	unsigned count;
};

struct model {
	uint32_t random;
	int lower, upper;
	struct blk_disk *disk;
	struct cow_shape shape;
	struct sector sectors[SECTORS];
	struct image synced, before; /* at the last sync, and at the one before */
	uint64_t next_value;
};

static uint32_t below(struct model *model, uint32_t limit)
{
	model->random = model->random * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(model->random >> 4) * limit >> 28);
}

static uint64_t place_of(unsigned index)
{
	return window_starts[index / WINDOW] + index % WINDOW;
}

/* the upper file */

static void take_image(const struct model *model, struct image *image)
{
	assert_true(model->shape.data <= sizeof(image->books));
	assert_int_equal(pread(model->upper, image->books, model->shape.data, 0), model->shape.data);
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(pread(model->upper, image->sectors[i], BLK_SECTOR,
					 (off_t)(model->shape.data + place_of(i) * BLK_SECTOR)),
			BLK_SECTOR);
}

static void note_sync(void *context)
{
	struct model *model = context;

	model->before = model->synced;
	take_image(model, &model->synced);
}

static void open_disk(struct model *model)
{
	assert_int_equal(cow_open(model->lower, model->upper, &model->disk), 0);
	take_image(model, &model->synced);
	model->before = model->synced;
}

/* The process is gone: what it had not written is lost, and so is the lock. */
static void kill_disk(struct model *model)
{
	struct cow *cow = (struct cow *)model->disk;

	cow->changed = false;
	memset(cow->dirty, 0, cow->shape.bitmap_pages);
	model->disk->ops->destroy(model->disk);
}

/* model */

static void set(struct model *model, unsigned index, uint64_t value)
{
	struct sector *sector = &model->sectors[index];

	assert_true(sector->count < SINCE_MAX);
	sector->since[sector->count++] = value;
	sector->now = value;
}

static void settle(struct model *model)
{
	for (unsigned i = 0; i < SECTORS; i++) {
		model->sectors[i].flushed = model->sectors[i].now;
		model->sectors[i].count = 0;
	}
}

static void flush(struct model *model)
{
	assert_int_equal(model->disk->ops->flush(model->disk), 0);
	settle(model);
}

static void choose_range(struct model *model, unsigned *first, unsigned *count)
{
	unsigned window = below(model, WINDOWS) * WINDOW, at = below(model, WINDOW);

	*first = window + at;
	*count = 1 + below(model, WINDOW - at);
}

/* The same bytes in pieces. */
static struct virtq_bytes cut(struct model *model, struct iovec *pieces, uint8_t *data, uint64_t length)
{
	struct virtq_bytes bytes = {.iov = pieces, .length = length};

	while (length) {
		uint64_t piece = bytes.count == PIECES_MAX - 1 ? length : 1 + below(model, (uint32_t)length);

		pieces[bytes.count++] = (struct iovec){.iov_base = data, .iov_len = piece};
		data += piece;
		length -= piece;
	}
	return bytes;
}

static void step_write(struct model *model)
{
	uint64_t words[WINDOW][BLK_SECTOR / sizeof(uint64_t)];
	struct iovec pieces[PIECES_MAX];
	struct virtq_bytes bytes;
	unsigned first, count;

	choose_range(model, &first, &count);
	for (unsigned i = 0; i < count; i++) {
		set(model, first + i, ++model->next_value);
		cow_fill(words[i], model->next_value);
	}
	bytes = cut(model, pieces, (uint8_t *)words, (uint64_t)count * BLK_SECTOR);
	assert_int_equal(model->disk->ops->write(model->disk, &bytes, place_of(first) * BLK_SECTOR), 0);
	assert_int_equal(bytes.length, 0);
}

static void step_zero(struct model *model)
{
	unsigned first, count;

	choose_range(model, &first, &count);
	for (unsigned i = 0; i < count; i++)
		set(model, first + i, 0);
	assert_int_equal(model->disk->ops->zero(model->disk, place_of(first) * BLK_SECTOR,
				 (uint64_t)count * BLK_SECTOR, below(model, 2)),
		0);
}

static void step_discard(struct model *model)
{
	unsigned first, count;

	choose_range(model, &first, &count);
	assert_int_equal(model->disk->ops->discard(
				 model->disk, place_of(first) * BLK_SECTOR, (uint64_t)count * BLK_SECTOR),
		0);
	for (unsigned i = first; i < first + count; i++) {
		uint64_t value = cow_value(model->disk, place_of(i));

		assert_true(value == 0 || value == model->sectors[i].now);
		if (value != model->sectors[i].now)
			set(model, i, value);
	}
}

static void step_read(struct model *model)
{
	uint64_t words[WINDOW][BLK_SECTOR / sizeof(uint64_t)] = {{0}};
	struct iovec pieces[PIECES_MAX];
	struct virtq_bytes bytes;
	unsigned first, count;

	choose_range(model, &first, &count);
	bytes = cut(model, pieces, (uint8_t *)words, (uint64_t)count * BLK_SECTOR);
	assert_int_equal(model->disk->ops->read(model->disk, &bytes, place_of(first) * BLK_SECTOR), 0);
	assert_int_equal(bytes.length, 0);
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < BLK_SECTOR / sizeof(uint64_t); j++)
			assert_int_equal(words[i][j], model->sectors[first + i].now);
}

static void check_all(struct model *model)
{
	for (unsigned i = 0; i < SECTORS; i++)
		assert_int_equal(cow_value(model->disk, place_of(i)), model->sectors[i].now);
}

/* crashes */

static bool may_be(const struct sector *sector, uint64_t value)
{
	bool found = value == sector->flushed;

	for (unsigned i = 0; i < sector->count; i++)
		found = found || value == sector->since[i];
	return found;
}

/* A sector of the file is wholly the older one or the newer one. */
static void mix(struct model *model, const struct image *older, const struct image *newer)
{
	for (uint64_t at = 0; at < model->shape.data; at += BLK_SECTOR) {
		const struct image *from = below(model, 2) ? older : newer;

		assert_int_equal(pwrite(model->upper, from->books + at, BLK_SECTOR, (off_t)at), BLK_SECTOR);
	}
	for (unsigned i = 0; i < SECTORS; i++) {
		const struct image *from = below(model, 2) ? older : newer;

		assert_int_equal(pwrite(model->upper, from->sectors[i], BLK_SECTOR,
					 (off_t)(model->shape.data + place_of(i) * BLK_SECTOR)),
			BLK_SECTOR);
	}
}

static void open_after_crash(struct model *model)
{
	open_disk(model);
	for (unsigned i = 0; i < SECTORS; i++) {
		struct sector *sector = &model->sectors[i];
		uint64_t value = cow_value(model->disk, place_of(i));

		assert_true(may_be(sector, value));
		sector->now = value;
	}
	settle(model);
}

static void step_power_loss(struct model *model)
{
	struct image now, older;
	unsigned syncs = fake_sync_count();

	if (below(model, 2)) /* in a flush of which nobody hears: the data is synced, the bitmap on its way */
		assert_int_equal(model->disk->ops->flush(model->disk), 0);
	take_image(model, &now);
	older = fake_sync_count() > syncs ? model->before : model->synced;
	kill_disk(model);
	mix(model, &older, &now);
	open_after_crash(model);
}

static void step_kill(struct model *model)
{
	kill_disk(model);
	open_after_crash(model);
}

static void step_reopen(struct model *model)
{
	model->disk->ops->destroy(model->disk);
	open_disk(model);
	settle(model);
	check_all(model);
}

static void step(struct model *model)
{
	switch (below(model, 20)) {
	case 0:
		flush(model);
		break;
	case 1:
		step_power_loss(model);
		break;
	case 2:
		step_kill(model);
		break;
	case 3:
		step_reopen(model);
		break;
	case 4:
	case 5:
	case 6:
		step_discard(model);
		break;
	case 7:
	case 8:
	case 9:
		step_zero(model);
		break;
	case 10:
	case 11:
	case 12:
	case 13:
		step_read(model);
		break;
	default:
		step_write(model);
	}
}

static void begin(struct model *model, uint32_t seed)
{
	memset(model, 0, sizeof(*model));
	model->random = seed;
	model->next_value = 1 << 20;
	model->lower = cow_make_file("lower", DISK_BYTES);
	model->upper = cow_make_file("upper", 0);
	assert_int_equal(cow_find_shape(DISK_BYTES, &model->shape), 0);
	for (unsigned i = 0; i < SECTORS; i++) {
		model->sectors[i].now = i + 1;
		cow_put_sector(model->lower, place_of(i), i + 1);
	}
	settle(model);
	open_disk(model);
	fake_sync_watch(note_sync, model);
}

static void finish(struct model *model)
{
	check_all(model);
	fake_sync_watch(NULL, NULL);
	model->disk->ops->destroy(model->disk);
	for (unsigned i = 0; i < SECTORS; i++) {
		uint64_t words[BLK_SECTOR / sizeof(uint64_t)];

		assert_int_equal(pread(model->lower, words, sizeof(words), (off_t)(place_of(i) * BLK_SECTOR)),
			sizeof(words));
		assert_int_equal(words[0], i + 1);
	}
	close(model->lower);
	close(model->upper);
}

static void the_disk_is_as_the_model(void **state)
{
	struct model *model = malloc(sizeof(*model));

	(void)state;
	assert_non_null(model);
	fake_sync(0);
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		begin(model, seed);
		for (unsigned i = 0; i < STEPS; i++)
			step(model);
		finish(model);
	}
	free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_disk_is_as_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
