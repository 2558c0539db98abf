/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/template_store.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char building[] = ".building-", description[] = "template.json";

static int open_folder(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

/* A folder of plain files. They lose their names here, and their pages when they are closed. */
static void remove_folder(int at, const char *name)
{
	int fd = open_folder(at, name), files[WORKER_FDS_MAX];
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t count = 0;

	while (listing && (entry = readdir(listing))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (count < WORKER_FDS_MAX)
			files[count++] = openat(fd, entry->d_name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
		unlinkat(fd, entry->d_name, 0);
	}
	worker_close(files, count);
	if (listing)
		closedir(listing);
	else
		fd_close(&fd);
	if (unlinkat(at, name, AT_REMOVEDIR) < 0)
		log_warn("cannot remove what is left of a template, %s: %s", name, strerror(errno));
}

static DIR *list(int folder)
{
	int fd = open_folder(folder, ".");
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);

	if (!listing)
		fd_close(&fd);
	return listing;
}

static void sweep(int folder)
{
	DIR *listing = list(folder);
	struct dirent *entry;

	while (listing && (entry = readdir(listing))) {
		if (strncmp(entry->d_name, building, sizeof building - 1) != 0)
			continue;
		log_warn("removed %s, which an earlier daemon left unfinished", entry->d_name);
		remove_folder(folder, entry->d_name);
	}
	if (listing)
		closedir(listing);
}

static int fail(struct error *error, int status, const char *what, const char *name)
{
	error_set(error, ERROR_INTERNAL,
		"cannot %s %s: %s: name a folder that can be written with --state-dir", what, name,
		strerror(-status));
	return status;
}

int template_store_open(struct template_store *store, const char *state_directory, struct error *error)
{
	int state, r;

	*store = (struct template_store){.folder = -1};
	if (mkdir(state_directory, 0755) < 0 && errno != EEXIST)
		return fail(error, -errno, "make the state folder", state_directory);
	state = open(state_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (state < 0)
		return fail(error, -errno, "open the state folder", state_directory);
	/* Memory of guests: for nobody else. */
	r = mkdirat(state, "templates", 0700) < 0 && errno != EEXIST ? -errno : 0;
	if (!r)
		r = store->folder = open_folder(state, "templates");
	fd_close(&state);
	if (r < 0)
		return fail(error, r, "use the folder of templates in", state_directory);
	/* What is unfinished is another daemon's, if there is one. */
	if (flock(store->folder, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		fd_close(&store->folder);
		error_set(error, ERROR_INTERNAL,
			"the state folder %s is in use by another host-ctl serve: stop it first, or give "
			"this one its own with --state-dir",
			state_directory);
		return -EBUSY;
	}
	sweep(store->folder);
	return 0;
}

void template_store_close(struct template_store *store)
{
	while (store->first) {
		struct template *template = store->first;

		store->first = template->next;
		template_drop(template);
	}
	fd_close(&store->folder);
}

int template_store_begin(
	const struct template_store *store, const char *name, char folder[TEMPLATE_FOLDER_MAX], int *fd)
{
	unsigned char random[4];

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -EIO;
	snprintf(folder, TEMPLATE_FOLDER_MAX, "%s%s-%02x%02x%02x%02x", building, name, random[0], random[1],
		random[2], random[3]);
	if (mkdirat(store->folder, folder, 0700) < 0)
		return -errno;
	*fd = open_folder(store->folder, folder);
	return *fd < 0 ? *fd : 0;
}

void template_store_abandon(const struct template_store *store, const char *folder)
{
	remove_folder(store->folder, folder);
}

static int sync_file(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), r = 0;

	if (fd < 0 || fsync(fd) < 0)
		r = -errno;
	fd_close(&fd);
	return r;
}

static int write_description(int folder, const json_t *about)
{
	int fd = openat(folder, description, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), r;
	char *text;

	if (fd < 0)
		return -errno;
	text = json_dumps(about, JSON_INDENT(2) | JSON_SORT_KEYS);
	r = text ? io_write_all(fd, text, strlen(text)) : -ENOMEM;
	if (!r && fsync(fd) < 0)
		r = -errno;
	free(text);
	fd_close(&fd);
	return r;
}

/* The folder gets the name. What had it before has the folder's name then, and goes. */
static int give_name(const struct template_store *store, const char *folder, const char *name)
{
	if (renameat2(store->folder, folder, store->folder, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (renameat2(store->folder, folder, store->folder, name, RENAME_EXCHANGE) < 0)
		return -errno;
	remove_folder(store->folder, folder);
	return 0;
}

int template_store_commit(
	const struct template_store *store, const char *folder, int fd, const struct template *template)
{
	int r = write_description(fd, template->about);

	if (!r)
		r = sync_file(fd, "state");
	if (!r)
		r = sync_file(fd, "memory");
	if (!r && template->working_set >= 0)
		r = sync_file(fd, "working-set");
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (!r)
		r = give_name(store, folder, template->name);
	if (!r && fsync(store->folder) < 0)
		log_warn("templates: %s", strerror(errno));
	return r;
}

static struct template **place_of(struct template_store *store, const char *name)
{
	struct template **place = &store->first;

	while (*place && strcmp((*place)->name, name) != 0)
		place = &(*place)->next;
	return place;
}

static void forget(struct template_store *store, const char *name)
{
	struct template **place = place_of(store, name), *template = *place;

	if (!template)
		return;
	*place = template->next;
	template_drop(template);
}

void template_store_add(struct template_store *store, struct template *template)
{
	forget(store, template->name);
	template->next = store->first;
	store->first = template_take(template);
}

struct template *template_store_find(const struct template_store *store, const char *name)
{
	struct template *template = store->first;

	while (template && strcmp(template->name, name) != 0)
		template = template->next;
	return template;
}

static json_t *read_description(int folder)
{
	int fd = openat(folder, description, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char *text = fd < 0 ? NULL : malloc(TEMPLATE_JSON_MAX);
	ssize_t length = text ? io_read_full(fd, text, TEMPLATE_JSON_MAX) : -1;
	json_t *about = length < 0 ? NULL : json_loadb(text, (size_t)length, 0, NULL);

	free(text);
	fd_close(&fd);
	return about;
}

int template_store_read(
	const struct template_store *store, const char *name, int *fd, json_t **about, struct error *error)
{
	int folder = open_folder(store->folder, name);
	json_t *read;

	if (folder == -ENOENT)
		error_set(error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	else if (folder < 0)
		fail(error, folder, "open template", name);
	if (folder < 0)
		return folder;
	read = read_description(folder);
	if (json_integer_value(json_object_get(read, "format")) == TEMPLATE_FORMAT) {
		*fd = folder;
		*about = read;
		return 0;
	}
	json_decref(read);
	fd_close(&folder);
	error_set(error, ERROR_INTERNAL,
		"template %s cannot be used: its %s is damaged or of another version: build it again", name,
		description);
	return -EBADMSG;
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

json_t *template_store_names(const struct template_store *store)
{
	DIR *listing = list(store->folder);
	char *names[TEMPLATES_MAX];
	json_t *array = json_array();
	struct dirent *entry;
	size_t count = 0;

	while (listing && count < TEMPLATES_MAX && (entry = readdir(listing)))
		if (template_name_is_valid(entry->d_name) && (names[count] = strdup(entry->d_name)))
			count++;
	if (listing)
		closedir(listing);
	qsort(names, count, sizeof names[0], compare_names);
	for (size_t i = 0; i < count; i++) {
		json_array_append_new(array, json_string(names[i]));
		free(names[i]);
	}
	return array;
}

int template_store_remove(struct template_store *store, const char *name)
{
	char aside[TEMPLATE_FOLDER_MAX];

	snprintf(aside, sizeof aside, "%s%s-removed", building, name);
	if (renameat(store->folder, name, store->folder, aside) < 0)
		return -errno;
	remove_folder(store->folder, aside);
	forget(store, name);
	return 0;
}
