/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/error.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *code;
	unsigned int http_status;
	bool retryable; /* the same request may succeed later, unchanged */
} kinds[ERROR_COUNT] = {
	[ERROR_NONE] = {"none", 200, false},
	[ERROR_INVALID] = {"invalid", 400, false},
	[ERROR_DENIED] = {"denied", 403, false},
	[ERROR_NOT_FOUND] = {"not_found", 404, false},
	[ERROR_METHOD_NOT_ALLOWED] = {"method_not_allowed", 405, false},
	[ERROR_REQUEST_TIMEOUT] = {"request_timeout", 408, true},
	[ERROR_CONFLICT] = {"conflict", 409, false},
	[ERROR_TOO_LARGE] = {"too_large", 413, false},
	[ERROR_BUILD_FAILED] = {"build_failed", 422, false},
	[ERROR_EXHAUSTED] = {"exhausted", 429, true},
	[ERROR_INTERNAL] = {"internal", 500, false},
	[ERROR_ATTACH_FAILED] = {"attach_failed", 502, true},
	/* The command may have had effects outside by then: to repeat it is the caller's choice. */
	[ERROR_INCOMPLETE] = {"incomplete", 502, false},
	[ERROR_GUEST_LOST] = {"guest_lost", 502, false},
	[ERROR_NOT_READY] = {"not_ready", 503, true},
};

const char *error_code(enum error_kind kind)
{
	return kinds[kind].code;
}

unsigned int error_http_status(enum error_kind kind)
{
	return kinds[kind].http_status;
}

enum error_kind error_find_kind(const char *code)
{
	if (!code[0])
		return ERROR_NONE;
	for (int kind = ERROR_NONE + 1; kind < ERROR_COUNT; kind++)
		if (!strcmp(kinds[kind].code, code))
			return (enum error_kind)kind;
	return ERROR_INTERNAL;
}

bool error_is_refusal(enum error_kind kind)
{
	return kinds[kind].retryable ||
	       (kind > ERROR_NONE && kind < ERROR_INTERNAL && kind != ERROR_BUILD_FAILED);
}

bool error_is_of_full_disk(int status)
{
	return status == -ENOSPC || status == -EDQUOT;
}

int error_set(struct error *error, enum error_kind kind, const char *format, ...)
{
	va_list arguments;

	error->kind = kind;
	error->vm[0] = '\0';
	error->cause[0] = '\0';
	va_start(arguments, format);
	vsnprintf(error->message, sizeof error->message, format, arguments);
	va_end(arguments);
	text_make_printable(error->message);
	return -1;
}

static json_t *detail_to_json(const struct error *error)
{
	json_t *detail;

	if (!error->vm[0] && !error->cause[0])
		return json_null();
	detail = json_object();
	if (error->vm[0])
		json_object_set_new(detail, "vm", json_string(error->vm));
	if (error->cause[0])
		json_object_set_new(detail, "cause", json_string(error->cause));
	return detail;
}

json_t *error_to_json(const struct error *error)
{
	return json_pack("{s:{s:s,s:s,s:b,s:o}}", "error", "code", kinds[error->kind].code, "message",
		error->message, "retryable", (int)kinds[error->kind].retryable, "detail",
		detail_to_json(error));
}
