/* SPDX-License-Identifier: Apache-2.0 */
/* The resources /v1/templates and /v1/pool: bodies checked, builds waited for. */
#include "common/parse.h"
#include "host-ctl/api.h"
#include "host-ctl/run_output.h"
#include "host-ctl/serve_options.h"
#include "host-ctl/text.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_WORDS = 256 }; /* bytes of a failed build's output in the error */

/* A build and who waits for it. */
struct build {
	struct api *api;
	struct http_request *request; /* NULL: the client has left */
	json_t *body;		      /* the strings of the order are in it */
	const char *commands[TEMPLATE_COMMANDS_MAX];
	struct run_output output[2]; /* stdout, stderr */
	char last[LAST_WORDS];
	size_t last_length;
};

/* --- bodies --- */

/* The body as an object of no other fields than these; NULL with *error set. */
static json_t *parse_body(const struct http_request *request, const char *const *fields, struct error *error)
{
	json_error_t problem;
	json_t *body = json_loadb(request->body, request->body_length, JSON_REJECT_DUPLICATES, &problem);
	const char *key;
	json_t *value;

	if (!json_is_object(body)) {
		error_set(error, ERROR_INVALID, "the body is not a JSON object");
		json_decref(body);
		return NULL;
	}
	json_object_foreach(body, key, value)
	{
		size_t i = 0;

		while (fields[i] && strcmp(fields[i], key) != 0)
			i++;
		if (fields[i])
			continue;
		error_set(error, ERROR_INVALID, "unknown field \"%.64s\" in the request", key);
		json_decref(body);
		return NULL;
	}
	return body;
}

static int get_name(json_t *body, const char *field, const char **name, struct error *error)
{
	*name = json_string_value(json_object_get(body, field));
	if (*name && template_name_is_valid(*name))
		return 0;
	return error_set(error, ERROR_INVALID,
		"%s is not the name of a template: 1 to %d of a-z, 0-9, '.', '_' and '-', a letter or digit "
		"first",
		field, TEMPLATE_NAME_MAX - 1);
}

static int get_number(json_t *body, const char *field, uint64_t minimum, uint64_t maximum,
	unsigned int *number, struct error *error)
{
	json_t *value = json_object_get(body, field);
	json_int_t wide = json_integer_value(value);

	if (!json_is_integer(value) || wide < 0 || (uint64_t)wide < minimum || (uint64_t)wide > maximum)
		return error_set(error, ERROR_INVALID, "%s is not a whole number from %llu to %llu", field,
			(unsigned long long)minimum, (unsigned long long)maximum);
	*number = (unsigned int)wide;
	return 0;
}

static int get_commands(struct build *build, unsigned int *count, struct error *error)
{
	json_t *list = json_object_get(build->body, "run"), *entry;
	size_t i;

	if (list && !json_is_array(list))
		return error_set(error, ERROR_INVALID, "run is not a list of strings");
	if (json_array_size(list) > TEMPLATE_COMMANDS_MAX)
		return error_set(error, ERROR_TOO_LARGE, "run has %zu entries, the limit is %d",
			json_array_size(list), TEMPLATE_COMMANDS_MAX);
	json_array_foreach(list, i, entry)
	{
		const char *text = json_string_value(entry);

		if (!text || !text[0])
			return error_set(error, ERROR_INVALID, "run[%zu] is not a command line", i);
		if (json_string_length(entry) > AGENT_STRINGS_MAX / 2)
			return error_set(error, ERROR_TOO_LARGE, "run[%zu] is over the limit of %d bytes", i,
				AGENT_STRINGS_MAX / 2);
		build->commands[i] = text;
	}
	*count = (unsigned int)json_array_size(list);
	return 0;
}

static int get_memory(json_t *body, uint64_t *bytes, struct error *error)
{
	const char *text = json_string_value(json_object_get(body, "mem"));

	if (!json_object_get(body, "mem"))
		return 0;
	if (text && !parse_size(text, SERVE_MEMORY_MIN, SERVE_MEMORY_MAX, bytes) &&
		*bytes % SERVE_MEMORY_UNIT == 0)
		return 0;
	return error_set(
		error, ERROR_INVALID, "mem is not a size from 32M to 511G in whole MiB, as a string");
}

static int get_image(json_t *body, const char **image, struct error *error)
{
	json_t *value = json_object_get(body, "image");

	*image = json_string_value(value);
	if (!value || (*image && (*image)[0] == '/' && json_string_length(value) < PATH_MAX))
		return 0;
	return error_set(error, ERROR_INVALID, "image is not an absolute path");
}

static int get_order(struct build *build, struct templates_request *order, struct error *error)
{
	static const char *const fields[] = {"name", "image", "mem", "cpus", "run", NULL};

	build->body = parse_body(build->request, fields, error);
	if (!build->body || get_name(build->body, "name", &order->name, error) ||
		get_image(build->body, &order->image, error) ||
		get_memory(build->body, &order->memory_bytes, error) ||
		(json_object_get(build->body, "cpus") &&
			get_number(build->body, "cpus", 1, SERVE_CPUS_MAX, &order->cpus, error)) ||
		get_commands(build, &order->count, error))
		return -1;
	order->commands = build->commands;
	return 0;
}

/* --- builds --- */

static void destroy(struct build *build)
{
	run_output_finish(&build->output[0]);
	run_output_finish(&build->output[1]);
	json_decref(build->body);
	free(build);
}

static void take_output(void *context, bool is_stderr, const void *bytes, size_t length)
{
	struct build *build = context;
	size_t kept = length < LAST_WORDS ? length : LAST_WORDS;
	size_t before = build->last_length < LAST_WORDS - kept ? build->last_length : LAST_WORDS - kept;

	run_output_add(&build->output[is_stderr], bytes, length);
	memmove(build->last, build->last + build->last_length - before, before);
	memcpy(build->last + before, (const char *)bytes + length - kept, kept);
	build->last_length = before + kept;
}

static json_t *answer(struct build *build, const struct template *template)
{
	struct error ignored;

	return json_pack("{s:o,s:o,s:o}", "template",
		template_to_json(build->api->templates, template->name, &ignored), "stdout",
		run_output_to_json(&build->output[0], build->output[0].total), "stderr",
		run_output_to_json(&build->output[1], build->output[1].total));
}

static void done(void *context, struct template *template, const struct error *error)
{
	struct build *build = context;
	struct error told = *error;
	json_t *body = template ? answer(build, template) : NULL;

	/* What the command that failed had to say. */
	if (!template && build->last_length)
		text_copy_printable(
			told.cause, sizeof told.cause, build->last, strnlen(build->last, build->last_length));
	if (template && !body)
		error_set(&told, ERROR_INTERNAL, "out of memory for the answer");
	if (build->request && body)
		http_reply_json(build->request, 200, body);
	else if (build->request)
		http_reply_error(build->request, &told);
	else
		json_decref(body);
	destroy(build);
}

static const struct template_events events = {.output = take_output, .done = done};

/* Nobody waits for it any more. */
static void client_left(void *context)
{
	struct build *build = context;

	build->request = NULL;
	templates_cancel(build->api->templates, build, "the client has left");
}

void api_templates_post(struct api *api, struct http_request *request)
{
	struct build *build = calloc(1, sizeof *build);
	struct templates_request order = {.events = &events, .context = build};
	struct error error;

	error_set(&error, ERROR_INTERNAL, "out of memory for the build");
	if (!build) {
		http_reply_error(request, &error);
		return;
	}
	*build = (struct build){.api = api, .request = request};
	if (get_order(build, &order, &error) || templates_build(api->templates, &order, &error)) {
		destroy(build);
		http_reply_error(request, &error);
		return;
	}
	request->left = client_left;
	request->left_context = build;
}

/* --- the others --- */

/* The one in the path. */
static const char *name_of(const struct http_request *request)
{
	return request->path + strlen("/v1/templates/");
}

static void reply(struct http_request *request, json_t *body, const struct error *error)
{
	if (body)
		http_reply_json(request, 200, body);
	else
		http_reply_error(request, error);
}

void api_templates_get(struct api *api, struct http_request *request)
{
	struct error error;

	reply(request, templates_to_json(api->templates, &error), &error);
}

void api_template_get(struct api *api, struct http_request *request)
{
	struct error error;

	reply(request, template_to_json(api->templates, name_of(request), &error), &error);
}

void api_template_delete(struct api *api, struct http_request *request)
{
	const char *name = name_of(request);
	struct error error;
	json_t *body = NULL;

	if (!template_name_is_valid(name))
		error_set(&error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	else if (templates_remove(api->templates, name, &error) == 0)
		body = json_pack("{s:s}", "removed", name);
	reply(request, body, &error);
}

void api_pools_get(struct api *api, struct http_request *request)
{
	http_reply_json(request, 200, templates_pools_to_json(api->templates));
}

void api_pool_put(struct api *api, struct http_request *request)
{
	static const char *const fields[] = {"template", "target", NULL};
	struct error error;
	json_t *body = parse_body(request, fields, &error);
	const char *name = TEMPLATE_BASE;
	struct pool *pool = NULL;
	unsigned int target = 0;

	if (body && (!json_object_get(body, "template") || !get_name(body, "template", &name, &error)) &&
		!get_number(body, "target", 0, POOL_TARGET_MAX, &target, &error))
		pool = templates_pool(api->templates, name, &error);
	if (pool)
		pool_set_target(pool, target);
	json_decref(body);
	reply(request, pool ? pool_to_json(pool) : NULL, &error);
}
