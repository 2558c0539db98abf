/* SPDX-License-Identifier: Apache-2.0 */
/* What a save of a sandbox brings to the disk, what is restored from it, and who gives back the room of what
 * is not to be. */
#include "tests/unit/hostctl_calls_fixture.h"

#include "host-ctl/sandbox/sandbox_save.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/vm/vm_private.h"

enum { MIB = 1024 * 1024, SUM_AT = 32 };

static bool was_synced(const char *format, const char *path)
{
	struct stat status;
	char whole[PATH_MAX];

	snprintf(whole, sizeof whole, format, path);
	assert_int_equal(stat(whole, &status), 0);
	for (int i = 0; i < synced.count && i < SYNCED_MAX; i++)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_names_of_new_folders, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_a_state_folder_without_a_path, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_there_is_time_to_read_it, begin_watch, end_watch),
		cmocka_unit_test_setup_teardown(test_room_is_given_back_elsewhere, begin_watch, end_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
