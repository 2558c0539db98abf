/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/api.h"
#include "common/version.h"
#include "host-ctl/api_keyed.h"

#include <stdlib.h>
#include <string.h>

struct route {
	/* A path that ends with '/' stands for all that is below it; '*' for one part that is not empty. */
	const char *method, *path;
	void (*handle)(struct api *api, struct http_request *request);
};

static const struct route routes[] = {
	{"POST", "/v1/run", api_run_create},
	{"GET", "/v1/pool", api_pool_get},
	{"PUT", "/v1/pool", api_pool_put},
	{"GET", "/v1/pools", api_pools_get},
	{"POST", "/v1/templates", api_templates_post},
	{"GET", "/v1/templates", api_templates_get},
	{"GET", "/v1/templates/", api_template_get},
	{"DELETE", "/v1/templates/", api_template_delete},
	{"POST", "/v1/sandboxes", api_sandboxes_post},
	{"GET", "/v1/sandboxes", api_sandboxes_get},
	{"GET", "/v1/sandboxes/*", api_sandbox_get},
	{"DELETE", "/v1/sandboxes/*", api_sandbox_delete},
	{"POST", "/v1/sandboxes/*/pause", api_sandbox_pause},
	{"POST", "/v1/sandboxes/*/resume", api_sandbox_resume},
	{"POST", "/v1/sandboxes/*/stop", api_sandbox_stop},
	{"POST", "/v1/sandboxes/*/start", api_sandbox_start},
	{"POST", "/v1/sandboxes/*/run", api_sandbox_run},
	{"POST", "/v1/sandboxes/*/commands", api_commands_post},
	{"GET", "/v1/sandboxes/*/commands", api_commands_get},
	{"GET", "/v1/sandboxes/*/commands/*", api_command_get},
	{"DELETE", "/v1/sandboxes/*/commands/*", api_command_delete},
	{"POST", "/v1/sandboxes/*/commands/*/token", api_command_token},
	{"POST", "/v1/sandboxes/*/commands/*/attach", api_command_attach},
	{"POST", "/v1/sandboxes/*/commands/*/kill", api_command_kill},
	{"POST", "/v1/sandboxes/*/commands/*/signal", api_command_signal},
	{"POST", "/v1/sandboxes/*/commands/*/stdin", api_command_stdin},
	{"GET", "/v1/sandboxes/*/commands/*/output", api_command_output},
	{"GET", "/v1/operations/*", api_operation_get},
	{"GET", "/v1/events", api_events_get},
	{"GET", "/v1/healthz", api_healthz_get},
	{"GET", "/metrics", api_metrics_get},
};

static bool matches(const struct route *route, const char *path)
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
	return wanted[-1] == '/' ? *path != '\0' : *path == '\0';
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

static int check(void *context, struct http_request *request, struct error *error)
{
	const struct route *first = NULL, *second = NULL;

	(void)context;
	request->body_mend = mend_of(request->path);
	for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
		if (!matches(&routes[i], request->path))
			continue;
		request->route = &routes[i];
		if (!strcmp(routes[i].method, request->method))
			return is_keyed(request) ? api_keyed_check(request, error) : 0;
		*(first ? &second : &first) = &routes[i];
	}
	if (first)
		return error_set(error, ERROR_METHOD_NOT_ALLOWED, "%.128s takes %s%s%s, not %.16s",
			request->path, first->method, second ? " and " : "", second ? second->method : "",
			request->method);
	return error_set(error, ERROR_NOT_FOUND,
		"nothing is at %.128s: see docs/protocol.md for the resources", request->path);
}

static void handle(void *context, struct http_request *request)
{
	const struct route *route = request->route;

	if (is_keyed(request))
		api_keyed_handle(context, request, route->handle);
	else
		route->handle(context, request);
}

const struct http_handler api_handler = {.check = check, .handle = handle};

/* What takes no parameters. */
static bool refused_for_query(struct http_request *request)
{
	static const char *const none[] = {NULL};
	struct error error;

	if (!http_check_query(request, none, &error))
		return false;
	http_reply_error(request, &error);
	return true;
}

/* Whoever asks wants to know whether to send runs here. */
void api_healthz_get(struct api *api, struct http_request *request)
{
	bool serves = true;
	const char *reason = templates_ill_reason(api->templates, &serves);

	if (refused_for_query(request))
		return;
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

	if (refused_for_query(request))
		return;
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
