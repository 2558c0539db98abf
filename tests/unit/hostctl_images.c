/* SPDX-License-Identifier: Apache-2.0 */
/* The store of images: names and ids, what is used, what goes when. */
#include "tests/unit/hostctl_images_fixture.h"

/* --- names and ids --- */

static void test_names_and_ids(void **state)
{
	static const char *const good[] = {"python", "a", "0", "py-3.11_x"};
	static const char *const bad[] = {"", "Python", "-x", ".x", "a/b", "..", "a b", "sha256-x", "a\nb",
		"é", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	char id[IMAGE_ID_SIZE + 1];

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		assert_true(image_name_is_valid(good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(image_name_is_valid(bad[i]));
	snprintf(id, sizeof id, "%s", id_of('a'));
	assert_true(image_id_is_valid(id));
	id[20] = 'A';
	assert_false(image_id_is_valid(id));
	snprintf(id, sizeof id, "%s0", id_of('a'));
	assert_false(image_id_is_valid(id));
	snprintf(id, IMAGE_ID_SIZE - 1, "%s", id_of('a'));
	assert_false(image_id_is_valid(id));
}

static void test_found_by_name_and_id(void **state)
{
	struct fixture *fixture = *state;
	char twin[IMAGE_ID_SIZE];

	expect_list(fixture, "");
	put(fixture, "python", 'a');
	put(fixture, "other", 'b');
	put(fixture, "alias", 'a');
	expect_list(fixture, "alias,python:a: other:b:");
	expect_found(fixture, "python", 'a');
	expect_found(fixture, id_of('b'), 'b');
	expect_found(fixture, "sha256-bbbbbbbb", 'b');
	expect_refused(fixture, "sha256-bbbbbbb", ERROR_INVALID,
		"'sha256-bbbbbbb' is not the id of an image: that is sha256- and 64 hex digits, of which at "
		"least the "
		"first 8 are given");
	expect_refused(fixture, "sha256-cccccccc", ERROR_NOT_FOUND,
		"there is no image sha256-cccccccc: see `host-ctl image ls`");
	expect_refused(fixture, "none", ERROR_NOT_FOUND,
		"there is no image none: see `host-ctl image ls`, or build it with `host-ctl image build`");
	expect_refused(fixture, "../python", ERROR_INVALID,
		"'../python' is not the name of an image: it has a-z, 0-9, '.', '_' and '-', a letter or "
		"digit first, "
		"and at most 63 of them");
	snprintf(twin, sizeof twin, "%s", id_of('b'));
	twin[IMAGE_ID_SIZE - 2] = '0';
	snprintf(fixture->error.message, sizeof fixture->error.message, "%s.erofs", twin);
	write_file(fixture->images, fixture->error.message, "an image");
	expect_refused(fixture, "sha256-bbbbbbbb", ERROR_INVALID,
		"the ids of 2 images begin with sha256-bbbbbbbb: give more of it");
}

/* What somebody has put into the folders is no image, and nothing is followed. */
static void test_what_is_no_image(void **state)
{
	struct fixture *fixture = *state;
	char path[2 * PATH_SIZE];

	put(fixture, "python", 'a');
	snprintf(path, sizeof path, "%s/%s.erofs", fixture->images, id_of('b'));
	assert_int_equal(symlink("/etc/passwd", path), 0);
	snprintf(path, sizeof path, "%s/names/linked", fixture->images);
	assert_int_equal(symlink(id_of('b'), path), 0);
	snprintf(path, sizeof path, "%s/names/out", fixture->images);
	assert_int_equal(symlink("../../../etc/passwd", path), 0);
	snprintf(path, sizeof path, "%s/names", fixture->images);
	write_file(path, "file", "x");
	write_file(fixture->images, "sha256-x.erofs", "x");
	expect_refused(fixture, "linked", ERROR_NOT_FOUND,
		"there is no image linked: see `host-ctl image ls`, or build it with `host-ctl image build`");
	expect_refused(fixture, "out", ERROR_NOT_FOUND,
		"there is no image out: see `host-ctl image ls`, or build it with `host-ctl image build`");
	expect_refused(fixture, "file", ERROR_NOT_FOUND,
		"there is no image file: see `host-ctl image ls`, or build it with `host-ctl image build`");
	expect_found(fixture, "python", 'a');
}

static void test_the_same_content_stays_the_same_file(void **state)
{
	struct fixture *fixture = *state;
	struct stat before, after;
	char path[2 * PATH_SIZE];

	put(fixture, "python", 'a');
	snprintf(path, sizeof path, "%s/%s.erofs", fixture->images, id_of('a'));
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(before.st_mode & 07777, 0444);
	put(fixture, "python", 'a');
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(count_files(fixture), 2);
}

/* --- use and removal --- */

static void test_a_name_moves(void **state)
{
	struct fixture *fixture = *state;

	put(fixture, "python", 'a');
	use(fixture, "py", 'a');
	put(fixture, "python", 'b');
	expect_list(fixture, "python:b: :a:py");
	expect_collected(fixture, 0);
	unuse(fixture, "py");
	expect_collected(fixture, 1);
	expect_list(fixture, "python:b:");
	assert_int_equal(count_files(fixture), 2);
}

static void test_one_in_use_stays(void **state)
{
	struct fixture *fixture = *state;
	bool removed;

	put(fixture, "python", 'a');
	use(fixture, "py", 'a');
	expect_kept(fixture, "python",
		"image python is in use: template py was built from it: remove that first, or build it from "
		"another "
		"image");
	expect_kept(fixture, "sha256-aaaaaaaa",
		"image sha256-aaaaaaaa is in use: template py was built from it: remove that first, or build "
		"it from "
		"another image");
	put(fixture, "alias", 'a');
	expect_removed(fixture, "python", false);
	expect_list(fixture, "alias:a:py");
	use(fixture, "second", 'a');
	unuse(fixture, "py");
	use(fixture, "third", 'a');
	assert_int_equal(image_store_remove(&fixture->store, "alias", &removed, &fixture->error), -1);
	assert_non_null(strstr(fixture->error.message, "was built from it, and others: remove that first"));
	unuse(fixture, "second");
	unuse(fixture, "third");
	expect_removed(fixture, "alias", true);
	expect_list(fixture, "");
	assert_int_equal(count_files(fixture), 0);
}

static void test_all_names_go_with_an_id(void **state)
{
	struct fixture *fixture = *state;

	put(fixture, "python", 'a');
	put(fixture, "alias", 'a');
	expect_removed(fixture, id_of('a'), true);
	expect_refused(fixture, "alias", ERROR_NOT_FOUND,
		"there is no image alias: see `host-ctl image ls`, or build it with `host-ctl image build`");
	assert_int_equal(count_files(fixture), 0);
}

static void test_one_that_is_held_stays(void **state)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX], wanted[PATH_MAX];
	int fd, second;

	put(fixture, "python", 'a');
	fd = image_store_hold(fixture->state, "python", path, &fixture->error);
	assert_true(fd >= 0);
	snprintf(wanted, sizeof wanted, "%s/%s.erofs", fixture->images, id_of('a'));
	assert_string_equal(path, wanted);
	second = image_store_hold(fixture->state, "sha256-aaaaaaaa", path, &fixture->error);
	assert_true(second >= 0);
	close(second);
	expect_kept(fixture, "python",
		"image python is in use: a template is being built from it: try again when that is done");
	put(fixture, "python", 'b');
	expect_collected(fixture, 0);
	close(fd);
	expect_collected(fixture, 1);
	assert_int_equal(image_store_hold(fixture->state, id_of('a'), path, &fixture->error), -ENOENT);
	assert_int_equal(fixture->error.kind, ERROR_NOT_FOUND);
}

/* Who removes it has its lock alone. */
static void test_one_that_is_being_removed_is_not_held(void **state)
{
	struct fixture *fixture = *state;
	char path[PATH_MAX];
	int fd;

	put(fixture, "python", 'a');
	snprintf(path, sizeof path, "%s/%s.erofs", fixture->images, id_of('a'));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(image_store_hold(fixture->state, "python", path, &fixture->error), -ENOENT);
	assert_string_equal(fixture->error.message, "there is no image python any more: it is being removed");
	close(fd);
}

/* A daemon that is asked for an image makes no store. */
static void test_a_state_folder_without_images(void **state)
{
	char folder[] = "/tmp/tinderbox-images.XXXXXX", path[PATH_MAX];
	struct error error;

	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(image_store_hold(folder, "python", path, &error), -ENOENT);
	assert_int_equal(error.kind, ERROR_NOT_FOUND);
	assert_string_equal(error.message,
		"there is no image python: see `host-ctl image ls`, or build it with `host-ctl image build`");
	assert_int_equal(image_store_hold(folder, "sha256-01234567", path, &error), -ENOENT);
	assert_string_equal(error.message, "there is no image sha256-01234567: see `host-ctl image ls`");
	assert_int_equal(rmdir(folder), 0);
}

/* To look, to remove and to collect make nothing: neither a state folder nor what belongs into one. */
static void test_reading_makes_nothing(void **state)
{
	char folder[] = "/tmp/tinderbox-images.XXXXXX", path[PATH_SIZE], id[IMAGE_ID_SIZE];
	const char *const folders[] = {path, folder}; /* none, and an empty one */

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/none", folder);
	for (int i = 0; i < 2; i++) {
		struct image_store store;
		struct error error;
		json_t *list, *collected = json_array();
		bool removed;

		assert_int_equal(image_store_open_to_read(&store, folders[i], &error), 0);
		list = image_store_list(&store, &error);
		assert_non_null(list);
		assert_int_equal(json_array_size(json_object_get(list, "images")), 0);
		json_decref(list);
		assert_int_equal(image_store_find(&store, "python", id, &error), -1);
		assert_int_equal(error.kind, ERROR_NOT_FOUND);
		assert_int_equal(image_store_remove(&store, "python", &removed, &error), -1);
		assert_int_equal(error.kind, ERROR_NOT_FOUND);
		assert_int_equal(image_store_remove(&store, "sha256-01234567", &removed, &error), -1);
		assert_int_equal(error.kind, ERROR_NOT_FOUND);
		assert_int_equal(image_store_collect(&store, collected, &error), 0);
		assert_int_equal(json_array_size(collected), 0);
		json_decref(collected);
		image_store_close(&store);
	}
	assert_int_equal(rmdir(folder), 0);
}

/* What is there is found by it, all the same. */
static void test_reading_finds_what_is_there(void **state)
{
	struct fixture *fixture = *state;
	char id[IMAGE_ID_SIZE];

	put(fixture, "python", 'a');
	image_store_close(&fixture->store);
	assert_int_equal(image_store_open_to_read(&fixture->store, fixture->state, &fixture->error), 0);
	assert_int_equal(image_store_find(&fixture->store, "python", id, &fixture->error), 0);
	assert_string_equal(id, id_of('a'));
}

/* --- changes --- */

static void test_what_killed_builds_left(void **state)
{
	struct fixture *fixture = *state;
	struct image_building living, next;
	char path[2 * PATH_SIZE];

	assert_int_equal(image_store_begin(&fixture->store, &living, &fixture->error), 0);
	snprintf(path, sizeof path, "%s/.building-killed", fixture->images);
	assert_int_equal(mkdir(path, 0700), 0);
	write_file(path, "image", "half");
	assert_int_equal(image_store_begin(&fixture->store, &next, &fixture->error), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(living.path, F_OK), 0);
	assert_int_equal(access(next.path, F_OK), 0);
	image_store_abandon(&next);
	image_store_abandon(&living);
	assert_int_equal(count_files(fixture), 0);
}

static void test_one_changes_it_at_a_time(void **state)
{
	struct fixture *fixture = *state;
	struct image_building building;
	int lock = open(fixture->images, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char message[2 * PATH_SIZE];

	assert_int_equal(flock(lock, LOCK_EX), 0);
	assert_int_equal(image_store_begin(&fixture->store, &building, &fixture->error), -EWOULDBLOCK);
	snprintf(message, sizeof message, "the images in %s are being changed by another host-ctl: try again",
		fixture->images);
	assert_int_equal(fixture->error.kind, ERROR_NOT_READY);
	assert_string_equal(fixture->error.message, message);
	image_store_abandon(&building);
	close(lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_and_ids),
		cmocka_unit_test_setup_teardown(test_found_by_name_and_id, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_no_image, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_the_same_content_stays_the_same_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_name_moves, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_in_use_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_all_names_go_with_an_id, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_that_is_held_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_one_that_is_being_removed_is_not_held, set_up, tear_down),
		cmocka_unit_test(test_a_state_folder_without_images),
		cmocka_unit_test(test_reading_makes_nothing),
		cmocka_unit_test_setup_teardown(test_reading_finds_what_is_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_killed_builds_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_changes_it_at_a_time, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
