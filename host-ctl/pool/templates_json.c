/* SPDX-License-Identifier: Apache-2.0 */
/* What the API shows of templates and pools. */
#include "common/io.h"
#include "host-ctl/pool/templates_private.h"

#include <errno.h>
#include <string.h>

static const char *state_of(const struct templates *templates, const char *name)
{
	const json_t *fault = templates_fault(templates, name);

	if (template_store_find(&templates->store, name))
		return "ready";
	if (templates_is_loading(templates, name))
		return "loading";
	return json_is_true(json_object_get(fault, "damaged")) ? "damaged" : "stored";
}

static json_t *add_state(const struct templates *templates, const char *name, json_t *about)
{
	const struct template *loaded = template_store_find(&templates->store, name);
	json_t *reason = loaded ? NULL : json_object_get(templates_fault(templates, name), "reason");
	const struct named_pool *entry = templates_entry(templates, name);
	unsigned int found = entry ? pool_count_found(entry->pool) : 0;

	json_object_set_new(about, "state", json_string(state_of(templates, name)));
	json_object_set(about, "reason", reason ? reason : json_null());
	json_object_set_new(about, "loaded", json_boolean(loaded != NULL));
	json_object_set_new(about, "vms", json_integer((loaded ? loaded->vms : 0) + found));
	return about;
}

json_t *template_to_json(const struct templates *templates, const char *name, struct error *error)
{
	json_t *about = NULL;
	int folder = -1, status = -ENOENT;

	error_set(error, ERROR_NOT_FOUND,
		"there is no template %.64s: see `host-ctl template list`, or build it", name);
	if (templates->store.folder >= 0 && template_name_is_valid(name))
		status = template_store_read(&templates->store, name, &folder, &about, error);
	fd_close(&folder);
	if (!status) {
		/* The daemon's own. */
		json_object_del(about, TEMPLATE_DISK_SUM);
		return add_state(templates, name, about);
	}
	if (error->kind == ERROR_NOT_FOUND)
		return NULL;
	about = json_pack("{s:s,s:s,s:s,s:b,s:i}", "name", name, "state", "damaged", "reason", error->message,
		"loaded", 0, "vms", 0);
	if (!about)
		error_set(error, ERROR_INTERNAL, "out of memory for the template");
	return about;
}

json_t *templates_to_json(const struct templates *templates, struct error *error)
{
	json_t *list, *names = NULL, *name;
	size_t i;

	if (templates->store.folder >= 0 && !(names = template_store_names(&templates->store, error)))
		return NULL;
	list = json_array();
	json_array_foreach(names, i, name)
	{
		json_t *about = template_to_json(templates, json_string_value(name), error);

		if (about)
			json_array_append_new(list, about);
	}
	json_decref(names);
	if (!list)
		error_set(error, ERROR_INTERNAL, "out of memory for the list");
	return list ? json_pack("{s:o}", "templates", list) : NULL;
}

json_t *templates_pools_to_json(const struct templates *templates)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < templates->pool_count; i++)
		json_array_append_new(list, pool_to_json(templates->pools[i].pool));
	return json_pack("{s:o}", "pools", list);
}

void templates_read_gauges(const struct templates *templates, struct metrics_gauges *gauges)
{
	struct metrics_gauges one;

	*gauges = (struct metrics_gauges){0};
	for (unsigned int i = 0; i < templates->pool_count; i++) {
		pool_read_gauges(templates->pools[i].pool, &one);
		gauges->target += one.target;
		gauges->warm += one.warm;
		gauges->starting += one.starting;
		gauges->busy += one.busy;
		gauges->ending += one.ending;
		gauges->queued += one.queued;
	}
}

const char *templates_ill_reason(const struct templates *templates, bool *serves)
{
	for (unsigned int i = 0; i < templates->pool_count; i++) {
		const char *reason = pool_ill_reason(templates->pools[i].pool);

		*serves = i > 0;
		if (reason)
			return reason;
	}
	*serves = true;
	return templates->failure[0] ? templates->failure : NULL;
}
