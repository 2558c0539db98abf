/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/image/image_store.h"
#include "common/io.h"
#include "host-ctl/pool/template.h"
#include "host-ctl/support/json_file.h"
#include "host-ctl/support/state_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert((int)IMAGE_NAME_MAX == (int)TEMPLATE_NAME_MAX, "names of images and templates have one form");

static const char prefix[] = IMAGE_ID_PREFIX, ending[] = ".erofs";
static const char hex_digits[] = "0123456789abcdef";

static bool begins_like_an_id(const char *text)
{
	return strncmp(text, prefix, sizeof prefix - 1) == 0;
}

bool image_name_is_valid(const char *name)
{
	return template_name_is_valid(name) && !begins_like_an_id(name);
}

/* Hex digits after the prefix; 0: it is no id, nor one cut short. */
static size_t count_digits(const char *id)
{
	size_t digits = begins_like_an_id(id) ? strspn(id + sizeof prefix - 1, hex_digits) : 0;

	return digits <= IMAGE_HEX && digits && !id[sizeof prefix - 1 + digits] ? digits : 0;
}

bool image_id_is_valid(const char *id)
{
	return count_digits(id) == IMAGE_HEX;
}

/* --- the folders --- */

/* Templates tell it to a daemon that may stand elsewhere. */
static int read_path(struct image_store *store, const char *state_directory, struct error *error)
{
	char link[32];
	ssize_t length;

	snprintf(link, sizeof link, "/proc/self/fd/%d", store->folder);
	length = readlink(link, store->path, sizeof store->path - 1);
	store->path[length > 0 ? length : 0] = '\0';
	if (store->path[0] == '/' && length <= PATH_MAX - IMAGE_FILE_SIZE - IMAGE_BUILDING_SIZE)
		return 0;
	return error_set(
		error, ERROR_INTERNAL, "cannot tell the path of the images of %.400s", state_directory);
}

int image_store_open(struct image_store *store, const char *state_directory, struct error *error)
{
	char whole[PATH_MAX];

	*store = (struct image_store){.folder = -1, .names = -1};
	snprintf(whole, sizeof whole, "%.4000s/images", state_directory);
	store->state = state_folder_open(state_directory, error);
	if (store->state >= 0)
		store->folder = state_folder_open_in(store->state, state_directory, "images", error);
	if (store->folder >= 0)
		store->names = state_folder_open_in(store->folder, whole, "names", error);
	if (store->names >= 0 && !read_path(store, state_directory, error))
		return 0;
	image_store_close(store);
	return -EIO;
}

int image_store_open_to_read(struct image_store *store, const char *state_directory, struct error *error)
{
	int state = state_folder_open_there(state_directory, error);

	*store = (struct image_store){.state = -1, .folder = -1, .names = -1};
	if (state < 0)
		return state == -ENOENT ? 0 : state;
	store->state = state;
	if (faccessat(store->state, "images/names", F_OK, 0) < 0 && errno == ENOENT)
		return 0;
	image_store_close(store);
	return image_store_open(store, state_directory, error);
}

void image_store_close(struct image_store *store)
{
	fd_close(&store->names);
	fd_close(&store->folder);
	fd_close(&store->state);
}

/* The id in the name of an image's file. */
static bool read_file_name(const char *file, char id[IMAGE_ID_SIZE])
{
	if (strlen(file) != IMAGE_ID_SIZE - 1 + sizeof ending - 1 ||
		strcmp(file + IMAGE_ID_SIZE - 1, ending) != 0)
		return false;
	snprintf(id, IMAGE_ID_SIZE, "%.*s", IMAGE_ID_SIZE - 1, file);
	return image_id_is_valid(id);
}

int image_store_visit(
	const struct image_store *store, int (*visit)(void *context, const char *id), void *context)
{
	DIR *listing = state_folder_list(store->folder);
	char id[IMAGE_ID_SIZE];
	struct dirent *entry;
	int r = listing ? 0 : -errno;

	while (!r && listing && (entry = readdir(listing)))
		if (read_file_name(entry->d_name, id))
			r = visit(context, id);
	if (listing)
		closedir(listing);
	return r;
}

/* --- names --- */

/* False: it is none, or none of ours. */
static bool read_name(const struct image_store *store, const char *name, char id[IMAGE_ID_SIZE])
{
	char text[IMAGE_ID_SIZE + 1];
	ssize_t length = image_name_is_valid(name) ? readlinkat(store->names, name, text, sizeof text) : -1;

	if (length != IMAGE_ID_SIZE - 1)
		return false;
	text[length] = '\0';
	memcpy(id, text, IMAGE_ID_SIZE);
	return image_id_is_valid(id);
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Adds each name to its image's list. */
static int add_names(const struct image_store *store, json_t *map, char **names, size_t count)
{
	char id[IMAGE_ID_SIZE];
	int r = 0;

	qsort(names, count, sizeof names[0], compare_names);
	for (size_t i = 0; i < count; i++) {
		if (!read_name(store, names[i], id))
			continue;
		if (!json_object_get(map, id))
			r |= json_object_set_new(map, id, json_array());
		r |= json_array_append_new(json_object_get(map, id), json_string(names[i]));
	}
	return r;
}

json_t *image_store_names(const struct image_store *store)
{
	DIR *listing = state_folder_list(store->names);
	json_t *map = json_object();
	char **names = NULL;
	struct dirent *entry;
	size_t count = 0;
	bool failed = !listing || !map;

	while (!failed && (entry = readdir(listing))) {
		char **more = reallocarray(names, count + 1, sizeof names[0]);

		failed = !more;
		names = more ? more : names;
		if (more && (names[count] = strdup(entry->d_name)))
			count++;
	}
	if (listing)
		closedir(listing);
	failed = failed || (count && add_names(store, map, names, count));
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
	if (!failed)
		return map;
	json_decref(map);
	return NULL;
}

/* --- one image --- */

static bool is_there(const struct image_store *store, const char *id)
{
	char file[IMAGE_FILE_SIZE];
	struct stat status;

	snprintf(file, sizeof file, "%s%s", id, ending);
	return fstatat(store->folder, file, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
}

struct search {
	const char *beginning;
	char id[IMAGE_ID_SIZE];
	unsigned int count;
};

static int compare_beginning(void *context, const char *id)
{
	struct search *search = context;

	if (strncmp(id, search->beginning, strlen(search->beginning)) != 0)
		return 0;
	memcpy(search->id, id, IMAGE_ID_SIZE);
	search->count++;
	return 0;
}

static int find_by_id(
	const struct image_store *store, const char *text, char id[IMAGE_ID_SIZE], struct error *error)
{
	struct search search = {.beginning = text};

	if (count_digits(text) < IMAGE_SHORT_MIN)
		return error_set(error, ERROR_INVALID,
			"'%.80s' is not the id of an image: that is sha256- and 64 hex digits, of which at "
			"least the first %d are given",
			text, IMAGE_SHORT_MIN);
	image_store_visit(store, compare_beginning, &search);
	if (search.count > 1)
		return error_set(error, ERROR_INVALID,
			"the ids of %u images begin with %.80s: give more of it", search.count, text);
	if (!search.count)
		return error_set(
			error, ERROR_NOT_FOUND, "there is no image %.80s: see `host-ctl image ls`", text);
	memcpy(id, search.id, IMAGE_ID_SIZE);
	return 0;
}

int image_store_find(
	const struct image_store *store, const char *text, char id[IMAGE_ID_SIZE], struct error *error)
{
	if (begins_like_an_id(text))
		return find_by_id(store, text, id, error);
	if (!image_name_is_valid(text))
		return error_set(error, ERROR_INVALID,
			"'%.80s' is not the name of an image: it has a-z, 0-9, '.', '_' and '-', a letter or "
			"digit first, and at most %d of them",
			text, IMAGE_NAME_MAX - 1);
	if (read_name(store, text, id) && is_there(store, id))
		return 0;
	return error_set(error, ERROR_NOT_FOUND,
		"there is no image %.80s: see `host-ctl image ls`, or build it with `host-ctl image build`",
		text);
}

static int hold(const struct image_store *store, const char *text, char path[PATH_MAX], struct error *error)
{
	char id[IMAGE_ID_SIZE], file[IMAGE_FILE_SIZE];
	struct stat status = {0};
	int fd;

	if (image_store_find(store, text, id, error))
		return -ENOENT;
	snprintf(file, sizeof file, "%s%s", id, ending);
	fd = openat(store->folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	/* One that is being removed is gone by then, or has another's lock. */
	if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && fstat(fd, &status) == 0 && status.st_nlink) {
		snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - IMAGE_FILE_SIZE - 1, store->path, file);
		return fd;
	}
	fd_close(&fd);
	error_set(error, ERROR_NOT_FOUND, "there is no image %.80s any more: it is being removed", text);
	return -ENOENT;
}

int image_store_hold(const char *state_directory, const char *text, char path[PATH_MAX], struct error *error)
{
	struct image_store store;
	int fd = image_store_open_to_read(&store, state_directory, error);

	if (fd < 0)
		return fd;
	fd = hold(&store, text, path, error);
	image_store_close(&store);
	return fd;
}

/* --- what is told --- */

/* What is in its .json; an empty object: nothing that could be read. */
static json_t *read_about(const struct image_store *store, const char *id)
{
	char file[IMAGE_FILE_SIZE];
	const char *kind;
	json_t *about;

	snprintf(file, sizeof file, "%s.json", id);
	about = json_file_read(store->folder, file, IMAGE_JSON_MAX, &kind);
	if (json_is_object(about))
		return about;
	json_decref(about);
	return json_object();
}

static json_t *list_of(json_t *map, const char *id)
{
	json_t *found = json_object_get(map, id);

	return found ? json_incref(found) : json_array();
}

static json_t *describe(const struct image_store *store, const char *id, json_t *names, json_t *users)
{
	json_t *about = read_about(store, id);
	char file[IMAGE_FILE_SIZE];
	struct stat status = {0};

	snprintf(file, sizeof file, "%s%s", id, ending);
	if (!about || fstatat(store->folder, file, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
		json_object_set_new(about, "id", json_string(id)) ||
		json_object_set_new(about, "bytes", json_integer((json_int_t)status.st_size)) ||
		json_object_set_new(about, "names", list_of(names, id)) ||
		json_object_set_new(about, "used_by", list_of(users, id))) {
		json_decref(about);
		return NULL;
	}
	return about;
}

json_t *image_store_describe(const struct image_store *store, const char *id, struct error *error)
{
	json_t *users = image_store_users(store, error);
	json_t *names = users ? image_store_names(store) : NULL;
	json_t *about = names ? describe(store, id, names, users) : NULL;

	if (users && !about)
		error_set(error, ERROR_INTERNAL, "image %s cannot be looked at, or there is no memory", id);
	json_decref(users);
	json_decref(names);
	return about;
}

struct listing {
	const struct image_store *store;
	json_t *names, *users, *list;
};

static int add_image(void *context, const char *id)
{
	struct listing *listing = context;
	json_t *about = describe(listing->store, id, listing->names, listing->users);

	/* It may be gone by now. */
	return about ? json_array_append_new(listing->list, about) : 0;
}

struct place {
	json_t *image;
	const char *name, *id; /* name: the first; NULL: it has none */
};

/* By the first name, those without one last, then by id. */
static int compare_places(const void *left, const void *right)
{
	const struct place *one = left, *other = right;

	if (one->name && other->name)
		return strcmp(one->name, other->name);
	return one->name ? -1 : other->name ? 1 : strcmp(one->id, other->id);
}

/* The same array in order. */
static json_t *sort_images(json_t *list)
{
	size_t count = json_array_size(list), i;
	struct place *places = calloc(count + 1, sizeof *places);
	json_t *sorted = json_array(), *image;
	int r = places && sorted ? 0 : -1;

	json_array_foreach(list, i, image)
	{
		if (r)
			break;
		places[i] = (struct place){.image = image,
			.name = json_string_value(json_array_get(json_object_get(image, "names"), 0)),
			.id = json_string_value(json_object_get(image, "id"))};
	}
	if (!r)
		qsort(places, count, sizeof places[0], compare_places);
	for (i = 0; !r && i < count; i++)
		r = json_array_append(sorted, places[i].image);
	free(places);
	json_decref(list);
	if (!r)
		return sorted;
	json_decref(sorted);
	return NULL;
}

json_t *image_store_list(const struct image_store *store, struct error *error)
{
	struct listing listing = {.store = store, .list = json_array()};
	int r = -1;

	error_set(error, ERROR_INTERNAL, "the images cannot be read, or there is no memory");
	if (store->folder < 0) {
		json_decref(listing.list);
		return json_pack("{s:[]}", "images");
	}
	listing.users = image_store_users(store, error);
	listing.names = listing.users ? image_store_names(store) : NULL;
	if (listing.names && listing.list)
		r = image_store_visit(store, add_image, &listing);
	json_decref(listing.users);
	json_decref(listing.names);
	if (!r)
		listing.list = sort_images(listing.list);
	if (!r && listing.list)
		return json_pack("{s:o}", "images", listing.list);
	json_decref(listing.list);
	return NULL;
}
