/* SPDX-License-Identifier: Apache-2.0 */
/* What a save of a sandbox brings to the disk, what of it the loop does not wait for, and what is to be over,
 * or noted, before anybody is told: by the calls that are made, in this process and in daemons that it
 * starts. */
#include "tests/unit/hostctl_suspend_fixture.h"

#include "host-ctl/sandbox/sandbox_save.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/vm/vm_private.h"
#include <limits.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { SYNCED_MAX = 64, MIB = 1024 * 1024, SUM_AT = 32 };

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
	/* In the folders of sandboxes: */
	atomic_int syncs_of_loop, frees_of_loop, frees_of_others;
} * seen;

/* Of this process alone. */
static struct {
	ino_t inodes[SYNCED_MAX];
	int count;
} synced;

static bool is_loop(void)
{
	return gettid() == getpid();
}

static bool is_of_sandboxes(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t length;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof path - 1);
	path[length > 0 ? length : 0] = '\0';
	return strstr(path, "/sandboxes") != NULL;
}

static bool is_open(const struct stat *file)
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

static void note_free(void)
{
	atomic_fetch_add(is_loop() ? &seen->frees_of_loop : &seen->frees_of_others, 1);
}

int __wrap_fsync(int fd)
{
	struct stat status;

	if (seen && is_loop() && is_of_sandboxes(fd))
		atomic_fetch_add(&seen->syncs_of_loop, 1);
	if (fstat(fd, &status) == 0 && synced.count < SYNCED_MAX)
		synced.inodes[synced.count++] = status.st_ino;
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

static int begin_watch(void **state)
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

static int end_watch(void **state)
{
	(void)state;
	munmap(seen, sizeof *seen);
	seen = NULL;
	return 0;
}

static bool was_synced(const char *format, const char *path)
{
	struct stat status;
	char whole[PATH_MAX];

	snprintf(whole, sizeof whole, format, path);
	assert_int_equal(stat(whole, &status), 0);
	for (int i = 0; i < synced.count; i++)
		if (synced.inodes[i] == status.st_ino)
			return true;
	return false;
}

/* --- what it brings to the disk --- */

struct place {
	char above[64], path[96]; /* of the state folder, which is not there yet */
	char image[96];
	json_t *made;
};

static void make_place(struct place *place)
{
	struct stat status;

	snprintf(place->above, sizeof place->above, "/tmp/tinderbox-save.XXXXXX");
	assert_non_null(mkdtemp(place->above));
	snprintf(place->path, sizeof place->path, "%s/state", place->above);
	snprintf(place->image, sizeof place->image, "%s/image", place->above);
	write_text(place->above, "image", "an image");
	assert_int_equal(stat(place->image, &status), 0);
	place->made = json_pack("{s:I,s:I,s:i,s:I,s:{s:s,s:I,s:I}}", "memory_bytes", (json_int_t)128 * MIB,
		"disk_bytes", (json_int_t)0, "cpus", 1, "cid", (json_int_t)3, "image", "path", place->image,
		"bytes", (json_int_t)status.st_size, "changed_ns",
		(json_int_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
	assert_non_null(place->made);
}

static void remove_place(struct place *place)
{
	char command[160];

	json_decref(place->made);
	snprintf(command, sizeof command, "rm -rf %s", place->above);
	assert_int_equal(system(command), 0);
}

static void begin_save(struct place *place, struct sandbox_save *save)
{
	sandbox_save_init(save, place->path, "sb-0123456789abcdef", "base", place->made);
	assert_int_equal(sandbox_save_open(save, true), 0);
}

/* As a vmm does. */
static void write_save(const struct sandbox_save *save)
{
	static char bytes[4 * MIB];
	char state[4096] = "TNDXSNAP";
	const uint64_t sum = 0x0123456789abcdef;

	memcpy(state + SUM_AT, &sum, sizeof sum);
	memset(bytes, 'm', sizeof bytes);
	assert_int_equal(pwrite(save->state, state, sizeof state, 0), sizeof state);
	assert_int_equal(pwrite(save->memory, bytes, sizeof bytes, 0), sizeof bytes);
}

/* A name is on the disk when the folder that it is in is. */
static void test_names_of_new_folders(void **state)
{
	struct sandbox_save save;
	struct place place;
	struct error error;
	char slashes[128];
	int folder;

	(void)state;
	make_place(&place);
	snprintf(slashes, sizeof slashes, "%s//", place.path);
	folder = state_folder_open(slashes, &error);
	assert_true(folder >= 0);
	close(folder);
	assert_true(was_synced("%s", place.above));
	/* Only what is new is brought there. */
	synced.count = 0;
	folder = state_folder_open(place.path, &error);
	assert_true(folder >= 0);
	close(folder);
	assert_int_equal(synced.count, 0);
	begin_save(&place, &save);
	write_save(&save);
	sandbox_save_work(&save);
	assert_int_equal(save.error.kind, ERROR_NONE);
	assert_true(save.is_there);
	assert_true(was_synced("%s", place.path));
	assert_true(was_synced("%s/sandboxes", place.path));
	assert_true(was_synced("%s/sandboxes/sb-0123456789abcdef", place.path));
	assert_true(was_synced("%s/sandboxes/sb-0123456789abcdef/state", place.path));
	assert_true(was_synced("%s/sandboxes/sb-0123456789abcdef/memory", place.path));
	save.is_there = false;
	sandbox_save_finish(&save);
	remove_place(&place);
}

static void test_a_state_folder_without_a_path(void **state)
{
	struct place place;
	struct error error;
	int folder, before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	make_place(&place);
	assert_int_equal(chdir(place.above), 0);
	folder = state_folder_open("state", &error);
	assert_true(folder >= 0);
	close(folder);
	assert_true(was_synced("%s", place.above));
	assert_int_equal(fchdir(before), 0);
	close(before);
	remove_place(&place);
}

static void expect_time_to_read(struct pool_source *source, bool same_machine)
{
	const struct vm_config config = {.boot_timeout_ms = VM_BOOT_TIMEOUT_MS};
	struct vm vm = {.config = &config};

	assert_non_null(source);
	vm.source = &source->source;
	assert_int_equal(source->source.same_machine, same_machine);
	assert_int_equal(source->source.held, same_machine);
	/* 128 MiB at 32 KiB a millisecond. */
	assert_int_equal(vm_boot_timeout_ms(&vm), VM_BOOT_TIMEOUT_MS + 4096);
	pool_source_drop(source);
}

/* Memory that is no loaded template's is read whole, by a child of a fork as by one that wakes. */
static void test_there_is_time_to_read_it(void **state)
{
	static const char id[] = "sb-0123456789abcdef";
	struct sandbox_save save;
	struct place place;
	struct error error;

	(void)state;
	make_place(&place);
	begin_save(&place, &save);
	write_save(&save);
	sandbox_save_work(&save);
	assert_true(save.is_there);
	save.is_there = false;
	sandbox_save_finish(&save);
	expect_time_to_read(sandbox_saved_source(place.path, id, NULL, "base", &error), true);
	expect_time_to_read(sandbox_saved_copy_source(place.path, id, id, NULL, "base", &error), false);
	remove_place(&place);
}

/* --- what the loop does not wait for --- */

static void await_frees(int least)
{
	for (int waited = 0; atomic_load(&seen->frees_of_others) < least; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
}

static int count_files(const struct place *place)
{
	char path[160];

	snprintf(path, sizeof path, "%s/sandboxes/sb-0123456789abcdef", place->path);
	return count_entries(path, "") - 2;
}

/* It has no name at once, and whoever closes it last frees it. */
static void test_room_is_given_back_elsewhere(void **state)
{
	struct sandbox_save save;
	struct place place;

	(void)state;
	make_place(&place);
	begin_save(&place, &save);
	write_save(&save);
	/* Another one in its place, as of a VM that lies upon nothing, */
	assert_int_equal(sandbox_save_open(&save, true), 0);
	await_frees(2);
	/* and none in that one's. */
	write_save(&save);
	sandbox_save_finish(&save);
	assert_int_equal(count_files(&place), 0);
	await_frees(4);
	assert_int_equal(atomic_load(&seen->frees_of_loop), 0);
	remove_place(&place);
}

/* --- a whole daemon --- */

/* All of it is on the disk, and its row is not: nothing is to be there when its guest runs on. */
static void test_a_suspension_that_is_not_noted(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_SUSPENDED);
	for (int i = 2; i < 4; i++) {
		expect_refusal_of(
			&daemon, "POST", id, "/suspend", NULL, 429, "exhausted", "no room for the row");
		assert_int_equal(atomic_load(&seen->refused), i - 1);
		await_state(&daemon, id, "ready");
		expect_none_saved(&daemon, id);
		expect_lives(&daemon, id, i);
	}
	/* One that stood stands. */
	ask_sandbox(&daemon, id, "pause", "paused");
	expect_refusal_of(&daemon, "POST", id, "/suspend", NULL, 429, "exhausted", "no room for the row");
	await_state(&daemon, id, "paused");
	expect_none_saved(&daemon, id);
	await_frees(1);
	assert_int_equal(atomic_load(&seen->frees_of_loop), 0);
	assert_int_equal(atomic_load(&seen->syncs_of_loop), 0);
	atomic_store(&seen->refuses, -1);
	suspend(&daemon, id);
	expect_saved(&daemon, id, 5);
	wake(&daemon, id);
	expect_lives(&daemon, id, 5);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* Its VM was not needed any more, and now it would be. */
static void test_nor_is_there_a_vm(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot keep-panic", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_SUSPENDED);
	call_sandbox(&daemon, "POST", id, "/suspend", NULL, &answer);
	/* Of which of the two it is told is the scheduler's. */
	assert_true(answer.status == 429 || answer.status == 502);
	answer_finish(&answer);
	await_state(&daemon, id, "failed");
	expect_none_saved(&daemon, id);
	assert_int_equal(atomic_load(&seen->syncs_of_loop), 0);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_deleted_meanwhile(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_SUSPENDED);
	for (int i = 0; i < 8; i++) {
		create_sandbox(&daemon, "{}", id);
		call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
		assert_int_equal(answer.status, 202);
		answer_finish(&answer);
		sleep_ms(3L * i);
		delete_sandbox(&daemon, id);
		assert_false(sandbox_has_file(&daemon, id, ""));
	}
	assert_int_equal(atomic_load(&seen->syncs_of_loop), 0);
	await_pool(&daemon, "busy", 0);
	finish(&daemon);
}

/* --- what is to be over, or noted --- */

static void expect_receipt_of(const struct daemon *daemon, const char *id, const char *vm)
{
	struct answer answer;

	call_sandbox(daemon, "DELETE", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "verified"), "true");
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(answer.json, "removed"), "vm")), vm);
	answer_finish(&answer);
}

/* One that is deleted on its way back is gone when its VM is. */
static void test_deleted_while_it_wakes(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32];

	(void)state;
	start_with_templates_and(&daemon, "boot wake-mute", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	await_vm(&daemon, id, vm);
	hold_group(&daemon, vm);
	call_sandbox(&daemon, "DELETE", id, "?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	expect_stays(&daemon, id, "\"deleting\"", 300);
	assert_true(sandbox_has_file(&daemon, id, "state"));
	release_group(&daemon, vm);
	await_state(&daemon, id, "gone");
	assert_false(sandbox_has_file(&daemon, id, ""));
	expect_receipt_of(&daemon, id, vm);
	finish(&daemon);
}

/* That it lives is not noted: nothing of it has run, and it is suspended still when its VM is gone. */
static void test_a_wake_that_is_not_noted(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32], same[32], code[64];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	atomic_store(&seen->refuses, JOURNAL_SANDBOX_LIVES);
	atomic_store(&seen->delays, JOURNAL_SANDBOX_LIVES);
	atomic_store(&seen->delay_ms, 500);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	await_vm(&daemon, id, vm);
	hold_group(&daemon, vm);
	for (int waited = 0; !atomic_load(&seen->refused); waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	expect_stays(&daemon, id, "\"waking\"", 300);
	release_group(&daemon, vm);
	await_operation(&daemon, &answer, "wake", "failed", same, code);
	assert_string_equal(code, "exhausted");
	await_state(&daemon, id, "suspended");
	assert_string_equal(field(&daemon, id, "vm"), "null");
	expect_saved(&daemon, id, 5);
	atomic_store(&seen->refuses, -1);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* What was saved cannot be removed, for want of a thread: it is good, and to be woken when it can be. */
static void test_a_wake_without_an_end(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32], same[32], code[64];

	(void)state;
	start_with_templates_and(&daemon, "boot boot:500", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	await_vm(&daemon, id, vm);
	atomic_store(&seen->no_workers, true);
	await_operation(&daemon, &answer, "wake", "failed", same, code);
	assert_string_equal(code, "internal");
	await_state(&daemon, id, "suspended");
	expect_saved(&daemon, id, 5);
	atomic_store(&seen->no_workers, false);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void kill_vm(const struct daemon *daemon, const char *id)
{
	char vm[32];
	long pid;

	vm_of(daemon, id, vm);
	pid = pid_of_vm(daemon, vm);
	assert_true(pid > 0);
	assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
}

/* Its VM ends by itself before that is noted; the next daemon is not to know it as one that lives. */
static void test_gone_is_what_is_noted(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	atomic_store(&seen->delays, JOURNAL_SANDBOX_DELETING);
	atomic_store(&seen->delay_ms, 700);
	call_sandbox(&daemon, "DELETE", id, "?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	kill_vm(&daemon, id);
	expect_stays(&daemon, id, "\"deleting\"", 400);
	await_state(&daemon, id, "gone");
	create_sandbox(&daemon, "{}", id);
	/* The same of a stop. */
	atomic_store(&seen->delays, JOURNAL_SANDBOX_STOPPED);
	call_sandbox(&daemon, "POST", id, "/stop?wait=false", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	kill_vm(&daemon, id);
	expect_stays(&daemon, id, "\"stopping\"", 400);
	await_state(&daemon, id, "stopped");
	atomic_store(&seen->delays, -1);
	ask_sandbox(&daemon, id, "start", "ready");
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_names_of_new_folders, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_a_state_folder_without_a_path, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_there_is_time_to_read_it, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_room_is_given_back_elsewhere, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_a_suspension_that_is_not_noted, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_nor_is_there_a_vm, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_deleted_meanwhile, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_deleted_while_it_wakes, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_a_wake_that_is_not_noted, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_a_wake_without_an_end, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_gone_is_what_is_noted, begin_watch, end_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
