/* SPDX-License-Identifier: Apache-2.0 */
/* Which templates use which images, as their descriptions on the disk say. */
#include "common/io.h"
#include "host-ctl/image/image_store.h"
#include "host-ctl/pool/template_store.h"
#include "host-ctl/support/state_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The id of an image that a template has by its path; whatever the folder is called there, the content is the
 * same. */
static bool read_path(const char *path, char id[IMAGE_ID_SIZE])
{
	const char *file = path ? strrchr(path, '/') : NULL;

	if (!file || strlen(++file) != IMAGE_ID_SIZE - 1 + strlen(".erofs"))
		return false;
	snprintf(id, IMAGE_ID_SIZE, "%.*s", IMAGE_ID_SIZE - 1, file);
	return image_id_is_valid(id);
}

/* 0, or -1 without memory. A template that cannot be read uses nothing. */
static int add_template(const struct template_store *templates, const char *name, json_t *map)
{
	json_t *about = NULL, *image;
	char id[IMAGE_ID_SIZE];
	struct error ignored;
	int folder = -1, r = 0;

	if (template_store_read(templates, name, &folder, &about, &ignored))
		return 0;
	image = json_object_get(json_object_get(about, "inputs"), "image");
	if (read_path(json_string_value(json_object_get(image, "path")), id)) {
		if (!json_object_get(map, id))
			r |= json_object_set_new(map, id, json_array());
		r |= json_array_append_new(json_object_get(map, id), json_string(name));
	}
	json_decref(about);
	fd_close(&folder);
	return r;
}

static int add_templates(const struct template_store *templates, json_t *map)
{
	DIR *listing = state_folder_list(templates->folder);
	struct dirent *entry;
	int r = 0;

	if (!listing)
		return -1;
	while (!r && (entry = readdir(listing)))
		if (template_name_is_valid(entry->d_name))
			r = add_template(templates, entry->d_name, map);
	closedir(listing);
	return r;
}

json_t *image_store_users(const struct image_store *store, struct error *error)
{
	struct template_store templates = {
		.folder = state_folder_open_at(store->state, STATE_FOLDER_TEMPLATES)};
	bool none = store->state < 0 || templates.folder == -ENOENT;
	json_t *map = json_object();
	int r = map ? 0 : -1;

	if (!r && !none)
		r = templates.folder < 0 ? -1 : add_templates(&templates, map);
	fd_close(&templates.folder);
	if (!r)
		return map;
	error_set(error, ERROR_INTERNAL,
		"the templates cannot be read, so that it is not known which images they use");
	json_decref(map);
	return NULL;
}
