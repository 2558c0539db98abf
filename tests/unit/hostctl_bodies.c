/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that no resource takes, sent to each, also to those that take none: refused in the same words, and
 * nothing is begun. */
#include "tests/unit/hostctl_sandboxes_fixture.h"

enum { DEEP = 100 * 1000, HUGE_BODY = 1024 * 1024, ANSWER_MS = 5000 };

static char *const pool_of_one[] = {"--pool", "1", NULL};

static const struct {
	const char *method, *rest; /* of /v1/; a '$' stands for the sandbox's id, a '%' for its command's */
	const char *headers;
	bool bare; /* it needs none */
} resources[] = {
	{"POST", "run", "", false},
	{"POST", "run", UPGRADE, false},
	{"PUT", "pool", "", false},
	{"POST", "templates", "", false},
	{"POST", "sandboxes", "", false},
	{"POST", "sandboxes?wait=false", "", false},
	{"POST", "sandboxes/$/pause", "", true},
	{"POST", "sandboxes/$/pause", "Idempotency-Key: key\r\n", true},
	{"POST", "sandboxes/$/resume", "", true},
	{"POST", "sandboxes/$/suspend", "", true},
	{"POST", "sandboxes/$/wake", "", true},
	{"POST", "sandboxes/$/stop", "", true},
	{"POST", "sandboxes/$/start?wait=false", "", true},
	{"POST", "sandboxes/$/run", "", false},
	{"POST", "sandboxes/$/run", UPGRADE, false},
	{"POST", "sandboxes/$/commands", "", false},
	{"POST", "sandboxes/$/commands/%/attach", UPGRADE, false},
	{"POST", "sandboxes/$/commands/%/signal", "", false},
	{"POST", "sandboxes/$/commands/%/stdin", "", false},
	{"POST", "sandboxes/$/commands/%/token", "", true},
	{"POST", "sandboxes/$/commands/%/kill", "", true},
};

/* A daemon with a sandbox and a command in it that nobody has started. */
struct scene {
	struct daemon daemon;
	char sandbox[32], command[32];
};

static void scene_start(struct scene *scene)
{
	struct answer answer;

	daemon_start(&scene->daemon, "boot", pool_of_one);
	create_sandbox(&scene->daemon, "{}", scene->sandbox);
	call_sandbox(&scene->daemon, "POST", scene->sandbox, "/commands", "{\"argv\":[\"echo\"]}", &answer);
	assert_int_equal(answer.status, 201);
	snprintf(scene->command, sizeof scene->command, "%s",
		json_string_value(json_object_get(answer.json, "id")));
	answer_finish(&answer);
	await_pool(&scene->daemon, "warm", 1);
}

/* Nothing was begun. */
static void scene_stop(struct scene *scene)
{
	struct answer answer;

	assert_int_equal(pool_number(&scene->daemon, "busy"), 1);
	assert_int_equal(pool_number(&scene->daemon, "claims_warm"), 1);
	assert_int_equal(pool_number(&scene->daemon, "target"), 1);
	call_sandbox(&scene->daemon, "GET", scene->sandbox, "/commands", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "commands")), 1);
	assert_non_null(strstr(answer.body, "\"state\":\"created\""));
	answer_finish(&answer);
	call(&scene->daemon, "GET", "/v1/templates", NULL, &answer);
	assert_string_equal(answer.body, "{\"templates\":[]}\n");
	answer_finish(&answer);
	delete_sandbox(&scene->daemon, scene->sandbox);
	daemon_stop(&scene->daemon);
}

static void path_of(const struct scene *scene, const char *rest, char path[SANDBOX_PATH_MAX])
{
	size_t length = (size_t)snprintf(path, SANDBOX_PATH_MAX, "/v1/");

	for (; *rest; rest++)
		length += (size_t)(*rest == '$' ? snprintf(path + length, SANDBOX_PATH_MAX - length, "%s",
							  scene->sandbox)
				   : *rest == '%'
					   ? snprintf(path + length, SANDBOX_PATH_MAX - length, "%s",
						     scene->command)
					   : snprintf(path + length, SANDBOX_PATH_MAX - length, "%c", *rest));
}

static void ask(
	const struct scene *scene, size_t resource, const char *body, size_t length, struct answer *answer)
{
	char path[SANDBOX_PATH_MAX], head[1024];
	int fd = client_open(&scene->daemon);

	path_of(scene, resources[resource].rest, path);
	snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n",
		resources[resource].method, path, resources[resource].headers, length);
	client_send_text(fd, head);
	client_send(fd, body, body ? length : 0);
	client_answer(fd, answer);
	close(fd);
}

/* By all of them. */
static void expect_all_refuse(const struct scene *scene, const char *body, size_t length, const char *message)
{
	for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++) {
		struct answer answer;

		if (resources[i].bare && !length)
			continue;
		ask(scene, i, body, length, &answer);
		if (strcmp(error_member(&answer, "message"), message) != 0)
			fail_msg("%s: '%s', wanted '%s'", resources[i].rest, error_member(&answer, "message"),
				message);
		assert_int_equal(answer.status, 400);
		assert_string_equal(error_member(&answer, "code"), "invalid");
		answer_finish(&answer);
	}
}

static void test_bodies_that_are_no_object(void **state)
{
	static const struct {
		const char *body;
		size_t length; /* 0: of the text */
		const char *message;
	} cases[] = {
		{"", 0, "the body is empty: send a JSON object"},
		{"hello", 0, "the body is not JSON: '[' or '{' expected near 'hello' (line 1, column 5)"},
		{"{\"argv\":", 0,
			"the body is not JSON: unexpected token near end of file (line 1, column 8)"},
		{"{'argv':1}", 0, "the body is not JSON: string or '}' expected near ''' (line 1, column 2)"},
		{"null", 0, "the body is not JSON: '[' or '{' expected near 'null' (line 1, column 4)"},
		{"[1]", 0, "the body is not a JSON object"},
		{"{}{}", 0, "the body is not JSON: end of file expected near '{' (line 1, column 3)"},
		{"{\"x\":1,\"x\":1}", 0, "the body has a key twice near '\"x\"' (line 1, column 10)"},
		{"{\"x\":\"\\u0000\"}", 0,
			"\\u0000 is not allowed in a string (line 1, column 13): only base64 carries a NUL"},
		{"{\"\\u0000\":1}", 0,
			"\\u0000 is not allowed in a string (line 1, column 9): only base64 carries a NUL"},
		{"{\"x\":\"\0\"}", 9,
			"the body is not JSON: control character 0x0 near '\"' (line 1, column 6)"},
		{"{}\0", 3, "the body is not JSON: end of file expected near end of file (line 1, column 3)"},
		{"{\"x\":\"\xff\"}", 0,
			"the body is not JSON: unable to decode byte 0xff near '\"' (line 1, column 6)"},
		{"{\"x\":99999999999999999999}", 0,
			"the body is not JSON: too big integer near '99999999999999999999' (line 1, column "
			"25)"},
		{"{\"x\":1e999}", 0,
			"the body is not JSON: real number overflow near '1e999' (line 1, column 10)"},
		{"{\"no_such\":1}", 0, "unknown field \"no_such\" in the request"},
	};
	struct scene scene;

	(void)state;
	scene_start(&scene);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect_all_refuse(&scene, cases[i].body,
			cases[i].length ? cases[i].length : strlen(cases[i].body), cases[i].message);
	scene_stop(&scene);
}

static void test_deep_bodies(void **state)
{
	static char lists[DEEP + 1], objects[5 * DEEP + 1];
	struct scene scene;

	(void)state;
	memset(lists, '[', DEEP);
	for (size_t i = 0; i < DEEP; i++)
		memcpy(objects + 5 * i, "{\"a\":", 5 + 1);
	scene_start(&scene);
	expect_all_refuse(&scene, lists, DEEP,
		"the body is not JSON: maximum parsing depth reached near '[' (line 1, column 2049)");
	expect_all_refuse(&scene, objects, sizeof objects - 1,
		"the body is not JSON: maximum parsing depth reached near '{' (line 1, column 10241)");
	scene_stop(&scene);
}

/* As many keys as a body holds: refused for the first, and soon. */
static void test_huge_bodies(void **state)
{
	static char body[HUGE_BODY + 64];
	struct timespec before, after;
	struct scene scene;
	struct answer answer;
	size_t length = 1;

	(void)state;
	body[0] = '{';
	for (unsigned int i = 0; length < HUGE_BODY - 32; i++)
		length += (size_t)snprintf(body + length, sizeof body - length, "\"x%x\":[],", i);
	length += (size_t)snprintf(body + length, sizeof body - length, "\"x\":1}");
	scene_start(&scene);
	clock_gettime(CLOCK_MONOTONIC, &before);
	expect_all_refuse(&scene, body, length, "unknown field \"x0\" in the request");
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_in_range(
		(after.tv_sec - before.tv_sec) * 1000, 0, sizeof resources / sizeof resources[0] * ANSWER_MS);
	for (size_t i = 0; i < sizeof resources / sizeof resources[0]; i++) {
		ask(&scene, i, NULL, HUGE_BODY + 1, &answer);
		assert_int_equal(answer.status, 413);
		assert_string_equal(error_member(&answer, "code"), "too_large");
		answer_finish(&answer);
	}
	scene_stop(&scene);
}

/* What only looks, or removes, takes none at all. */
static void test_bodies_where_there_is_none(void **state)
{
	static const char *const requests[][2] = {{"GET", "pool"}, {"GET", "sandboxes/$"},
		{"DELETE", "sandboxes/$"}, {"DELETE", "sandboxes/$/commands/%"},
		{"GET", "sandboxes/$/commands/%/output"}, {"DELETE", "templates/base"}, {"GET", "healthz"}};
	static const char *const verbs[][2] = {{"pause", "paused"}, {"resume", "ready"},
		{"suspend", "suspended"}, {"wake", "ready"}, {"start", "ready"}};
	char path[SANDBOX_PATH_MAX], message[SANDBOX_PATH_MAX + 64];
	struct scene scene;
	struct answer answer;

	(void)state;
	scene_start(&scene);
	for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
		path_of(&scene, requests[i][1], path);
		snprintf(message, sizeof message, "%s %s takes no body: send none", requests[i][0], path);
		expect_refused(&scene.daemon, requests[i][0], path, "{}", "invalid", message);
		expect_refused(&scene.daemon, requests[i][0], path, "\n", "invalid", message);
	}
	/* An object without fields says no more than nothing does. */
	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
		snprintf(path, sizeof path, "/%s", verbs[i][0]);
		call_sandbox(&scene.daemon, "POST", scene.sandbox, path, "{}", &answer);
		assert_int_equal(answer.status, 200);
		assert_string_equal(json_string_value(json_object_get(answer.json, "state")), verbs[i][1]);
		answer_finish(&answer);
	}
	scene_stop(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies_that_are_no_object),
		cmocka_unit_test(test_deep_bodies),
		cmocka_unit_test(test_huge_bodies),
		cmocka_unit_test(test_bodies_where_there_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
