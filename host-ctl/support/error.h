/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors as the API tells them: one shape, and kinds that never blur. A command that ran and failed is a
 * result, not an error.
 */
#ifndef HOST_CTL_ERROR_H
#define HOST_CTL_ERROR_H

#include <jansson.h>
#include <stdbool.h>

enum error_kind {
	ERROR_NONE = 0,
	/* refused */
	ERROR_INVALID,
	ERROR_DENIED,
	ERROR_NOT_FOUND,
	ERROR_METHOD_NOT_ALLOWED,
	ERROR_REQUEST_TIMEOUT,
	ERROR_CONFLICT,
	ERROR_TOO_LARGE,
	ERROR_BUILD_FAILED,
	ERROR_EXHAUSTED,
	/* ours */
	ERROR_INTERNAL,
	/* could not attach, ended without a result */
	ERROR_ATTACH_FAILED,
	ERROR_INCOMPLETE,
	ERROR_GUEST_LOST,
	/* not there yet */
	ERROR_NOT_READY,
	ERROR_COUNT
};

enum { ERROR_MESSAGE_MAX = 512, ERROR_DETAIL_MAX = 640, ERROR_VM_MAX = 32 };

struct error {
	enum error_kind kind;
	char message[ERROR_MESSAGE_MAX]; /* a sentence: the thing, the cause, the mend */
	char vm[ERROR_VM_MAX];		 /* of which VM; empty: of none */
	char cause[ERROR_DETAIL_MAX];	 /* how the VM ended, the vmm's last words; may be empty */
};

/* The code of the API, such as "guest_lost", and its HTTP status. */
const char *error_code(enum error_kind kind);
unsigned int error_http_status(enum error_kind kind);
/* The kind of a code; ERROR_INTERNAL of one that is not known, ERROR_NONE of an empty one. */
enum error_kind error_find_kind(const char *code);
/* Whatever was asked for was refused before any of it was begun. */
bool error_is_refusal(enum error_kind kind);
/* -errno of a call that found no room on a disk, or none in its owner's quota. */
bool error_is_of_full_disk(int status);

/* Fills *error; vm and cause become empty. Returns -1, so that a caller can `return error_set(...)`. */
int error_set(struct error *error, enum error_kind kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* {"error":{"code","message","retryable","detail"}}; the caller's reference. NULL without memory. */
json_t *error_to_json(const struct error *error);

#endif
