/* SPDX-License-Identifier: Apache-2.0 */
/* The query of a request: what comes after the path's '?'. */
#include "host-ctl/http.h"

#include <microhttpd.h>
#include <string.h>

struct check {
	const struct http_request *request;
	const char *const *names;
	struct error *error;
	int status;
};

const char *http_query(const struct http_request *request, const char *name)
{
	return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

static bool is_among(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names != NULL;
}

static enum MHD_Result check_one(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct check *check = context;

	(void)kind;
	if (!is_among(name, check->names))
		check->status = error_set(check->error, ERROR_INVALID,
			"%.128s takes no parameter \"%.64s\"%s%s", check->request->path, name,
			check->names[0] ? ", but for " : "", check->names[0] ? check->names[0] : "");
	else if (!value)
		check->status = error_set(check->error, ERROR_INVALID, "the parameter %s has no value", name);
	else if (http_query(check->request, name) != value)
		check->status =
			error_set(check->error, ERROR_INVALID, "the parameter %s is there twice", name);
	return check->status ? MHD_NO : MHD_YES;
}

int http_check_query(const struct http_request *request, const char *const *names, struct error *error)
{
	struct check check = {.request = request, .names = names, .error = error};

	MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, check_one, &check);
	return check.status;
}
