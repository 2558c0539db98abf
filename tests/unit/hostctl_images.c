/* SPDX-License-Identifier: Apache-2.0 */
/* The store of images: names and ids, what is used, what goes when; and builds with builders that are played.
 */
#include "tests/support/unit.h"

#include "common/io.h"
#include "host-ctl/cli/cmd_image_build.h"
#include "host-ctl/image/image_store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_SIZE = 256, WAIT_MS = 20 * 1000 };

struct fixture {
	char state[PATH_SIZE], images[PATH_SIZE];
	struct image_store store;
	struct error error;
};

/* --- the fixture --- */

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[2 * PATH_SIZE];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);

	assert_non_null(fixture);
	snprintf(fixture->state, sizeof fixture->state, "/tmp/tinderbox-images.XXXXXX");
	assert_non_null(mkdtemp(fixture->state));
	snprintf(fixture->images, sizeof fixture->images, "%.200s/images", fixture->state);
	assert_int_equal(image_store_open(&fixture->store, fixture->state, &fixture->error), 0);
	assert_string_equal(fixture->store.path, fixture->images);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	char command[PATH_SIZE + 16];

	image_store_close(&fixture->store);
	snprintf(command, sizeof command, "rm -rf %s", fixture->state);
	assert_int_equal(system(command), 0);
	free(fixture);
	return 0;
}

/* sha256-dd…d */
static const char *id_of(char digit)
{
	static char ids[4][IMAGE_ID_SIZE];
	static unsigned int next;
	char *id = ids[next++ % 4];

	memcpy(id, IMAGE_ID_PREFIX, strlen(IMAGE_ID_PREFIX));
	memset(id + strlen(IMAGE_ID_PREFIX), digit, IMAGE_HEX);
	id[IMAGE_ID_SIZE - 1] = '\0';
	return id;
}

static void put(struct fixture *fixture, const char *name, char digit)
{
	struct image_building building;
	json_t *about = json_pack("{s:i,s:i}", "format", IMAGE_FORMAT, "created_ms", 1000);

	assert_int_equal(image_store_begin(&fixture->store, &building, &fixture->error), 0);
	write_file(building.path, "image", "an image");
	assert_int_equal(
		image_store_put(&fixture->store, &building, name, id_of(digit), about, &fixture->error), 0);
	image_store_abandon(&building);
	json_decref(about);
}

/* A template on the disk, of the image. */
static void use(struct fixture *fixture, const char *name, char digit)
{
	char path[PATH_SIZE], text[2 * PATH_SIZE];

	snprintf(path, sizeof path, "%.200s/templates", fixture->state);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%.200s/templates/%s", fixture->state, name);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(text, sizeof text,
		"{\"format\":1,\"name\":\"%s\",\"generation\":\"0\",\"inputs\":{\"cpus\":1,\"memory_bytes\":"
		"134217728,"
		"\"image\":{\"path\":\"%.128s/%s.erofs\",\"bytes\":8,\"changed_ns\":1}}}",
		name, fixture->images, id_of(digit));
	write_file(path, "template.json", text);
}

static void unuse(struct fixture *fixture, const char *name)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof path, "%.200s/templates/%s/template.json", fixture->state, name);
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
}

/* "NAME,…:DIGIT:TEMPLATE,… …" of all images. */
static void expect_list(struct fixture *fixture, const char *wanted)
{
	json_t *answer = image_store_list(&fixture->store, &fixture->error), *image, *entry;
	char got[1024] = "";
	size_t i, n, length = 0;

	assert_non_null(answer);
	json_array_foreach(json_object_get(answer, "images"), i, image)
	{
		length += (size_t)snprintf(got + length, sizeof got - length, "%s", i ? " " : "");
		json_array_foreach(json_object_get(image, "names"), n, entry) length += (size_t)snprintf(
			got + length, sizeof got - length, "%s%s", n ? "," : "", json_string_value(entry));
		length += (size_t)snprintf(got + length, sizeof got - length,
			":%c:", json_string_value(json_object_get(image, "id"))[strlen(IMAGE_ID_PREFIX)]);
		json_array_foreach(json_object_get(image, "used_by"), n, entry) length += (size_t)snprintf(
			got + length, sizeof got - length, "%s%s", n ? "," : "", json_string_value(entry));
		assert_int_equal(json_integer_value(json_object_get(image, "bytes")), 8);
		assert_int_equal(json_integer_value(json_object_get(image, "created_ms")), 1000);
	}
	assert_string_equal(got, wanted);
	json_decref(answer);
}

static void expect_found(struct fixture *fixture, const char *text, char digit)
{
	char id[IMAGE_ID_SIZE];

	assert_int_equal(image_store_find(&fixture->store, text, id, &fixture->error), 0);
	assert_string_equal(id, id_of(digit));
}

static void expect_refused(
	struct fixture *fixture, const char *text, enum error_kind kind, const char *message)
{
	char id[IMAGE_ID_SIZE];

	assert_int_equal(image_store_find(&fixture->store, text, id, &fixture->error), -1);
	assert_int_equal(fixture->error.kind, kind);
	assert_string_equal(fixture->error.message, message);
}

static void expect_removed(struct fixture *fixture, const char *text, bool with_image)
{
	bool removed;

	assert_int_equal(image_store_remove(&fixture->store, text, &removed, &fixture->error), 0);
	assert_int_equal(removed, with_image);
}

static void expect_kept(struct fixture *fixture, const char *text, const char *message)
{
	bool removed;

	assert_int_equal(image_store_remove(&fixture->store, text, &removed, &fixture->error), -1);
	assert_int_equal(fixture->error.kind, ERROR_CONFLICT);
	assert_string_equal(fixture->error.message, message);
}

static void expect_collected(struct fixture *fixture, size_t count)
{
	json_t *collected = json_array();

	assert_int_equal(image_store_collect(&fixture->store, collected, &fixture->error), 0);
	assert_int_equal(json_array_size(collected), count);
	json_decref(collected);
}

/* Of the store's folder, but for names. */
static unsigned int count_files(const struct fixture *fixture)
{
	DIR *listing = opendir(fixture->images);
	struct dirent *entry;
	unsigned int count = 0;

	assert_non_null(listing);
	while ((entry = readdir(listing)))
		count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			 strcmp(entry->d_name, "names") != 0;
	closedir(listing);
	return count;
}

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

/* --- builds --- */

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

static void test_facts(void **state)
{
	static const char hash[] = "sha256 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	static const struct {
		const char *before, *after;
		int wanted;
		size_t packages;
	} cases[] = {
		{"", "", 0, 0},
		{"", "\n", 0, 0},
		{"package python3 3.11.2-1+b1 amd64\npackage a 1 all\n", "\n", 0, 2},
		{"package python3\n", "\n", -1, 0},
		{"", "\nother line\n", -1, 0},
		{"", "0\n", -1, 0},
		{"\n", "\n", -1, 0},
	};
	char id[IMAGE_ID_SIZE], text[512];
	json_t *packages;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		snprintf(text, sizeof text, "%s%s%s", cases[i].before, hash, cases[i].after);
		assert_int_equal(cmd_image_read_facts(text, id, &packages), cases[i].wanted);
		if (cases[i].wanted)
			continue;
		assert_string_equal(
			id, "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
		assert_int_equal(json_array_size(packages), cases[i].packages);
		json_decref(packages);
	}
	assert_int_equal(cmd_image_read_facts("", id, &packages), -1);
	assert_int_equal(cmd_image_read_facts("package a 1 all\n", id, &packages), -1);
	assert_int_equal(cmd_image_read_facts("sha256 XY\n", id, &packages), -1);
}

static int build_with(struct fixture *fixture, const char *script, const char *limit, json_t **answer)
{
	char builder[2 * PATH_SIZE], text[1024];
	const struct image_order order = {.builder = builder,
		.name = "python",
		.kind = "debian",
		.source = "python3,x",
		.limit = limit};

	snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
	write_file(fixture->state, "builder", text);
	snprintf(builder, sizeof builder, "%s/builder", fixture->state);
	assert_int_equal(chmod(builder, 0755), 0);
	return cmd_image_build(&fixture->store, &order, answer, &fixture->error);
}

static void test_a_build(void **state)
{
	static const char script[] =
		"[ \"$2 $3 $4 $5\" = '--debian python3,x --limit 1G' ] || exit 1\n"
		"printf 'an image' >$1\n"
		"printf 'package python3 3 all\\nsha256 %s\\n' $(printf '%064d' 0) >$1.facts; echo printed";
	struct fixture *fixture = *state;
	json_t *answer, *source;

	put(fixture, "python", 'a');
	assert_int_equal(build_with(fixture, script, "1G", &answer), 0);
	assert_string_equal(json_string_value(json_object_get(answer, "id")), id_of('0'));
	source = json_object_get(answer, "source");
	assert_string_equal(json_string_value(json_object_get(source, "kind")), "debian");
	assert_string_equal(json_string_value(json_object_get(source, "of")), "python3,x");
	assert_int_equal(json_array_size(json_object_get(answer, "packages")), 1);
	assert_int_equal(json_array_size(json_object_get(answer, "collected")), 1);
	json_decref(answer);
	expect_found(fixture, "python", '0');
	assert_int_equal(count_files(fixture), 2);
}

static void test_builds_that_fail(void **state)
{
	struct fixture *fixture = *state;
	json_t *answer;

	assert_int_equal(build_with(fixture, "printf half >$1; exit 1", NULL, &answer), -1);
	assert_int_equal(fixture->error.kind, ERROR_BUILD_FAILED);
	assert_string_equal(
		fixture->error.message, "the image was not built (the builder's message is above)");
	assert_int_equal(build_with(fixture, "kill -KILL $$", NULL, &answer), -1);
	assert_int_equal(fixture->error.kind, ERROR_BUILD_FAILED);
	assert_int_equal(build_with(fixture, "printf half >$1", NULL, &answer), -1);
	assert_string_equal(fixture->error.message, "the builder has not said what it has made");
	assert_int_equal(
		build_with(fixture, "printf 'sha256 %s\\n' $(printf '%064d' 0) >$1.facts", NULL, &answer),
		-1);
	assert_string_equal(
		fixture->error.message, "cannot bring the image to the disk: No such file or directory");
	assert_int_equal(count_files(fixture), 0);
}

/* A child that builds; its group's and the builder's end is what is waited for. */
static void expect_interrupted(struct fixture *fixture, int first, int second, int wanted)
{
	char marker[2 * PATH_SIZE], script[3 * PATH_SIZE];
	int status, waited = 0;
	pid_t pid;

	snprintf(marker, sizeof marker, "%s/marker", fixture->state);
	/* One that minds no signal but KILL, when there are to be two. */
	snprintf(script, sizeof script, "%s\nmkdir $1.d; echo $$ >%s\nwhile :; do sleep 60; done",
		second ? "trap '' TERM" : "", marker);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		json_t *answer;

		_exit(build_with(fixture, script, NULL, &answer));
	}
	while (access(marker, F_OK) < 0 && waited++ < WAIT_MS)
		usleep(1000);
	assert_true(waited < WAIT_MS);
	assert_int_equal(kill(pid, first), 0);
	if (second) {
		usleep(100 * 1000);
		assert_int_equal(kill(pid, second), 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), wanted);
	assert_int_equal(count_files(fixture), 0);
	assert_int_equal(unlink(marker), 0);
}

static void test_builds_that_are_interrupted(void **state)
{
	struct fixture *fixture = *state;

	expect_interrupted(fixture, SIGINT, 0, SIGINT);
	expect_interrupted(fixture, SIGTERM, 0, SIGTERM);
	expect_interrupted(fixture, SIGHUP, SIGINT, SIGINT);
}

static void test_no_builder(void **state)
{
	struct fixture *fixture = *state;
	const struct image_order order = {
		.builder = "/none/builder", .name = "python", .kind = "dir", .source = "/"};
	json_t *answer;

	assert_int_equal(cmd_image_build(&fixture->store, &order, &answer, &fixture->error), -1);
	assert_int_equal(fixture->error.kind, ERROR_NOT_FOUND);
	assert_string_equal(
		fixture->error.message, "there is no builder /none/builder: give its path with --builder");
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
		cmocka_unit_test_setup_teardown(test_what_killed_builds_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_changes_it_at_a_time, set_up, tear_down),
		cmocka_unit_test(test_facts),
		cmocka_unit_test_setup_teardown(test_a_build, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_builds_that_fail, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_builds_that_are_interrupted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_builder, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
