/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io.h"
#include "vmm/checksum.h"
#include "vmm/pages_file.h"
#include "vmm/reason.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

struct load {
	const struct guest_memory *memory;
	const struct pages_table *table;
	int fd;
	uint64_t least;	      /* pages of a run that is mapped; 0: none is */
	struct checksum *sum; /* NULL: not wanted */
	uint64_t stored;      /* pages of the file that are in place */
};

/* Calls take with each run of a map's pages, cut at the regions' ends. 0 or what it said. */
static int each_run(struct load *load, const uint64_t *map,
	int (*take)(struct load *load, uint8_t *host, uint64_t page, uint64_t run))
{
	uint64_t first = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < load->memory->count; i++) {
		const struct guest_region *region = &load->memory->regions[i];
		uint64_t end = first + region->size / SNAPSHOT_PAGE;

		for (uint64_t page = first; r == 0 && page < end;) {
			uint64_t run = pages_run(map, page, end);

			if (run > 0)
				r = take(load, region->host + (page - first) * SNAPSHOT_PAGE, page, run);
			page += run > 0 ? run : 1;
		}
		first = end;
	}
	return r;
}

static int clear_run(struct load *load, uint8_t *host, uint64_t page, uint64_t run)
{
	(void)page;
	return guest_memory_clear(load->memory, host, run * SNAPSHOT_PAGE);
}

static int map_run(const struct load *load, uint8_t *host, uint64_t run, uint64_t offset)
{
	if (mmap(host, run * SNAPSHOT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
		    load->fd, (off_t)offset) == MAP_FAILED)
		return -errno;
	guest_memory_note_replaced(load->memory, host, run * SNAPSHOT_PAGE);
	return 0;
}

static int read_run(const struct load *load, uint8_t *host, uint64_t page, uint64_t run, uint64_t offset)
{
	size_t bytes = run * SNAPSHOT_PAGE;
	ssize_t got = io_pread_full(load->fd, host, bytes, (off_t)offset);

	if (got != (ssize_t)bytes)
		return got < 0 ? (int)got : -EIO;
	/* Of what is in memory now: the file may change under us. */
	for (uint64_t i = 0; load->sum && i < run; i++)
		snapshot_memory_add_page(load->sum, (page + i) * SNAPSHOT_PAGE, host + i * SNAPSHOT_PAGE);
	return 0;
}

static int place_run(struct load *load, uint8_t *host, uint64_t page, uint64_t run)
{
	uint64_t offset = load->table->start + load->stored * SNAPSHOT_PAGE;

	load->stored += run;
	return load->least > 0 && run >= load->least ? map_run(load, host, run, offset)
						     : read_run(load, host, page, run, offset);
}

static int count_run(struct load *load, uint8_t *host, uint64_t page, uint64_t run)
{
	(void)host;
	(void)page;
	load->stored += run >= load->least;
	return 0;
}

/* So that no more are mapped than may be. */
static void choose_least(struct load *load)
{
	load->least = PAGES_RUN_MIN / 2;
	do {
		load->least *= 2;
		load->stored = 0;
		(void)each_run(load, load->table->stored, count_run);
	} while (load->stored > PAGES_MAPPINGS_MAX);
	load->stored = 0;
}

int pages_load(const struct guest_memory *memory, const struct pages_table *table, int fd,
	const struct pages_what *what, char *why)
{
	struct load load = {.memory = memory, .table = table, .fd = fd};
	int r = 0;

	if (snapshot_memory_is_sealed(fd))
		choose_least(&load);
	else if (!(load.sum = checksum_create()))
		r = -ENOMEM;
	if (r == 0)
		r = each_run(&load, table->zero, clear_run);
	if (r == 0)
		r = each_run(&load, table->stored, place_run);
	if (r < 0)
		reason_set(why, SNAPSHOT_WHY_MAX, r, "cannot be read: %s", strerror(-r));
	else if (load.sum && checksum_value(load.sum) != what->pages_sum)
		r = reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG,
			"is damaged, or not the one that was saved with this state: the checksum of its "
			"pages is another");
	checksum_destroy(load.sum);
	return r;
}
