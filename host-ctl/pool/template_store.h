/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates on the disk and those of them that are loaded.
 *
 *   STATE-DIR/templates/NAME/{template.json,state,memory,working-set,disk}
 *   STATE-DIR/templates/.building-NAME-XXXXXX/   one that is being made, or that was put aside
 *
 * A template appears, or takes the place of another, by one rename, after all of it is on the disk; whatever
 * else begins with a dot is removed when the store is opened. What has the name of a template and is no
 * folder of one, such as a symbolic link, is never followed: it is damaged, and can be replaced or removed.
 * So is one whose folder or template.json is not as a daemon makes them (host-ctl/pool/template_check.h).
 * With a folder go those that somebody has put into it, but for what is mounted there.
 */
#ifndef HOST_CTL_TEMPLATE_STORE_H
#define HOST_CTL_TEMPLATE_STORE_H

#include "host-ctl/pool/template.h"
#include <limits.h>

enum {
	TEMPLATE_FOLDER_MAX = TEMPLATE_NAME_MAX + 32,
	TEMPLATES_MAX = 128, /* base included. So a list with all that they run is less than a client takes */
};

struct template_store {
	int folder;		/* -1: not open */
	char path[PATH_MAX];	/* of it, for people */
	struct template *first; /* loaded and sealed, a reference each */
};

/* Makes the folders that are missing and removes what an earlier daemon left unfinished. 0, or -errno with
 * *error set. */
int template_store_open(struct template_store *store, const char *state_directory, struct error *error);
/* Takes one that is not open. */
void template_store_close(struct template_store *store);

/* A new folder for a build: *fd is the caller's. 0 or -errno. */
int template_store_begin(
	const struct template_store *store, const char *name, char folder[TEMPLATE_FOLDER_MAX], int *fd);
/* Removes it. */
void template_store_abandon(const struct template_store *store, const char *folder);
/* Writes template.json and brings all to the disk. 0 or -errno. It takes a while: for a worker. */
int template_store_write(int fd, const struct template *template);
/*
 * Gives a folder that was written its name, in place of what has it; is_new: -EEXIST, if something has. 0 or
 * -errno: then the folder is still to be abandoned. For a worker. Of store it reads the folder only.
 */
int template_store_name(
	const struct template_store *store, const char *folder, const char *name, bool is_new);
/* Something has that name, be it a template or damaged. */
bool template_store_has(const struct template_store *store, const char *name);
/* Makes one that is on the disk, loaded and sealed, the loaded one of its name. */
void template_store_add(struct template_store *store, struct template *template);

/* NULL: none is loaded under this name. */
struct template *template_store_find(const struct template_store *store, const char *name);
/*
 * What is on the disk of that name: *fd of its folder and its template.json, both the caller's. 0, or -errno
 * with *error set and the two untouched; -ENOENT: there is none (not_found); else it is damaged
 * (build_failed).
 */
int template_store_read(
	const struct template_store *store, const char *name, int *fd, json_t **about, struct error *error);
/* All names on the disk, sorted, as an array of JSON strings; the caller's. NULL, with *error set (internal):
 * the folder cannot be read, or there is no memory. */
json_t *template_store_names(const struct template_store *store, struct error *error);

/* Removes it from the disk and from those that are loaded. 0, or -errno with *error set (-ENOENT: not_found).
 */
int template_store_remove(struct template_store *store, const char *name, struct error *error);

#endif
