/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/layers.h"
#include "common/io.h"
#include "common/sort.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

enum { NAMES_START = 1024 };

DIR *layers_read_folder(int folder)
{
	int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;

	if (!entries)
		fd_close(&copy);
	return entries;
}

/* ---- names ---- */

static int add_name(struct names *names, size_t *used, const char *name, size_t limit)
{
	size_t length = strlen(name) + 1;

	if (*used + length > names->bytes) {
		size_t bytes = names->bytes ? 2 * names->bytes : NAMES_START;
		char *text = bytes > limit ? NULL : realloc(names->text, bytes);

		if (!text)
			return bytes > limit ? -E2BIG : -ENOMEM;
		names->text = text;
		names->bytes = bytes;
	}
	memcpy(names->text + *used, name, length);
	*used += length;
	names->count++;
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int sort_names(struct names *names, size_t limit)
{
	size_t bytes = names->count * sizeof(*names->sorted);
	char *name = names->text;

	if (names->count == 0)
		return 0;
	if (bytes > limit - names->bytes)
		return -E2BIG;
	names->sorted = malloc(bytes);
	if (!names->sorted)
		return -ENOMEM;
	for (size_t i = 0; i < names->count; i++, name += strlen(name) + 1)
		names->sorted[i] = name;
	names->bytes += bytes;
	sort_items(names->sorted, names->count, sizeof(*names->sorted), compare);
	return 0;
}

static int read_entries(struct names *names, DIR *entries, size_t limit)
{
	struct dirent *entry;
	size_t used = 0;
	int r = 0;

	while (r == 0 && (errno = 0, entry = readdir(entries)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = add_name(names, &used, entry->d_name, limit);
	return r == 0 ? -errno : r;
}

int names_read(struct names *names, int folder, size_t limit)
{
	DIR *entries = layers_read_folder(folder);
	int r;

	*names = (struct names){0};
	if (!entries)
		return -errno;
	r = read_entries(names, entries, limit);
	closedir(entries);
	if (r == 0)
		r = sort_names(names, limit);
	if (r < 0)
		names_finish(names);
	return r;
}

void names_finish(struct names *names)
{
	free(names->text);
	free(names->sorted);
	*names = (struct names){0};
}

const char *names_peek(const struct names *names)
{
	return names->next < names->count ? names->sorted[names->next] : NULL;
}

bool names_take(struct names *names, const char *name)
{
	const char *next = names_peek(names);

	if (!next || strcmp(next, name) != 0)
		return false;
	names->next++;
	return true;
}

/* ---- what is there ---- */

/* Not there, or something else by now. */
static bool is_missing(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP;
}

int layers_open_folder(int parent, const char *name, int *folder)
{
	*folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *folder >= 0 || is_missing(errno) ? 0 : -errno;
}

int layers_look(int folder, const char *name, struct stat *st)
{
	if (fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return is_missing(errno) ? 0 : -errno;
}

bool layers_is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

bool layers_is_opaque(int folder)
{
	char value;

	return fgetxattr(folder, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
}

size_t layers_read_redirect(int folder, char redirect[LAYERS_REDIRECT_MAX])
{
	ssize_t n = fgetxattr(folder, "trusted.overlay.redirect", redirect, LAYERS_REDIRECT_MAX - 1);

	if (n < 0)
		n = 0;
	redirect[n] = '\0';
	return (size_t)n;
}
