/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_spec.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/run/run_request.h"

#include <string.h>

enum { DAY_MS = 24 * 60 * 60 * 1000 };

const char *const sandbox_spec_fields[] = {"name", "template", "metadata", "env", "ttl_ms", "ttl_action",
	"idle", "mem", "cpus", "memory_max", "cpu_max", "pids_max", NULL};

static const char *const idle_fields[] = {"after_ms", "action", NULL};
static const char *const idle_names[] = {
	[SANDBOX_IDLE_KILL] = "kill", [SANDBOX_IDLE_PAUSE] = "pause", [SANDBOX_IDLE_SUSPEND] = "suspend"};

const char *sandbox_idle_name(enum sandbox_idle action)
{
	return idle_names[action];
}

/* Absent: *number is 0. */
static int parse_number(const json_t *body, const char *field, uint64_t minimum, uint64_t maximum,
	uint64_t *number, struct error *error)
{
	const json_t *value = json_object_get(body, field);
	json_int_t wide = json_integer_value(value);

	*number = 0;
	if (!value)
		return 0;
	if (!json_is_integer(value) || wide < 0 || (uint64_t)wide < minimum || (uint64_t)wide > maximum)
		return error_set(error, ERROR_INVALID, "%s is not a whole number from %llu to %llu", field,
			(unsigned long long)minimum, (unsigned long long)maximum);
	*number = (uint64_t)wide;
	return 0;
}

/* In milliseconds, from 1 on. Absent: *number is 0. */
static int parse_time(const json_t *body, const char *field, uint64_t *number, struct error *error)
{
	if (!parse_number(body, field, 1, SANDBOX_TTL_MAX_MS, number, error))
		return 0;
	return error_set(error, ERROR_INVALID,
		"%s is not a whole number of milliseconds from 1 to %llu (%llu days)", field,
		(unsigned long long)SANDBOX_TTL_MAX_MS, (unsigned long long)SANDBOX_TTL_MAX_MS / DAY_MS);
}

static int parse_template(struct sandbox_spec *spec, json_t *body, struct error *error)
{
	const char *name;

	if (template_name_read(body, "template", &name, error))
		return -1;
	memcpy(spec->template, name, strlen(name) + 1);
	return 0;
}

static int parse_name(struct sandbox_spec *spec, const json_t *body, struct error *error)
{
	const json_t *value = json_object_get(body, "name");
	const char *text = json_string_value(value);

	if (!value)
		return 0;
	if (!text || !template_name_is_valid(text) || !strncmp(text, "sb-", 3))
		return error_set(error, ERROR_INVALID,
			"name is not a name: 1 to %d of a-z, 0-9, '.', '_' and '-', a letter or digit first, "
			"and not sb- as an id has",
			TEMPLATE_NAME_MAX - 1);
	memcpy(spec->name, text, strlen(text) + 1);
	return 0;
}

/* An object of strings, or absent. */
static int take_object(
	const json_t *body, const char *field, size_t maximum, json_t **object, struct error *error)
{
	json_t *value = json_object_get(body, field), *entry;
	const char *key;

	if (value && !json_is_object(value))
		return error_set(error, ERROR_INVALID, "%s is not an object of strings", field);
	if (json_object_size(value) > maximum)
		return error_set(error, ERROR_TOO_LARGE, "%s has %zu entries, the limit is %zu", field,
			json_object_size(value), maximum);
	json_object_foreach(value, key, entry)
	{
		if (!json_is_string(entry))
			return error_set(error, ERROR_INVALID, "%s.%.64s is not a string", field, key);
	}
	*object = value ? json_incref(value) : json_object();
	return *object ? 0 : error_set(error, ERROR_INTERNAL, "out of memory");
}

static int parse_metadata(struct sandbox_spec *spec, const json_t *body, struct error *error)
{
	const char *key;
	json_t *value;

	if (take_object(body, "metadata", SANDBOX_METADATA_MAX, &spec->metadata, error))
		return -1;
	json_object_foreach(spec->metadata, key, value)
	{
		if (!key[0] || strlen(key) > SANDBOX_KEY_MAX)
			return error_set(error, ERROR_INVALID, "a key of metadata is empty or over %d bytes",
				SANDBOX_KEY_MAX);
		if (json_string_length(value) > SANDBOX_VALUE_MAX)
			return error_set(error, ERROR_TOO_LARGE, "metadata.%.64s is over %d bytes", key,
				SANDBOX_VALUE_MAX);
	}
	return 0;
}

static int parse_env(struct sandbox_spec *spec, const json_t *body, struct error *error)
{
	const char *name;
	json_t *value;
	size_t bytes = 0;

	if (take_object(body, "env", SANDBOX_ENV_MAX, &spec->env, error))
		return -1;
	json_object_foreach(spec->env, name, value)
	{
		if (!name[0] || strchr(name, '='))
			return error_set(error, ERROR_INVALID,
				"env has the name \"%.64s\": a name is not empty and has no '='", name);
		bytes += strlen(name) + json_string_length(value) + 2;
	}
	if (bytes > SANDBOX_ENV_BYTES)
		return error_set(error, ERROR_TOO_LARGE, "env is over %d bytes", SANDBOX_ENV_BYTES);
	return 0;
}

/* what: the field, for people. */
static int parse_action(const json_t *value, const char *what, enum sandbox_idle *action, struct error *error)
{
	const char *text = json_string_value(value);

	for (size_t i = 0; text && i < sizeof idle_names / sizeof idle_names[0]; i++) {
		if (strcmp(text, idle_names[i]) != 0)
			continue;
		*action = (enum sandbox_idle)i;
		return 0;
	}
	return error_set(error, ERROR_INVALID, "%s is not \"kill\", \"pause\" or \"suspend\"", what);
}

static int parse_ttl(struct sandbox_spec *spec, const json_t *body, struct error *error)
{
	const json_t *action = json_object_get(body, "ttl_action");

	if (parse_time(body, "ttl_ms", &spec->ttl_ms, error))
		return -1;
	return action ? parse_action(action, "ttl_action", &spec->ttl_action, error) : 0;
}

static int parse_idle(struct sandbox_spec *spec, const json_t *body, struct error *error)
{
	json_t *idle = json_object_get(body, "idle");

	if (!idle)
		return 0;
	if (!json_is_object(idle))
		return error_set(error, ERROR_INVALID, "idle is not an object of after_ms and action");
	if (http_body_check_fields(idle, idle_fields, error) ||
		parse_time(idle, "after_ms", &spec->idle_after_ms, error))
		return -1;
	if (!spec->idle_after_ms)
		return error_set(error, ERROR_INVALID, "idle.after_ms is missing");
	return parse_action(json_object_get(idle, "action"), "idle.action", &spec->idle_action, error);
}

static int parse(struct sandbox_spec *spec, json_t *body, struct error *error)
{
	uint64_t cpu, cpus, pids;

	if (parse_name(spec, body, error) ||
		(json_object_get(body, "template") && parse_template(spec, body, error)) ||
		parse_metadata(spec, body, error) || parse_env(spec, body, error) ||
		parse_ttl(spec, body, error) || parse_idle(spec, body, error) ||
		template_memory_read(body, "mem", &spec->memory_bytes, error) ||
		parse_number(body, "cpus", 1, TEMPLATE_CPUS_MAX, &cpus, error) ||
		parse_number(body, "memory_max", SANDBOX_MEMORY_MIN, INT64_MAX, &spec->memory_max, error) ||
		parse_number(body, "cpu_max", SANDBOX_CPU_MIN, SANDBOX_CPU_MAX, &cpu, error) ||
		parse_number(body, "pids_max", 1, RUN_PIDS_MAX, &pids, error))
		return -1;
	spec->cpus = (unsigned int)cpus;
	spec->cpu_max = (unsigned int)cpu;
	spec->pids_max = (uint32_t)pids;
	if (!spec->template[0])
		memcpy(spec->template, TEMPLATE_BASE, sizeof TEMPLATE_BASE);
	return 0;
}

int sandbox_spec_parse(struct sandbox_spec *spec, json_t *body, struct error *error)
{
	*spec = (struct sandbox_spec){0};
	if (parse(spec, body, error) == 0)
		return 0;
	sandbox_spec_finish(spec);
	return -1;
}

void sandbox_spec_finish(struct sandbox_spec *spec)
{
	json_decref(spec->metadata);
	json_decref(spec->env);
	*spec = (struct sandbox_spec){0};
}

static json_t *number_or_null(uint64_t number)
{
	return number ? json_integer((json_int_t)number) : json_null();
}

static json_t *size_or_null(uint64_t bytes)
{
	return bytes ? json_sprintf("%lluM", (unsigned long long)(bytes >> 20)) : json_null();
}

json_t *sandbox_spec_to_json(const struct sandbox_spec *spec)
{
	json_t *idle = spec->idle_after_ms
			       ? json_pack("{s:I,s:s}", "after_ms", (json_int_t)spec->idle_after_ms, "action",
					 idle_names[spec->idle_action])
			       : json_null();

	return json_pack("{s:o,s:s,s:O,s:O,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "name",
		spec->name[0] ? json_string(spec->name) : json_null(), "template", spec->template, "metadata",
		spec->metadata, "env", spec->env, "ttl_ms", number_or_null(spec->ttl_ms), "ttl_action",
		idle_names[spec->ttl_action], "idle", idle, "mem", size_or_null(spec->memory_bytes), "cpus",
		number_or_null(spec->cpus), "memory_max", number_or_null(spec->memory_max), "cpu_max",
		number_or_null(spec->cpu_max), "pids_max", number_or_null(spec->pids_max));
}
