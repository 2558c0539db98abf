/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON into a file: just what the trace needs, for the vmm links no library for it (docs/design.md).
 * The caller keeps the order: objects and arrays are closed as they were opened, and in objects each value
 * has a key before it. Commas are put here.
 *
 * Errors of write stick: nothing more is written after the first, and json_finish returns it.
 */
#ifndef VMM_JSON_H
#define VMM_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_BUFFER = 16384 };

struct json {
	int fd; /* the caller's, blocking */
	int error;
	bool comma; /* before the next value or key */
	size_t used;
	char buffer[JSON_BUFFER];
};

void json_init(struct json *json, int fd);
/* Writes what is left. 0 or -errno of the first write that failed. */
int json_finish(struct json *json);

/* bracket: '{' or '[', '}' or ']'. */
void json_open(struct json *json, char bracket);
void json_close(struct json *json, char bracket);
/* A constant of the program's own; it is not escaped. */
void json_key(struct json *json, const char *key);
/* The end of the text's only line, or last. */
void json_line(struct json *json);
/* What comes next begins a line, for people; not before a bracket that closes. */
void json_break(struct json *json);

/* Control characters, quotes, backslashes and bytes that are not ASCII are escaped, the last as U+0080 to
 * U+00FF. NULL: null. */
void json_text(struct json *json, const char *text);
void json_integer(struct json *json, int64_t value);
void json_unsigned(struct json *json, uint64_t value);
/* "0x3f8" */
void json_hex(struct json *json, uint64_t value);
/* ns as µs with three digits behind the point. */
void json_us(struct json *json, uint64_t ns);
void json_bool(struct json *json, bool value);
void json_null(struct json *json);

#endif
