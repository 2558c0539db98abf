/* SPDX-License-Identifier: Apache-2.0 */
/* Images that come, get names and go. */
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/image/image_store.h"
#include "host-ctl/support/json_file.h"
#include "host-ctl/support/state_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MODE_IMAGE = 0444 };

static const char building_prefix[] = ".building-", content[] = "image";

static int fail(struct error *error, int status, const char *what)
{
	error_set(error, ERROR_INTERNAL, "cannot %.200s: %s%s", what, strerror(-status),
		error_is_of_full_disk(status)
			? ": make room on the disk of the state folder, or name another with --state-dir"
			: "");
	return status;
}

/* The lock of the folder: *lock is the caller's. */
static int lock_folder(const struct image_store *store, int *lock, struct error *error)
{
	int status;

	*lock = openat(store->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	status = *lock < 0 ? -errno : state_folder_lock(*lock);
	if (!status)
		return 0;
	fd_close(lock);
	if (status == -EWOULDBLOCK)
		error_set(error, ERROR_NOT_READY,
			"the images in %.400s are being changed by another host-ctl: try again", store->path);
	else
		fail(error, status, "lock the images");
	return status;
}

/* --- the folder of a build --- */

/* A tree may be deep and large, and rm knows how to take one apart without following anything. */
static void remove_tree(const char *path)
{
	char rm[] = "rm", recursive[] = "-rf", one[] = "--one-file-system", end[] = "--", copy[PATH_MAX];
	char *argv[] = {rm, recursive, one, end, copy, NULL}, variable[] = "PATH=/usr/bin:/bin",
	     *environment[] = {variable, NULL};
	int status = 0, r;
	pid_t pid;

	snprintf(copy, sizeof copy, "%s", path);
	r = posix_spawnp(&pid, rm, NULL, NULL, argv, environment);
	if (!r)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	if (r || status)
		log_warn("cannot remove all of %s", path);
}

/* Its builder, if it lives, has the lock. */
static bool is_left(const struct image_store *store, const char *name)
{
	int fd = state_folder_open_at(store->folder, name);
	bool left = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

	fd_close(&fd);
	return left;
}

static void sweep(const struct image_store *store)
{
	DIR *listing = state_folder_list(store->folder);
	char path[PATH_MAX];
	struct dirent *entry;

	while (listing && (entry = readdir(listing))) {
		if (strncmp(entry->d_name, building_prefix, sizeof building_prefix - 1) != 0 ||
			!is_left(store, entry->d_name))
			continue;
		snprintf(path, sizeof path, "%.3800s/%.255s", store->path, entry->d_name);
		remove_tree(path);
	}
	if (listing)
		closedir(listing);
}

int image_store_begin(const struct image_store *store, struct image_building *building, struct error *error)
{
	int lock, status = lock_folder(store, &lock, error);

	building->folder = -1;
	if (status)
		return status;
	/* One that was made and has not got its lock yet must not be taken for one that was left. */
	sweep(store);
	snprintf(building->path, sizeof building->path, "%.*s/%sXXXXXX", PATH_MAX - IMAGE_BUILDING_SIZE,
		store->path, building_prefix);
	building->folder = mkdtemp(building->path) ? state_folder_open_at(AT_FDCWD, building->path) : -errno;
	snprintf(building->name, sizeof building->name, "%.*s", IMAGE_BUILDING_SIZE - 1,
		strrchr(building->path, '/') + 1);
	status = building->folder < 0 ? building->folder
				      : (flock(building->folder, LOCK_EX | LOCK_NB) < 0 ? -errno : 0);
	if (status) {
		fail(error, status, "make a folder for the build");
		image_store_abandon(building);
	}
	fd_close(&lock);
	return status;
}

void image_store_abandon(struct image_building *building)
{
	if (building->folder >= 0)
		remove_tree(building->path);
	fd_close(&building->folder);
}

/* --- a new image --- */

static int sync_content(int folder)
{
	int fd = openat(folder, content, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), r = 0;

	if (fd < 0 || fchmod(fd, MODE_IMAGE) < 0 || fsync(fd) < 0)
		r = -errno;
	fd_close(&fd);
	return r;
}

/* The image last: with it all is there. */
static int add_files(const struct image_store *store, int from, const char *id)
{
	char image[IMAGE_FILE_SIZE], about[IMAGE_FILE_SIZE];
	struct stat status;

	snprintf(image, sizeof image, "%s.erofs", id);
	snprintf(about, sizeof about, "%s.json", id);
	/* Templates know it by its time too: the same content stays the same file. */
	if (fstatat(store->folder, image, &status, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (renameat(from, "about", store->folder, about) < 0 || fsync(store->folder) < 0 ||
		renameat(from, content, store->folder, image) < 0 || fsync(store->folder) < 0)
		return -errno;
	return 0;
}

static int give_name(const struct image_store *store, int from, const char *name, const char *id)
{
	unlinkat(from, "name", 0);
	if (symlinkat(id, from, "name") < 0 || renameat(from, "name", store->names, name) < 0 ||
		fsync(store->names) < 0)
		return -errno;
	return 0;
}

int image_store_put(const struct image_store *store, const struct image_building *building, const char *name,
	const char *id, const json_t *about, struct error *error)
{
	int lock = -1, status = json_file_write(building->folder, "about", about);

	if (!status)
		status = sync_content(building->folder);
	if (status)
		return fail(error, status, "bring the image to the disk");
	status = lock_folder(store, &lock, error);
	if (status)
		return status;
	status = add_files(store, building->folder, id);
	if (!status)
		status = give_name(store, building->folder, name, id);
	fd_close(&lock);
	return status ? fail(error, status, "add the image") : 0;
}

/* --- removal --- */

/* Its lock, which nobody has who builds of it: *lock is the caller's. */
static int lock_image(
	const struct image_store *store, const char *id, const char *text, int *lock, struct error *error)
{
	char file[IMAGE_FILE_SIZE];

	snprintf(file, sizeof file, "%s.erofs", id);
	*lock = openat(store->folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0)
		return 0;
	fd_close(lock);
	return error_set(error, ERROR_CONFLICT,
		"image %.80s is in use: a template is being built from it: try again when that is done",
		text);
}

/* json_array of templates. */
static int refuse_use(const char *text, const json_t *users, struct error *error)
{
	return error_set(error, ERROR_CONFLICT,
		"image %.80s is in use: template %.80s was built from it%s: remove that first, or build it "
		"from "
		"another image",
		text, json_string_value(json_array_get(users, 0)),
		json_array_size(users) > 1 ? ", and others" : "");
}

static int unlink_image(const struct image_store *store, const char *id, struct error *error)
{
	char file[IMAGE_FILE_SIZE];

	snprintf(file, sizeof file, "%s.erofs", id);
	if (unlinkat(store->folder, file, 0) < 0)
		return fail(error, -errno, "remove the image");
	snprintf(file, sizeof file, "%s.json", id);
	unlinkat(store->folder, file, 0);
	return fsync(store->folder) < 0 ? fail(error, -errno, "bring the removal to the disk") : 0;
}

static int unlink_names(const struct image_store *store, json_t *names, struct error *error)
{
	json_t *name;
	size_t i;

	json_array_foreach(names, i, name)
	{
		if (unlinkat(store->names, json_string_value(name), 0) < 0 && errno != ENOENT)
			return fail(error, -errno, "remove the name");
	}
	return fsync(store->names) < 0 ? fail(error, -errno, "bring the removal to the disk") : 0;
}

/* With all its names, if nothing uses it. */
static int remove_image(
	const struct image_store *store, const char *id, const char *text, json_t *names, struct error *error)
{
	json_t *users = NULL;
	int lock, r = lock_image(store, id, text, &lock, error);

	if (r)
		return r;
	/* A build that held it until now has its template on the disk. */
	users = image_store_users(store, error);
	if (!users)
		r = -1;
	else if (json_object_get(users, id))
		r = refuse_use(text, json_object_get(users, id), error);
	if (!r)
		r = unlink_names(store, names, error);
	if (!r)
		r = unlink_image(store, id, error);
	json_decref(users);
	fd_close(&lock);
	return r ? -1 : 0;
}

int image_store_remove(const struct image_store *store, const char *text, bool *removed, struct error *error)
{
	json_t *names = NULL, *own, *alone;
	char id[IMAGE_ID_SIZE];
	int lock, r;

	*removed = false;
	if (image_store_find(store, text, id, error) || lock_folder(store, &lock, error))
		return -1;
	names = image_store_names(store);
	own = json_object_get(names, id);
	*removed = !image_name_is_valid(text) || json_array_size(own) < 2;
	if (*removed) {
		r = remove_image(store, id, text, own, error);
	} else {
		alone = json_pack("[s]", text);
		r = unlink_names(store, alone, error);
		json_decref(alone);
	}
	json_decref(names);
	fd_close(&lock);
	return r ? -1 : 0;
}

struct collection {
	const struct image_store *store;
	json_t *names, *users, *removed;
	struct error *error;
};

static int collect(void *context, const char *id)
{
	struct collection *collection = context;
	struct error ignored;

	if (json_object_get(collection->names, id) || json_object_get(collection->users, id))
		return 0;
	/* One that is being built from stays, for the next time. */
	if (remove_image(collection->store, id, id, NULL, &ignored))
		return 0;
	return json_array_append_new(collection->removed, json_string(id));
}

int image_store_collect(const struct image_store *store, json_t *removed, struct error *error)
{
	struct collection collection = {.store = store, .removed = removed, .error = error};
	int lock, r = -1;

	if (store->folder < 0)
		return 0;
	if (lock_folder(store, &lock, error))
		return -1;
	sweep(store);
	collection.users = image_store_users(store, error);
	collection.names = collection.users ? image_store_names(store) : NULL;
	if (collection.users && !collection.names)
		error_set(error, ERROR_INTERNAL, "the names of the images cannot be read");
	if (collection.names)
		r = image_store_visit(store, collect, &collection);
	json_decref(collection.users);
	json_decref(collection.names);
	fd_close(&lock);
	return r ? -1 : 0;
}
