/* SPDX-License-Identifier: Apache-2.0 */
/* A store of images in a state folder of its own, with images and templates that are only files. */
#ifndef TESTS_UNIT_HOSTCTL_IMAGES_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_IMAGES_FIXTURE_H

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

static inline void write_file(const char *folder, const char *name, const char *text)
{
	char path[2 * PATH_SIZE];
	FILE *file;

	snprintf(path, sizeof path, "%.255s/%.255s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static inline int set_up(void **state)
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

static inline int tear_down(void **state)
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
static inline const char *id_of(char digit)
{
	static char ids[4][IMAGE_ID_SIZE];
	static unsigned int next;
	char *id = ids[next++ % 4];

	memcpy(id, IMAGE_ID_PREFIX, strlen(IMAGE_ID_PREFIX));
	memset(id + strlen(IMAGE_ID_PREFIX), digit, IMAGE_HEX);
	id[IMAGE_ID_SIZE - 1] = '\0';
	return id;
}

static inline void put(struct fixture *fixture, const char *name, char digit)
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
static inline void use(struct fixture *fixture, const char *name, char digit)
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

static inline void unuse(struct fixture *fixture, const char *name)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof path, "%.200s/templates/%s/template.json", fixture->state, name);
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
}

/* "NAME,…:DIGIT:TEMPLATE,… …" of all images. */
static inline void expect_list(struct fixture *fixture, const char *wanted)
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

static inline void expect_found(struct fixture *fixture, const char *text, char digit)
{
	char id[IMAGE_ID_SIZE];

	assert_int_equal(image_store_find(&fixture->store, text, id, &fixture->error), 0);
	assert_string_equal(id, id_of(digit));
}

static inline void expect_refused(
	struct fixture *fixture, const char *text, enum error_kind kind, const char *message)
{
	char id[IMAGE_ID_SIZE];

	assert_int_equal(image_store_find(&fixture->store, text, id, &fixture->error), -1);
	assert_int_equal(fixture->error.kind, kind);
	assert_string_equal(fixture->error.message, message);
}

static inline void expect_removed(struct fixture *fixture, const char *text, bool with_image)
{
	bool removed;

	assert_int_equal(image_store_remove(&fixture->store, text, &removed, &fixture->error), 0);
	assert_int_equal(removed, with_image);
}

static inline void expect_kept(struct fixture *fixture, const char *text, const char *message)
{
	bool removed;

	assert_int_equal(image_store_remove(&fixture->store, text, &removed, &fixture->error), -1);
	assert_int_equal(fixture->error.kind, ERROR_CONFLICT);
	assert_string_equal(fixture->error.message, message);
}

static inline void expect_collected(struct fixture *fixture, size_t count)
{
	json_t *collected = json_array();

	assert_int_equal(image_store_collect(&fixture->store, collected, &fixture->error), 0);
	assert_int_equal(json_array_size(collected), count);
	json_decref(collected);
}

/* Of the store's folder, but for names. */
static inline unsigned int count_files(const struct fixture *fixture)
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

#endif
