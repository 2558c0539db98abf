/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON object in a file of a folder of the daemon's own. */
#ifndef HOST_CTL_JSON_FILE_H
#define HOST_CTL_JSON_FILE_H

#include <jansson.h>
#include <stddef.h>

/* In a new file of mode 0600, and on the disk. 0 or -errno; -EEXIST: there is one of that name. */
int json_file_write(int folder, const char *name, const json_t *value);
/* The same, not brought to the disk. */
int json_file_put(int folder, const char *name, const json_t *value);
/*
 * What is in it, the caller's; keys that come twice are not taken. NULL: it cannot be read, is over the limit
 * of bytes, or no JSON; *kind: what it is that is no file ("a named pipe", …; it is not opened then), or
 * NULL.
 */
json_t *json_file_read(int folder, const char *name, size_t maximum, const char **kind);

#endif
