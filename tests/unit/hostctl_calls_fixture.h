/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are looked at, refused or slow, of this process and of the daemons that it starts: which thread
 * syncs and frees files of sandboxes, rows that the journal does not take, workers that are not to be had.
 * For tests that are linked with UNIT_WRAP_CALLS.
 */
#ifndef TESTS_UNIT_HOSTCTL_CALLS_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_CALLS_FIXTURE_H

#include "host-ctl/sandbox/sandboxes_private.h"
#include "tests/unit/hostctl_suspend_fixture.h"
#include <limits.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { SYNCED_MAX = 64 };

/* The linker's names (--wrap). */
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);
int __real_sandboxes_begin_work(
	struct sandboxes *all, void (*work)(void *context), void (*done)(void *context), void *context);
int __wrap_sandboxes_begin_work(
	struct sandboxes *all, void (*work)(void *context), void (*done)(void *context), void *context);
int __real_journal_sandbox_put(
	struct journal *journal, const struct journal_sandbox *row, struct error *error);
int __wrap_journal_sandbox_put(
	struct journal *journal, const struct journal_sandbox *row, struct error *error);

/* Of this process and of its daemons, whose loops are their first threads. */
static struct seen {
	/* Rows of this state (of the journal) are not taken, or taken so much later; -1: none. */
	atomic_int refuses, delays, delay_ms;
	atomic_int refused;
	atomic_bool no_workers; /* for sandboxes */
	/* So much time takes each sync of an upper; how many there were. */
	atomic_int upper_ms, upper_syncs;
	/* In the folders of sandboxes: */
	atomic_int syncs_of_loop, frees_of_loop, frees_of_others;
} * seen;

/* Of this process alone. */
static struct {
	ino_t inodes[SYNCED_MAX];
	atomic_int count; /* may be more than there is room for */
} synced;

static inline bool is_loop(void)
{
	return gettid() == getpid();
}

static inline void path_of_fd(int fd, char path[PATH_MAX])
{
	char link[64];
	ssize_t length;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, PATH_MAX - 1);
	path[length > 0 ? length : 0] = '\0';
}

static inline bool is_of_sandboxes(int fd)
{
	char path[PATH_MAX];

	path_of_fd(fd, path);
	return strstr(path, "/sandboxes") != NULL;
}

static inline bool is_upper(int fd)
{
	char path[PATH_MAX];
	const char *name;

	path_of_fd(fd, path);
	name = strrchr(path, '/');
	return name && !strcmp(name, "/upper");
}

static inline bool is_open(const struct stat *file)
{
	DIR *listing = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat other;
	bool found = false;

	while (!found && (entry = readdir(listing)))
		found = fstat((int)strtol(entry->d_name, NULL, 10), &other) == 0 &&
			other.st_ino == file->st_ino && other.st_dev == file->st_dev;
	closedir(listing);
	return found;
}

static inline void note_free(void)
{
	atomic_fetch_add(is_loop() ? &seen->frees_of_loop : &seen->frees_of_others, 1);
}

int __wrap_fsync(int fd)
{
	struct stat status;
	int at;

	if (seen && is_loop() && is_of_sandboxes(fd))
		atomic_fetch_add(&seen->syncs_of_loop, 1);
	if (fstat(fd, &status) == 0 && (at = atomic_fetch_add(&synced.count, 1)) < SYNCED_MAX)
		synced.inodes[at] = status.st_ino;
	if (seen && atomic_load(&seen->upper_ms) && is_upper(fd)) {
		atomic_fetch_add(&seen->upper_syncs, 1);
		sleep_ms(atomic_load(&seen->upper_ms));
	}
	return __real_fsync(fd);
}

/* What is the last of a file frees its blocks. One that is held elsewhere is not closed here. */
int __wrap_close(int fd)
{
	struct stat status;

	if (seen && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 0 &&
		status.st_blocks > 0 && is_of_sandboxes(fd))
		note_free();
	return __real_close(fd);
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
	struct stat status;

	if (seen && fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
		status.st_nlink == 1 && status.st_blocks > 0 && is_of_sandboxes(folder) && !is_open(&status))
		note_free();
	return __real_unlinkat(folder, name, flags);
}

int __wrap_sandboxes_begin_work(
	struct sandboxes *all, void (*work)(void *context), void (*done)(void *context), void *context)
{
	if (seen && atomic_load(&seen->no_workers))
		return -EAGAIN;
	return __real_sandboxes_begin_work(all, work, done, context);
}

int __wrap_journal_sandbox_put(
	struct journal *journal, const struct journal_sandbox *row, struct error *error)
{
	if (seen && atomic_load(&seen->delays) == (int)row->state)
		sleep_ms(atomic_load(&seen->delay_ms));
	if (!seen || atomic_load(&seen->refuses) != (int)row->state)
		return __real_journal_sandbox_put(journal, row, error);
	atomic_fetch_add(&seen->refused, 1);
	return error_set(error, ERROR_EXHAUSTED, "no room for the row");
}

static inline int begin_watch(void **state)
{
	(void)state;
	seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	synced.count = 0;
	if (seen == MAP_FAILED)
		return -1;
	atomic_store(&seen->refuses, -1);
	atomic_store(&seen->delays, -1);
	return 0;
}

static inline int end_watch(void **state)
{
	(void)state;
	munmap(seen, sizeof *seen);
	seen = NULL;
	return 0;
}

static inline void await_frees(int least)
{
	for (int waited = 0; atomic_load(&seen->frees_of_others) < least; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
}

#endif
