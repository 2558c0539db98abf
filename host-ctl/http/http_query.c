/* SPDX-License-Identifier: Apache-2.0 */
/* The query of a request: what comes after the path's '?'. */
#include "host-ctl/http/http.h"

#include <microhttpd.h>
#include <string.h>

struct visit {
	bool (*visit)(void *context, const char *name, const char *value);
	void *context;
};

struct check {
	const struct http_request *request;
	const char *const *names;
	struct error *error;
	int status;
};

const char *http_query(const struct http_request *request, const char *name)
{
	if (request->query)
		return json_string_value(json_object_get(request->query, name));
	return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

static enum MHD_Result visit_one(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	const struct visit *visit = context;

	(void)kind;
	return visit->visit(visit->context, name, value) ? MHD_YES : MHD_NO;
}

void http_each_query(const struct http_request *request,
	bool (*visit)(void *context, const char *name, const char *value), void *context)
{
	struct visit both = {.visit = visit, .context = context};
	const char *name;
	json_t *value;

	if (!request->query) {
		MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, visit_one, &both);
		return;
	}
	json_object_foreach(
		request->query, name, value) if (!visit(context, name, json_string_value(value))) return;
}

static bool is_among(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names != NULL;
}

static bool check_one(void *context, const char *name, const char *value)
{
	struct check *check = context;

	if (!is_among(name, check->names))
		check->status = error_set(check->error, ERROR_INVALID,
			"%.128s takes no parameter \"%.64s\"%s%s%s%s", check->request->path, name,
			check->names[0] ? ", but for " : "", check->names[0] ? check->names[0] : "",
			check->names[0] && check->names[1] ? " and " : "",
			check->names[0] && check->names[1] ? check->names[1] : "");
	else if (!value || !value[0])
		check->status = error_set(check->error, ERROR_INVALID, "the parameter %s has no value", name);
	else if (http_query(check->request, name) != value)
		check->status =
			error_set(check->error, ERROR_INVALID, "the parameter %s is there twice", name);
	return check->status == 0;
}

int http_check_query(const struct http_request *request, const char *const *names, struct error *error)
{
	struct check check = {.request = request, .names = names, .error = error};

	http_each_query(request, check_one, &check);
	return check.status;
}
