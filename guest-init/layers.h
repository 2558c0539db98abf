/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers below the root: what a folder of the overlay's upper layer says of itself, in the forms of
 * Documentation/filesystems/overlayfs.rst. They are only read: who writes is the overlay.
 */
#ifndef GUEST_INIT_LAYERS_H
#define GUEST_INIT_LAYERS_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

enum {
	LAYERS_DEPTH_MAX = 128, /* folders within each other that are looked into; as many fds, and more */
	LAYERS_NAMES_MAX = 8 << 20, /* bytes for the names of the folders that a walk is in */
	LAYERS_REDIRECT_MAX = 257,  /* of a path in the lower layer, NUL included */
};

/* Folders, open as long as the machine. -1: the root is no overlay. */
struct layers {
	int upper, lower;
	int store; /* that of upper's file system, for what the agent keeps there */
};

/* From its first entry on, for closedir(3). NULL with errno set. */
DIR *layers_read_folder(int folder);

/* The names in a folder, by their bytes. */
struct names {
	char *text;
	char **sorted;
	size_t count, next, bytes;
};

/* Reads a folder's, of `limit` bytes at most. 0, -E2BIG: they are more, or -errno; nothing to finish then. */
int names_read(struct names *names, int folder, size_t limit);
/* Takes one that is all zeros. */
void names_finish(struct names *names);
/* The next one; NULL: there is none. */
const char *names_peek(const struct names *names);
/* Goes on, if that is the next one. */
bool names_take(struct names *names, const char *name);

/* 0 with *folder an fd, or -1: it is not there, or no folder. Else -errno. */
int layers_open_folder(int parent, const char *name, int *folder);
/* 1, 0: there is none of that name, or -errno. The last name is not followed. */
int layers_look(int folder, const char *name, struct stat *st);

/* What stands in the upper layer for something that was removed. */
bool layers_is_whiteout(const struct stat *st);
/* Nothing of the lower layer shows through this folder of the upper. */
bool layers_is_opaque(int folder);
/* The folder of the lower layer that shows through one of the upper which was renamed: beside the one that it
 * replaces, or, with a '/' first, from the lower's root on. Its length; 0: it was not renamed. */
size_t layers_read_redirect(int folder, char redirect[LAYERS_REDIRECT_MAX]);

#endif
