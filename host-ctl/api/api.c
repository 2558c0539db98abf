/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/api/api.h"
#include "common/version.h"
#include "host-ctl/api/api_keyed.h"
#include "host-ctl/http/http_body.h"

#include <stdlib.h>
#include <string.h>

static const struct api_route routes[] = {
	{"POST", "/v1/run", api_run_create, API_BODY},
	{"GET", "/v1/pool", api_pool_get, API_QUERY},
	{"PUT", "/v1/pool", api_pool_put, API_BODY},
	{"GET", "/v1/pools", api_pools_get, 0},
	{"POST", "/v1/templates", api_templates_post, API_BODY},
	{"GET", "/v1/templates", api_templates_get, 0},
	{"GET", "/v1/templates/*", api_template_get, 0},
	{"DELETE", "/v1/templates/*", api_template_delete, 0},
	{"POST", "/v1/sandboxes", api_sandboxes_post, API_QUERY | API_BODY},
	{"GET", "/v1/sandboxes", api_sandboxes_get, API_QUERY},
	{"GET", "/v1/sandboxes/*", api_sandbox_get, 0},
	{"DELETE", "/v1/sandboxes/*", api_sandbox_delete, API_QUERY},
	{"POST", "/v1/sandboxes/*/pause", api_sandbox_pause, API_QUERY},
	{"POST", "/v1/sandboxes/*/resume", api_sandbox_resume, API_QUERY},
	{"POST", "/v1/sandboxes/*/suspend", api_sandbox_suspend, API_QUERY},
	{"POST", "/v1/sandboxes/*/wake", api_sandbox_wake, API_QUERY},
	{"POST", "/v1/sandboxes/*/stop", api_sandbox_stop, API_QUERY | API_BODY},
	{"POST", "/v1/sandboxes/*/start", api_sandbox_start, API_QUERY},
	{"POST", "/v1/sandboxes/*/fork", api_sandbox_fork, API_BODY},
	{"POST", "/v1/sandboxes/*/snapshot", api_sandbox_snapshot, API_BODY},
	{"GET", "/v1/sandboxes/*/changes", api_changes_get, API_QUERY},
	{"POST", "/v1/sandboxes/*/run", api_sandbox_run, API_BODY},
	{"POST", "/v1/sandboxes/*/commands", api_commands_post, API_BODY},
	{"GET", "/v1/sandboxes/*/commands", api_commands_get, 0},
	{"GET", "/v1/sandboxes/*/commands/*", api_command_get, 0},
	{"DELETE", "/v1/sandboxes/*/commands/*", api_command_delete, 0},
	{"POST", "/v1/sandboxes/*/commands/*/token", api_command_token, 0},
	{"POST", "/v1/sandboxes/*/commands/*/attach", api_command_attach, API_BODY},
	{"POST", "/v1/sandboxes/*/commands/*/kill", api_command_kill, 0},
	{"POST", "/v1/sandboxes/*/commands/*/signal", api_command_signal, API_BODY},
	{"POST", "/v1/sandboxes/*/commands/*/stdin", api_command_stdin, API_BODY},
	{"GET", "/v1/sandboxes/*/commands/*/output", api_command_output, API_QUERY},
	{"GET", "/v1/operations/*", api_operation_get, API_QUERY},
	{"GET", "/v1/events", api_events_get, API_QUERY},
	{"GET", "/v1/healthz", api_healthz_get, 0},
	{"GET", "/metrics", api_metrics_get, 0},
};

const struct api_route *api_route_at(size_t number)
{
	return number < sizeof routes / sizeof routes[0] ? &routes[number] : NULL;
}

static bool matches(const struct api_route *route, const char *path)
{
	const char *wanted = route->path;

	while (*wanted) {
		if (*wanted == '*' && *path && *path != '/') {
			path += strcspn(path, "/");
			wanted++;
			continue;
		}
		if (*wanted != *path)
			return false;
		wanted++;
		path++;
	}
	return *path == '\0';
}

void api_path_part(const struct http_request *request, unsigned int number, char *text, size_t size)
{
	const char *part = request->path + 1;
	size_t length;

	while (number-- && *(part += strcspn(part, "/")))
		part++;
	length = strcspn(part, "/");
	snprintf(text, size, "%.*s", (int)(length < size ? length : size - 1), part);
}

/* The other methods may be repeated as they are. */
static bool is_keyed(const struct http_request *request)
{
	return request->keys && !strcmp(request->method, "POST");
}

/* What to do about a body that is too large. */
static const char *mend_of(const char *path)
{
	if (!strcmp(path, "/v1/run"))
		return "stream stdin over the upgraded form";
	if (!strcmp(path, "/v1/templates"))
		return "put long scripts into the image, and run them from there";
	return NULL;
}

/* What takes parameters looks at them itself. */
static int check_query(const struct api_route *route, const struct http_request *request, struct error *error)
{
	static const char *const none[] = {NULL};

	return route->takes & API_QUERY ? 0 : http_check_query(request, none, error);
}

/* A POST that takes no body may have one of no fields. */
static int check_body(const struct api_route *route, const struct http_request *request, struct error *error)
{
	static const char *const none[] = {NULL};
	json_t *body;
	int status;

	if (route->takes & API_BODY || !request->body_length)
		return 0;
	if (strcmp(route->method, "POST") != 0)
		return error_set(error, ERROR_INVALID, "%.16s %.128s takes no body: send none",
			request->method, request->path);
	body = http_body_parse(request, none, error);
	status = body ? 0 : -1;
	json_decref(body);
	return status;
}

/* HEAD is for whatever GET is for (RFC 9110, 9.3.2). */
static bool takes(const struct api_route *route, const char *method)
{
	return !strcmp(route->method, strcmp(method, "HEAD") != 0 ? method : "GET");
}

static void add_allowed(struct http_request *request, const char *method)
{
	size_t length = strlen(request->allow);

	snprintf(request->allow + length, sizeof request->allow - length, "%s%s%s", length ? ", " : "",
		method, strcmp(method, "GET") != 0 ? "" : ", HEAD");
}

static int check(void *context, struct http_request *request, struct error *error)
{
	const struct api_route *first = NULL, *second = NULL;

	(void)context;
	request->body_mend = mend_of(request->path);
	for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
		if (!matches(&routes[i], request->path))
			continue;
		request->route = &routes[i];
		if (takes(&routes[i], request->method)) {
			request->allow[0] = '\0';
			return check_query(&routes[i], request, error) ||
					       (is_keyed(request) && api_keyed_check(request, error))
				       ? -1
				       : 0;
		}
		add_allowed(request, routes[i].method);
		*(first ? &second : &first) = &routes[i];
	}
	if (first)
		return error_set(error, ERROR_METHOD_NOT_ALLOWED, "%.128s takes %s%s%s, not %.16s",
			request->path, first->method, second ? " and " : "", second ? second->method : "",
			request->method);
	return error_set(error, ERROR_NOT_FOUND, "nothing is at %.128s: see docs/api.md for the resources",
		request->path);
}

static void handle(void *context, struct http_request *request)
{
	const struct api_route *route = request->route;
	struct error error;

	if (check_body(route, request, &error))
		http_reply_error(request, &error);
	else if (is_keyed(request))
		api_keyed_handle(context, request, route->handle);
	else
		route->handle(context, request);
}

const struct http_handler api_handler = {.check = check, .handle = handle};

/* Runs need no journal; sandboxes and keys do. NULL: it takes what there is to be noted. */
static const char *journal_ill_reason(const struct api *api)
{
	const struct error *error = api->journal ? journal_queue_error(api->journal) : &api->journal_error;

	return error ? error->message : NULL;
}

/* Whoever asks wants to know whether to send runs here. */
void api_healthz_get(struct api *api, struct http_request *request)
{
	bool serves = true;
	const char *reason = templates_ill_reason(api->templates, &serves);

	if (!reason)
		reason = journal_ill_reason(api);
	if (reason)
		http_reply_json(request, serves ? 200 : 503,
			json_pack("{s:s,s:s,s:s}", "status", serves ? "degraded" : "unavailable", "reason",
				reason, "version", TINDERBOX_VERSION));
	else
		http_reply_json(
			request, 200, json_pack("{s:s,s:s}", "status", "ok", "version", TINDERBOX_VERSION));
}

void api_metrics_get(struct api *api, struct http_request *request)
{
	struct metrics_gauges gauges;
	char *text = NULL;
	size_t length = 0;
	FILE *out;
	int status;

	out = open_memstream(&text, &length);
	status = out ? 0 : -1;
	templates_read_gauges(api->templates, &gauges);
	sandboxes_read_gauges(api->sandboxes, &gauges);
	gauges.listeners = events_count_listeners(&api->events);
	if (out)
		status = metrics_write(api->metrics, &gauges, out);
	if (out && fclose(out))
		status = -1;
	if (status) {
		free(text);
		text = NULL;
	}
	http_reply_text(request, 200, "text/plain; version=0.0.4", text, length);
}
