/* SPDX-License-Identifier: Apache-2.0 */
/* docs/openapi.json against the daemon's own tables: routes, codes of errors, version. What is answered, and
 * which bodies are taken, is held against it by the suite `python`. */
#include "tests/support/unit.h"

#include "common/version.h"
#include "host-ctl/api/api.h"
#include <stdio.h>
#include <string.h>

#define OPENAPI "docs/openapi.json"

enum { ROUTE_MAX = 256 };

static json_t *load(void)
{
	json_error_t problem;
	json_t *document = json_load_file(OPENAPI, JSON_REJECT_DUPLICATES, &problem);

	if (!document)
		fail_msg("%s: %s (line %d)", OPENAPI, problem.text, problem.line);
	return document;
}

/* "get", "/v1/templates/{template}" → "GET /v1/templates/" followed by '*'. */
static void name_operation(const char *method, const char *path, char name[ROUTE_MAX])
{
	size_t length = 0;

	for (; *method; method++)
		name[length++] = (char)(*method & ~0x20);
	name[length++] = ' ';
	for (; *path && length < ROUTE_MAX - 1; path++) {
		name[length++] = *path == '{' ? '*' : *path;
		path += *path == '{' ? strcspn(path, "}") : 0;
	}
	name[length] = '\0';
}

static void name_route(const struct api_route *route, char name[ROUTE_MAX])
{
	snprintf(name, ROUTE_MAX, "%s %s", route->method, route->path);
}

static const struct api_route *find_route(const char *wanted)
{
	const struct api_route *route;
	char name[ROUTE_MAX];

	for (size_t i = 0; (route = api_route_at(i)); i++) {
		name_route(route, name);
		if (!strcmp(name, wanted))
			return route;
	}
	return NULL;
}

/* Every operation is a route; their names, as a set, the caller's. */
static json_t *check_operations(const json_t *document)
{
	json_t *names = json_object(), *methods, *operation;
	const char *path, *method;
	char name[ROUTE_MAX];

	json_object_foreach(json_object_get(document, "paths"), path, methods)
	{
		json_object_foreach(methods, method, operation)
		{
			if (!strcmp(method, "parameters"))
				continue;
			name_operation(method, path, name);
			if (!find_route(name))
				fail_msg("%s is described, and no route", name);
			json_object_set_new(names, name, json_true());
		}
	}
	return names;
}

static void test_routes(void **state)
{
	json_t *document = load(), *names = check_operations(document);
	const struct api_route *route;
	char name[ROUTE_MAX];
	size_t count = 0;

	(void)state;
	for (; (route = api_route_at(count)); count++) {
		name_route(route, name);
		if (!json_object_get(names, name))
			fail_msg("%s is a route, and not described", name);
	}
	assert_int_equal(json_object_size(names), count);
	assert_true(count > 0);
	json_decref(names);
	json_decref(document);
}

static json_t *member_of(json_t *object, const char *const *path)
{
	while (object && *path)
		object = json_object_get(object, *path++);
	assert_non_null(object);
	return object;
}

static void test_codes(void **state)
{
	static const char *const path[] = {
		"components", "schemas", "ErrorObject", "properties", "code", "oneOf", NULL};
	json_t *document = load(), *codes = member_of(document, path);

	(void)state;
	/* In the order of the kinds. */
	assert_int_equal(json_array_size(codes), ERROR_COUNT - 1);
	for (int kind = ERROR_NONE + 1; kind < ERROR_COUNT; kind++) {
		const json_t *code = json_array_get(codes, (size_t)kind - 1);

		assert_string_equal(
			json_string_value(json_object_get(code, "const")), error_code((enum error_kind)kind));
	}
	json_decref(document);
}

static void test_version(void **state)
{
	static const char *const path[] = {"info", "version", NULL};
	json_t *document = load();

	(void)state;
	assert_string_equal(json_string_value(member_of(document, path)), TINDERBOX_VERSION);
	json_decref(document);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_routes),
		cmocka_unit_test(test_codes),
		cmocka_unit_test(test_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
