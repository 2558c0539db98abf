/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images on the disk, each under the name of its content.
 *
 *   STATE-DIR/images/sha256-HEX.erofs    the image; never changed, and mounted by guests
 *                    sha256-HEX.json     what it is: IMAGE_FORMAT, source, packages, time
 *                    names/NAME          a symbolic link that is never followed: its text is sha256-HEX
 *                    .building-XXXXXX/   of a build; whoever builds has its lock
 *
 * An image is there when its .erofs is, which comes last and goes first. A name moves from one image to
 * another by one rename. Used is an image that a template on the disk was built from, damaged ones not
 * counted, or is being built from: that one holds a shared lock on the file (image_store_hold). Who removes
 * an image has its lock alone; who adds, removes or names one has the folder's.
 *
 * The folder is its daemon's user's alone, who may also change it while a daemon runs.
 */
#ifndef HOST_CTL_IMAGE_STORE_H
#define HOST_CTL_IMAGE_STORE_H

#include "host-ctl/support/error.h"
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

enum {
	IMAGE_FORMAT = 1,
	IMAGE_NAME_MAX = 64, /* NUL included */
	IMAGE_HEX = 64,
	IMAGE_ID_SIZE = 7 + IMAGE_HEX + 1, /* "sha256-" and NUL */
	IMAGE_SHORT_MIN = 8,		   /* hex digits of an id that is cut short */
	IMAGE_FILE_SIZE = IMAGE_ID_SIZE + 8,
	IMAGE_JSON_MAX = 4 * 1024 * 1024,
	IMAGE_BUILDING_SIZE = 24,
};
#define IMAGE_ID_PREFIX "sha256-"

struct image_store {
	int state, folder, names; /* -1: not open */
	char path[PATH_MAX];	  /* of the folder, absolute */
};

/* [a-z0-9][a-z0-9._-]*, shorter than IMAGE_NAME_MAX, and not like an id. */
bool image_name_is_valid(const char *name);
/* "sha256-" and 64 hex digits. */
bool image_id_is_valid(const char *id);

/* Makes the folders that are missing. 0, or -errno with *error set. */
int image_store_open(struct image_store *store, const char *state_directory, struct error *error);
/*
 * For all but image_store_begin and image_store_put: what is missing is not made. 0, with folder and names -1
 * when there are no images, and state too when there is no state folder; or -errno with *error set.
 */
int image_store_open_to_read(struct image_store *store, const char *state_directory, struct error *error);
/* Takes one that is not open, if its fds are -1. */
void image_store_close(struct image_store *store);

/*
 * The image of a name, an id, or an id cut to IMAGE_SHORT_MIN digits or more. 0, or -1 with *error set:
 * not_found, or invalid: it can be no name, or several begin so.
 */
int image_store_find(
	const struct image_store *store, const char *text, char id[IMAGE_ID_SIZE], struct error *error);
/*
 * The same in the store of a state folder (image_store_open_to_read), and nobody removes the image while the
 * fd, the caller's, is open. *path is absolute. The fd, or -errno with *error set: as of
 * image_store_open_to_read and image_store_find.
 */
int image_store_hold(const char *state_directory, const char *text, char path[PATH_MAX], struct error *error);

/* What is told of one: {"id", "names", "used_by", "bytes", and what is in its .json}. The caller's; NULL with
 * *error set. */
json_t *image_store_describe(const struct image_store *store, const char *id, struct error *error);
/* {"images":[…]}, those with names first, sorted by these. The same. */
json_t *image_store_list(const struct image_store *store, struct error *error);

/* --- changes: image_change.c --- */

/* A folder for a build, with the lock that says that it goes on. */
struct image_building {
	char name[IMAGE_BUILDING_SIZE];
	char path[PATH_MAX];
	int folder; /* -1: none */
};

/* Removes what killed builds left, and makes a folder. 0, or -errno with *error set. */
int image_store_begin(const struct image_store *store, struct image_building *building, struct error *error);
/* Removes it, whatever is in it. Takes one without a folder. */
void image_store_abandon(struct image_building *building);
/*
 * Makes the file `image` of that folder, whose content has this id, an image, unless it is one already, and
 * gives it the name. about: for its .json. All of it is on the disk then. 0, or -errno with *error set.
 */
int image_store_put(const struct image_store *store, const struct image_building *building, const char *name,
	const char *id, const json_t *about, struct error *error);
/*
 * text is a name: that goes, and the image if it has no other; it is an id: the image goes with its names.
 * *removed: the image went. 0, or -1 with *error set: as of image_store_find; conflict: it would go, and is
 * used.
 */
int image_store_remove(const struct image_store *store, const char *text, bool *removed, struct error *error);
/* Removes what has no name and is not used; adds each id to the array. 0, or -1 with *error set. */
int image_store_collect(const struct image_store *store, json_t *removed, struct error *error);

/* --- use: image_use.c --- */

/* {ID: [NAME of a template, …]} of every image that is used. NULL with *error set. */
json_t *image_store_users(const struct image_store *store, struct error *error);

/* --- for image_*.c alone --- */

/* {ID: [NAME, …]}, each sorted. NULL without memory or when the folder cannot be read. */
json_t *image_store_names(const struct image_store *store);
/* Calls visit for each image until it returns another value than 0, which is returned; or -errno. */
int image_store_visit(
	const struct image_store *store, int (*visit)(void *context, const char *id), void *context);

#endif
