/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/http/http_body.h"

#include <string.h>

int http_body_check_fields(json_t *body, const char *const *fields, struct error *error)
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

/* Where the text of the JSON is wrong. What jansson calls near is the token, in its own quotes. */
static int refuse_text(const json_error_t *problem, struct error *error)
{
	const char *near = strstr(problem->text, " near ");

	if (json_error_code(problem) == json_error_null_character ||
		json_error_code(problem) == json_error_null_byte_in_key)
		return error_set(error, ERROR_INVALID,
			"\\u0000 is not allowed in a string (line %d, column %d): only base64 carries a NUL",
			problem->line, problem->column);
	if (json_error_code(problem) == json_error_duplicate_key)
		return error_set(error, ERROR_INVALID, "the body has a key twice%s (line %d, column %d)",
			near ? near : "", problem->line, problem->column);
	return error_set(error, ERROR_INVALID, "the body is not JSON: %s (line %d, column %d)", problem->text,
		problem->line, problem->column);
}

json_t *http_body_load(const char *text, size_t length, const char *const *fields, struct error *error)
{
	json_error_t problem;
	json_t *body;

	if (!length) {
		error_set(error, ERROR_INVALID, "the body is empty: send a JSON object");
		return NULL;
	}
	body = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
	if (!body) {
		refuse_text(&problem, error);
		return NULL;
	}
	if (json_is_object(body) && !http_body_check_fields(body, fields, error))
		return body;
	if (!json_is_object(body))
		error_set(error, ERROR_INVALID, "the body is not a JSON object");
	json_decref(body);
	return NULL;
}

json_t *http_body_parse(const struct http_request *request, const char *const *fields, struct error *error)
{
	return http_body_load(request->body, request->body_length, fields, error);
}

int http_body_number(json_t *body, const char *field, uint64_t minimum, uint64_t maximum,
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
