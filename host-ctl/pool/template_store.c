/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/template_store.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/pool/template_check.h"
#include "host-ctl/support/json_file.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/support/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FOLDERS_DEEP_MAX = 16 /* in a template, where none belongs */ };

static const char building[] = ".building-", description[] = "template.json";

static bool is_itself_or_parent(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* A folder in that one, which is no mount. */
static int open_inner(int folder, const char *name)
{
	const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
	int fd = (int)syscall(SYS_openat2, folder, name, &how, sizeof how);

	return fd < 0 ? -errno : fd;
}

/* No daemon has made it, but it goes all the same. What is mounted there stays, and what is too deep. */
static void remove_inner(int folder, const char *name, unsigned int deep)
{
	int fd = deep < FOLDERS_DEEP_MAX ? open_inner(folder, name) : -1;
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (listing && (entry = readdir(listing)))
		if (!is_itself_or_parent(entry->d_name) && unlinkat(fd, entry->d_name, 0) < 0 &&
			errno == EISDIR)
			remove_inner(fd, entry->d_name, deep + 1);
	if (listing)
		closedir(listing);
	else
		fd_close(&fd);
	unlinkat(folder, name, AT_REMOVEDIR);
}

/* The files in it lose their names here, and their pages when they are closed. What is no folder loses its
 * name. 0 or -errno. */
static int remove_folder(int at, const char *name)
{
	int fd = state_folder_open_at(at, name), files[WORKER_FDS_MAX], r = 0;
	DIR *listing = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t count = 0;

	while (listing && (entry = readdir(listing))) {
		if (is_itself_or_parent(entry->d_name))
			continue;
		if (count < WORKER_FDS_MAX)
			files[count++] = openat(fd, entry->d_name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
		if (unlinkat(fd, entry->d_name, 0) < 0 && errno == EISDIR)
			remove_inner(fd, entry->d_name, 0);
	}
	worker_close(files, count);
	if (unlinkat(at, name, fd == -ENOTDIR || fd == -ELOOP ? 0 : AT_REMOVEDIR) < 0) {
		r = -errno;
		log_warn("cannot remove what is left of a template, %s: %s", name, strerror(-r));
	}
	if (listing)
		closedir(listing);
	else
		fd_close(&fd);
	return r;
}

static void sweep(int folder)
{
	DIR *listing = state_folder_list(folder);
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

int template_store_open(struct template_store *store, const char *state_directory, struct error *error)
{
	int state = state_folder_open(state_directory, error);

	*store = (struct template_store){.folder = -1};
	if (state < 0)
		return state;
	snprintf(store->path, sizeof store->path, "%.4000s/" STATE_FOLDER_TEMPLATES, state_directory);
	/* Memory of guests: for nobody else. */
	store->folder = state_folder_open_in(state, state_directory, STATE_FOLDER_TEMPLATES, error);
	fd_close(&state);
	if (store->folder < 0)
		return store->folder;
	/* What is unfinished is another daemon's, if there is one. */
	if (state_folder_lock(store->folder) == -EWOULDBLOCK) {
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
	*fd = state_folder_open_at(store->folder, folder);
	return *fd < 0 ? *fd : 0;
}

void template_store_abandon(const struct template_store *store, const char *folder)
{
	remove_folder(store->folder, folder);
}

/* The folder gets the name. What had it before has the folder's name then, and goes. */
static int give_name(const struct template_store *store, const char *folder, const char *name, bool is_new)
{
	if (renameat2(store->folder, folder, store->folder, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EEXIST || is_new)
		return -errno;
	if (renameat2(store->folder, folder, store->folder, name, RENAME_EXCHANGE) < 0)
		return -errno;
	remove_folder(store->folder, folder);
	return 0;
}

int template_store_write(int fd, const struct template *template)
{
	int r = json_file_write(fd, description, template->about);

	if (!r)
		r = state_folder_sync(fd, "state");
	if (!r)
		r = state_folder_sync(fd, "memory");
	if (!r && template->working_set >= 0)
		r = state_folder_sync(fd, "working-set");
	if (!r && template->disk >= 0)
		r = state_folder_sync(fd, TEMPLATE_DISK);
	return !r && fsync(fd) < 0 ? -errno : r;
}

int template_store_name(const struct template_store *store, const char *folder, const char *name, bool is_new)
{
	int r = give_name(store, folder, name, is_new);

	if (!r && fsync(store->folder) < 0)
		log_warn("templates: %s", strerror(errno));
	return r;
}

bool template_store_has(const struct template_store *store, const char *name)
{
	return store->folder >= 0 && faccessat(store->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
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

static int refuse_damaged(struct error *error, const char *name, const char *why)
{
	error_set(error, ERROR_BUILD_FAILED, "template %.64s cannot be used: %s", name, why);
	return -EBADMSG;
}

static int refuse_missing(const char *name, struct error *error)
{
	error_set(error, ERROR_NOT_FOUND,
		"there is no template %.64s: see `host-ctl template list`, or build it", name);
	return -ENOENT;
}

/* What has its name is no folder that can be opened. */
static int refuse_entry(const struct template_store *store, const char *name, int status, struct error *error)
{
	struct stat entry;
	const char *kind = "a file";

	if (status == -ENOENT || fstatat(store->folder, name, &entry, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse_missing(name, error);
	if (S_ISDIR(entry.st_mode))
		return refuse_damaged(error, name, strerror(-status));
	if (S_ISLNK(entry.st_mode))
		kind = "a symbolic link, which is not followed";
	error_set(error, ERROR_BUILD_FAILED,
		"template %.64s cannot be used: %.256s/%.64s is %s, not a folder: remove it, or build it "
		"again",
		name, store->path, name, kind);
	return -EBADMSG;
}

/* What is in the folder, if it is right. NULL: fault says what is not. */
static json_t *read_checked(int folder, const char *name, char fault[TEMPLATE_FAULT_MAX])
{
	const char *why, *kind;
	struct stat status;
	json_t *about;

	if (fstat(folder, &status) < 0) {
		snprintf(fault, TEMPLATE_FAULT_MAX, "%s", strerror(errno));
		return NULL;
	}
	if (template_check_folder(&status, fault))
		return NULL;
	about = json_file_read(folder, description, TEMPLATE_JSON_MAX, &kind);
	why = template_check_about(about, name);
	if (!why)
		return about;
	if (kind)
		snprintf(fault, TEMPLATE_FAULT_MAX, "its template.json is %s: build it again", kind);
	else if (!about && faccessat(folder, description, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		snprintf(fault, TEMPLATE_FAULT_MAX, "its template.json is missing: build it again");
	else
		snprintf(fault, TEMPLATE_FAULT_MAX, "%s", why);
	json_decref(about);
	return NULL;
}

int template_store_read(
	const struct template_store *store, const char *name, int *fd, json_t **about, struct error *error)
{
	char fault[TEMPLATE_FAULT_MAX];
	json_t *read;
	int folder;

	/* A path that leads out of here is nobody's to ask about. */
	if (!template_name_is_valid(name))
		return refuse_missing(name, error);
	folder = state_folder_open_at(store->folder, name);
	if (folder < 0)
		return refuse_entry(store, name, folder, error);
	read = read_checked(folder, name, fault);
	if (read) {
		*fd = folder;
		*about = read;
		return 0;
	}
	fd_close(&folder);
	return refuse_damaged(error, name, fault);
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

struct names {
	char **all;
	size_t count, room;
};

/* 0 or -errno. */
static int keep_name(struct names *names, const char *name)
{
	if (names->count == names->room) {
		size_t room = names->room ? 2 * names->room : TEMPLATES_MAX;
		char **all = realloc(names->all, room * sizeof all[0]);

		if (!all)
			return -ENOMEM;
		names->all = all;
		names->room = room;
	}
	names->all[names->count] = strdup(name);
	return names->all[names->count++] ? 0 : -ENOMEM;
}

/* 0 or -errno; what was kept is the caller's either way. */
static int read_names(const struct template_store *store, struct names *names)
{
	DIR *listing = state_folder_list(store->folder);
	struct dirent *entry;
	int r = 0;

	if (!listing)
		return -errno;
	do {
		errno = 0;
		entry = readdir(listing);
		if (!entry)
			r = -errno;
		else if (template_name_is_valid(entry->d_name))
			r = keep_name(names, entry->d_name);
	} while (entry && !r);
	closedir(listing);
	return r;
}

/* NULL: without memory. */
static json_t *sort_names(const struct names *names)
{
	json_t *array = json_array();

	if (names->count)
		qsort(names->all, names->count, sizeof names->all[0], compare_names);
	for (size_t i = 0; array && i < names->count; i++) {
		if (json_array_append_new(array, json_string(names->all[i])) == 0)
			continue;
		json_decref(array);
		array = NULL;
	}
	return array;
}

json_t *template_store_names(const struct template_store *store, struct error *error)
{
	struct names names = {0};
	int r = read_names(store, &names);
	json_t *array = r ? NULL : sort_names(&names);

	for (size_t i = 0; i < names.count; i++)
		free(names.all[i]);
	free(names.all);
	if (!array)
		error_set(error, ERROR_INTERNAL, "cannot list the templates in %.256s: %s", store->path,
			strerror(r ? -r : ENOMEM));
	return array;
}

int template_store_remove(struct template_store *store, const char *name, struct error *error)
{
	char aside[TEMPLATE_FOLDER_MAX];
	int r;

	snprintf(aside, sizeof aside, "%s%s-removed", building, name);
	r = renameat(store->folder, name, store->folder, aside) < 0 ? -errno : 0;
	if (r == -ENOENT)
		error_set(error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	else if (r)
		error_set(error, ERROR_INTERNAL, "cannot remove template %.64s from %.256s: %s", name,
			store->path, strerror(-r));
	if (r)
		return r;
	forget(store, name);
	r = remove_folder(store->folder, aside);
	if (r)
		error_set(error, ERROR_INTERNAL,
			"template %.64s is put aside, but %.256s/%s cannot be removed: %s: remove it by hand",
			name, store->path, aside, strerror(-r));
	return r;
}
