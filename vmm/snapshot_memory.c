/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum is over each page that is not all zeros, in ascending order: its offset as a u64, then its
 * bytes. So it does not depend on where a file system keeps holes, and a copy that has none is as good.
 */
#include "vmm/snapshot_memory.h"
#include "common/io.h"
#include "vmm/checksum.h"
#include "vmm/reason.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Written at once; and read at once, to be checked. */
enum { CHUNK = 256 * 1024 };
_Static_assert(CHUNK % SNAPSHOT_PAGE == 0, "chunks are whole pages");

/* musl's memcmp goes byte by byte, and most of what is looked at here is zeros. */
bool snapshot_memory_is_zero(const uint8_t *page)
{
	const uint64_t *words = (const uint64_t *)(const void *)page;

	for (size_t i = 0; i < SNAPSHOT_PAGE / sizeof(*words); i += 4)
		if (words[i] | words[i + 1] | words[i + 2] | words[i + 3])
			return false;
	return true;
}

void snapshot_memory_add_page(struct checksum *sum, uint64_t offset, const uint8_t *page)
{
	checksum_add(sum, &offset, sizeof(offset));
	checksum_add(sum, page, SNAPSHOT_PAGE);
}

struct output {
	int fd;
	struct checksum *sum;
	uint64_t written;
};

/* One run of pages that are not zeros, or of ones that are: its bytes. */
static uint64_t run_of(const uint8_t *data, uint64_t length, bool zeros)
{
	uint64_t run = 0;

	while (run < length && run < CHUNK && snapshot_memory_is_zero(data + run) == zeros)
		run += SNAPSHOT_PAGE;
	return run;
}

static int save_region(struct output *output, const struct guest_region *region, uint64_t base)
{
	for (uint64_t at = 0; at < region->size;) {
		uint64_t run;
		int r;

		at += run_of(region->host + at, region->size - at, true);
		run = run_of(region->host + at, region->size - at, false);
		for (uint64_t page = at; page < at + run; page += SNAPSHOT_PAGE)
			snapshot_memory_add_page(output->sum, base + page, region->host + page);
		r = io_pwrite_all(output->fd, region->host + at, run, base + at);
		if (r < 0)
			return r;
		output->written += run;
		at += run;
	}
	return 0;
}

int snapshot_memory_save(
	const struct guest_memory *memory, int fd, struct snapshot_memory *what, uint64_t *written)
{
	struct output output = {.fd = fd, .sum = checksum_create()};
	uint64_t base = 0;
	int r = output.sum ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < memory->count; i++) {
		r = save_region(&output, &memory->regions[i], base);
		base += memory->regions[i].size;
	}
	/* The file ends where memory does, hole or not. */
	if (r == 0 && ftruncate(fd, (off_t)base) < 0)
		r = -errno;
	if (r == 0)
		*what = (struct snapshot_memory){.size = base, .sum = checksum_value(output.sum)};
	*written = output.written;
	checksum_destroy(output.sum);
	return r;
}

/* --- check --- */

bool snapshot_memory_is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_WRITE) && (seals & F_SEAL_SHRINK);
}

static int check_size(int fd, uint64_t is, uint64_t wanted, char *why)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return reason_set(why, SNAPSHOT_WHY_MAX, -errno, "cannot be looked at: %s", strerror(errno));
	if (!S_ISREG(status.st_mode))
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL, "is no regular file");
	if (is != wanted)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL,
			"is to have %llu bytes by its state file, whose machine has %llu of memory",
			(unsigned long long)is, (unsigned long long)wanted);
	if ((uint64_t)status.st_size != wanted)
		return reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL, "has %llu bytes, not %llu",
			(unsigned long long)status.st_size, (unsigned long long)wanted);
	return 0;
}

/* Adds what is in [*at, end) and moves *at there. */
static int sum_data(int fd, struct checksum *sum, uint8_t *chunk, uint64_t *at, uint64_t end)
{
	while (*at < end) {
		size_t length = end - *at < CHUNK ? (size_t)(end - *at) : CHUNK;
		ssize_t got = pread(fd, chunk, length, (off_t)*at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		got -= got % SNAPSHOT_PAGE;
		if (got == 0)
			return -EIO; /* it was cut off just now */
		for (ssize_t page = 0; page < got; page += SNAPSHOT_PAGE)
			if (!snapshot_memory_is_zero(chunk + page))
				snapshot_memory_add_page(sum, *at + (uint64_t)page, chunk + page);
		*at += (uint64_t)got;
	}
	return 0;
}

/* File systems keep holes in blocks of their own size; data is read from whole pages on. */
static int sum_file(int fd, struct checksum *sum, uint8_t *chunk, uint64_t size)
{
	for (uint64_t at = 0; at < size;) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;
		uint64_t end;
		int r;

		if (data < 0 && errno == ENXIO)
			return 0;
		hole = data < 0 ? data : lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		if ((uint64_t)data > at)
			at = (uint64_t)data - (uint64_t)data % SNAPSHOT_PAGE;
		end = (uint64_t)hole + (SNAPSHOT_PAGE - 1);
		end -= end % SNAPSHOT_PAGE;
		r = sum_data(fd, sum, chunk, &at, end < size ? end : size);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_sum(int fd, const struct snapshot_memory *what, char *why)
{
	struct checksum *sum = checksum_create();
	uint8_t *chunk = malloc(CHUNK);
	int r = sum && chunk ? sum_file(fd, sum, chunk, what->size) : -ENOMEM;

	if (r < 0)
		reason_set(why, SNAPSHOT_WHY_MAX, r, "cannot be read: %s", strerror(-r));
	else if (checksum_value(sum) != what->sum)
		r = reason_set(why, SNAPSHOT_WHY_MAX, -EBADMSG,
			"is damaged, or not the one that %s this state: its checksum is another",
			what->is_base ? "lies under" : "was saved with");
	checksum_destroy(sum);
	free(chunk);
	return r;
}

int snapshot_memory_check(int fd, const struct snapshot_memory *what, uint64_t size, char *why)
{
	int r = check_size(fd, what->size, size, why);

	return r < 0 || snapshot_memory_is_sealed(fd) ? r : check_sum(fd, what, why);
}

int snapshot_memory_check_base(
	int fd, const struct snapshot_memory *what, uint64_t size, uint64_t known, char *why)
{
	int r = check_size(fd, what->size, size, why);

	if (r < 0 || known == 0 || !snapshot_memory_is_sealed(fd))
		return r < 0 ? r : check_sum(fd, what, why);
	return known == what->sum ? 0
				  : reason_set(why, SNAPSHOT_WHY_MAX, -EINVAL,
					    "is not the one that lies under this state: its checksum is "
					    "%016llx, not %016llx",
					    (unsigned long long)known, (unsigned long long)what->sum);
}

/* What is looked at as one: data, or a hole. A power of two. */
static uint64_t block_of(const struct guest_memory *memory)
{
	uint64_t block = SNAPSHOT_BLOCK_MIN;

	while (guest_memory_size(memory) / block > SNAPSHOT_BLOCKS_MAX)
		block *= 2;
	return block;
}

/* Bytes of whole blocks without data that begin at `from`, which is before `end`; 0 or more, or -errno. */
static int64_t hole_at(int fd, uint64_t from, uint64_t end, uint64_t block)
{
	off_t data = lseek(fd, (off_t)from, SEEK_DATA);

	if (data < 0 && errno != ENXIO)
		return -errno;
	if (data < 0 || (uint64_t)data >= end)
		return (int64_t)(end - from);
	return (int64_t)(((uint64_t)data - from) & ~(block - 1));
}

/* base: where the region begins in the file. */
static int map_region(const struct guest_region *region, int fd, uint64_t base, uint64_t block)
{
	uint64_t at = 0, data = 0;

	while (at < region->size) {
		uint64_t left = region->size - at;
		int64_t hole = hole_at(fd, base + at, base + region->size, block);

		if (hole < 0)
			return (int)hole;
		if (hole == 0) {
			at += left < block ? left : block;
			if (at < region->size)
				continue;
		}
		/* What is before the hole, or before the end. */
		if (at > data && mmap(region->host + data, at - data, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
					 (off_t)(base + data)) == MAP_FAILED)
			return -errno;
		at += (uint64_t)hole;
		data = at;
	}
	return 0;
}

int snapshot_memory_map(struct guest_memory *memory, int fd)
{
	uint64_t base = 0;
	int r = 0;

	memory->of_file = true;
	memory->replaced = calloc(guest_memory_size(memory) / SNAPSHOT_PAGE / 64 + 1, sizeof(uint64_t));
	if (!memory->replaced)
		return -ENOMEM;
	for (unsigned i = 0; i < memory->count && r == 0; i++) {
		const struct guest_region *region = &memory->regions[i];

		/* A kernel without huge pages refuses, and needs none of it. */
		madvise(region->host, region->size, MADV_NOHUGEPAGE);
		r = map_region(region, fd, base, block_of(memory));
		base += region->size;
	}
	return r;
}
