/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/api_body.h"
#include "host-ctl/template.h"

#include <string.h>

int api_body_check_fields(json_t *body, const char *const *fields, struct error *error)
{
	const char *key;
	json_t *value;

	json_object_foreach(body, key, value)
	{
		size_t i = 0;

		while (fields[i] && strcmp(fields[i], key) != 0)
			i++;
		if (!fields[i])
			return error_set(error, ERROR_INVALID, "unknown field \"%.64s\" in the request", key);
	}
	return 0;
}

json_t *api_body_parse(const struct http_request *request, const char *const *fields, struct error *error)
{
	json_error_t problem;
	json_t *body = json_loadb(request->body, request->body_length, JSON_REJECT_DUPLICATES, &problem);

	if (!json_is_object(body)) {
		error_set(error, ERROR_INVALID, "the body is not a JSON object");
		json_decref(body);
		return NULL;
	}
	if (api_body_check_fields(body, fields, error)) {
		json_decref(body);
		return NULL;
	}
	return body;
}

int api_body_name(json_t *body, const char *field, const char **name, struct error *error)
{
	json_t *value = json_object_get(body, field);

	*name = json_string_value(value);
	if (!value)
		return error_set(error, ERROR_INVALID, "%s is missing: give the name of a template", field);
	if (!*name)
		return error_set(
			error, ERROR_INVALID, "%s is not a string: give the name of a template", field);
	return template_name_check(*name, field, error);
}

int api_body_number(json_t *body, const char *field, uint64_t minimum, uint64_t maximum, unsigned int *number,
	struct error *error)
{
	json_t *value = json_object_get(body, field);
	json_int_t wide = json_integer_value(value);

	if (!json_is_integer(value) || wide < 0 || (uint64_t)wide < minimum || (uint64_t)wide > maximum)
		return error_set(error, ERROR_INVALID, "%s is not a whole number from %llu to %llu", field,
			(unsigned long long)minimum, (unsigned long long)maximum);
	*number = (unsigned int)wide;
	return 0;
}
