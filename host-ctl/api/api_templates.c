/* SPDX-License-Identifier: Apache-2.0 */
/* The resources /v1/templates and /v1/pool, but for builds. */
#include "host-ctl/api/api.h"
#include "host-ctl/http/http_body.h"

#include <string.h>

enum { PART_MAX = 80 };

/* No body and no error: there was no memory for the body. */
static void reply(struct http_request *request, json_t *body, const struct error *error)
{
	if (body || error->kind == ERROR_NONE)
		http_reply_json(request, 200, body);
	else
		http_reply_error(request, error);
}

void api_templates_get(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	json_t *body = templates_to_json(api->templates, &error);

	reply(request, body, &error);
}

void api_template_get(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	char name[PART_MAX];

	api_path_part(request, 2, name, sizeof name);
	reply(request, template_to_json(api->templates, name, &error), &error);
}

void api_template_delete(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	json_t *body = NULL;
	char name[PART_MAX];

	api_path_part(request, 2, name, sizeof name);
	error_set(&error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	if (template_name_is_valid(name) && templates_remove(api->templates, name, &error) == 0)
		body = json_pack("{s:s}", "removed", name);
	reply(request, body, &error);
}

void api_pools_get(struct api *api, struct http_request *request)
{
	http_reply_json(request, 200, templates_pools_to_json(api->templates));
}

void api_pool_get(struct api *api, struct http_request *request)
{
	static const char *const parameters[] = {"template", NULL};
	struct error error = {.kind = ERROR_NONE};
	struct pool *pool = NULL;
	const char *name = TEMPLATE_BASE;

	if (!http_check_query(request, parameters, &error)) {
		name = http_query(request, "template") ? http_query(request, "template") : name;
		pool = templates_find_pool(api->templates, name, &error);
	}
	reply(request, pool ? pool_to_json(pool) : NULL, &error);
}

void api_pool_put(struct api *api, struct http_request *request)
{
	static const char *const fields[] = {"template", "target", NULL};
	struct error error = {.kind = ERROR_NONE};
	json_t *body = http_body_parse(request, fields, &error);
	const char *name = TEMPLATE_BASE;
	struct pool *pool = NULL;
	unsigned int target = 0;

	if (body &&
		(!json_object_get(body, "template") ||
			!template_name_read(body, "template", &name, &error)) &&
		!http_body_number(body, "target", 0, POOL_TARGET_MAX, &target, &error))
		pool = templates_set_target(api->templates, name, target, &error);
	json_decref(body);
	reply(request, pool ? pool_to_json(pool) : NULL, &error);
}
