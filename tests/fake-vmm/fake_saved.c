/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake vmm saves, and is restored from: a state whose header is as a vmm's (docs/snapshot.md), with
 * the script, how often the guest was saved, and the sessions that it holds; a memory of which one page tells
 * its checksum; and pages that say which memory they lie upon. What does not belong together is refused, and
 * so is a state with a flat disk upon another one.
 */
#include "common/io.h"
#include "tests/fake-vmm/fake_vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY_PAGE_AT = 1 << 20, PAGES_END = 5 << 20 };

struct state {
	char magic[8];
	uint32_t version, header;
	uint64_t bytes, memory_bytes, sum;
	char script[SCRIPT_MAX];
	uint64_t lives, is_flat;
};

struct memory_page {
	char magic[8];
	uint64_t sum;
};

static const char state_magic[8] = "TNDXSNAP", memory_magic[8] = "memory", pages_magic[8] = "TNDXPAGE";

/* Of the VM: sessions, which have what was at their beginning, ask for it. */
static _Atomic uint64_t lives;

uint64_t fake_lives(void)
{
	return lives;
}

static uint64_t new_sum(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void write_state(struct fake *fake, int fd, uint64_t sum, bool is_flat)
{
	const uint64_t saved = ++lives;
	struct state state = {.version = 1,
		.header = 40,
		.memory_bytes = fake->memory,
		.sum = sum,
		.lives = saved,
		.is_flat = is_flat};

	memcpy(state.magic, state_magic, sizeof state.magic);
	memcpy(state.script, fake->script, sizeof state.script);
	if (io_write_all(fd, &state, sizeof state))
		fake_fail("saving the state");
	fake_save_held(fd);
}

/* The memory a page with holes around it. */
static void write_memory(const struct fake *fake, int fd, uint64_t sum)
{
	struct memory_page page = {.sum = sum};
	char bytes[4096] = "";

	memcpy(page.magic, memory_magic, sizeof page.magic);
	memcpy(bytes, &page, sizeof page);
	if (ftruncate(fd, (off_t)fake->memory) ||
		pwrite(fd, bytes, sizeof bytes, MEMORY_PAGE_AT) != sizeof bytes)
		fake_fail("saving the memory");
}

/* Longer than a vmm may write at other times. */
static void write_pages(const struct fake *fake, int fd)
{
	struct memory_page page = {.sum = fake->sum};

	memcpy(page.magic, pages_magic, sizeof page.magic);
	if (pwrite(fd, &page, sizeof page, 0) != sizeof page || pwrite(fd, "x", 1, PAGES_END) != 1)
		fake_fail("saving the pages");
}

static bool refuse(struct vmm_message *reply, int status, const char *words)
{
	reply->status = status;
	snprintf(reply->text, sizeof reply->text, "%s", words);
	return true;
}

/* One that is built has noted its files, and is asked for all of its memory first. */
static bool is_build(const struct fake *fake, const struct vmm_message *request)
{
	return !fake->restored && fake->noted && !fake->is_owned && !request->arg0;
}

/* Of who owns the VM. */
static bool refuse_owner(struct fake *fake, const struct vmm_message *request, struct vmm_message *reply)
{
	if (is_build(fake, request))
		return false;
	fake->is_owned = true;
	if (fake_told_number(fake, "keep-slow:") > 0)
		fake_pause_ms(fake_told_number(fake, "keep-slow:"));
	if (fake_told(fake, "keep-refused"))
		return refuse(reply, -ENOSPC, "writing the snapshot: No space left on device");
	if (fake_told(fake, "keep-dies"))
		fake_end(fake, VMM_END_KVM, "while it saved");
	if (!fake->restored && (request->arg0 & VMM_SAVE_PRIVATE))
		return refuse(reply, -ENODATA, "it lies upon no memory");
	return false;
}

void fake_save(
	struct fake *fake, const struct vmm_message *request, struct vmm_message *reply, const int *fds)
{
	bool pages = request->arg0 & VMM_SAVE_PRIVATE, flat = request->arg0 & VMM_SAVE_DISK;
	/* What it lies upon itself stays that. */
	uint64_t sum = pages ? fake->sum : new_sum();

	if (refuse_owner(fake, request, reply))
		return;
	if (fake_told_number(fake, "save-slow:") > 0)
		fake_pause_ms(fake_told_number(fake, "save-slow:"));
	if (fake_told(fake, "save-refused")) {
		refuse(reply, -ENOSPC, "no room for the memory");
		return;
	}
	if (fake_told(fake, "save-full")) {
		refuse(reply, -ENOSPC, "writing the snapshot: No space left on device");
		return;
	}
	write_state(fake, fds[0], sum, flat || fake->is_flat);
	if (pages)
		write_pages(fake, fds[1]);
	else
		write_memory(fake, fds[1], sum);
	reply->arg0 = sizeof(struct state);
	reply->arg1 = 4096;
	if (flat) {
		fake_flatten(fake, fds[2]);
		reply->arg2 = 4096;
	}
	if (fake_told(fake, "keep-panic") && fake->is_owned) {
		struct vmm_message said = *reply;

		said.type = VMM_SAVE | VMM_REPLY;
		io_send_fds(fake->control, &said, sizeof said, NULL, 0);
		fake_end(fake, VMM_END_PANIC, "after it was saved");
	}
}

static void check_memory(const struct fake *fake, int memory)
{
	struct memory_page page;

	if (memory < 0 || pread(memory, &page, sizeof page, MEMORY_PAGE_AT) != sizeof page ||
		memcmp(page.magic, memory_magic, sizeof page.magic) != 0 || page.sum != fake->sum)
		fake_fail("the memory is another's");
}

static void check_pages(const struct fake *fake, int pages)
{
	struct memory_page page;

	if (pread(pages, &page, sizeof page, 0) != sizeof page ||
		memcmp(page.magic, pages_magic, sizeof page.magic) != 0 || page.sum != fake->sum)
		fake_fail("the pages lie upon another memory");
}

void fake_restore(struct fake *fake, int memory, int pages, const char *sum)
{
	struct state state;
	struct stat status;
	char digits[VMM_RESTORE_SUM_DIGITS + 1];

	if (pread(fake->kernel, &state, sizeof state, 0) != sizeof state ||
		memcmp(state.magic, state_magic, sizeof state.magic) != 0) {
		errno = EINVAL;
		fake_fail("the state is none");
	}
	if (memory >= 0 && fstat(memory, &status) == 0)
		fake->memory = (uint64_t)status.st_size;
	memcpy(fake->script, state.script, sizeof fake->script);
	fake->sum = state.sum;
	lives = state.lives;
	fake->is_flat = state.is_flat;
	check_memory(fake, memory);
	if (pages >= 0)
		check_pages(fake, pages);
	snprintf(digits, sizeof digits, "%016llx", (unsigned long long)fake->sum);
	if (sum[0] && (pages < 0 || strcmp(sum, digits) != 0))
		fake_fail("the checksum is another's");
	fake->is_saved = pages >= 0 || fake->holds;
	if (fake->is_saved && fake_told_number(fake, "wake-exit:") >= 0) {
		fprintf(stderr, "fake vmm: told not to wake\n");
		exit((int)fake_told_number(fake, "wake-exit:"));
	}
	fake_restore_held(fake, fake->kernel, sizeof state);
}
