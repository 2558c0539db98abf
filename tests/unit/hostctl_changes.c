/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/sandboxes/ID/changes, with guests that only play (tests/fake-vmm/fake_changes.c). */
#include "tests/unit/hostctl_sandboxes_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static void expect_changes(const struct daemon *daemon, const char *id, const char *query, const char *wanted)
{
	struct answer answer;
	char rest[128];

	snprintf(rest, sizeof rest, "/changes%s", query);
	call_sandbox(daemon, "GET", id, rest, NULL, &answer);
	answer.body[strcspn(answer.body, "\n")] = '\0';
	assert_string_equal(answer.body, wanted);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
}

static void test_what_they_are(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	expect_changes(&daemon, id, "",
		"{\"changes\":["
		"{\"kind\":\"added\",\"path\":\"/"
		"a\",\"type\":\"file\",\"mode\":420,\"uid\":1,\"gid\":2,\"size\":3,"
		"\"modified_ms\":4},"
		"{\"kind\":\"removed\",\"path\":\"/b.d\",\"type\":\"directory\"},"
		"{\"kind\":\"changed\",\"path_b64\":\"L2L/\",\"type\":\"directory\",\"mode\":1023,\"uid\":0,"
		"\"gid\":0,\"size\":0,\"modified_ms\":0},"
		"{\"kind\":\"added\",\"path_b64\":\"L2L/L2MK\",\"type\":\"symlink\",\"mode\":511,\"uid\":0,"
		"\"gid\":0,\"size\":9223372036854775807,\"modified_ms\":-1}],"
		"\"more\":false,\"skipped\":5}");
	expect_changes(&daemon, id, "?after=/b%FF/c%0A", "{\"changes\":[],\"more\":false,\"skipped\":5}");
	expect_changes(&daemon, id, "?after=/c", "{\"changes\":[],\"more\":false,\"skipped\":5}");
	expect_changes(&daemon, id, "?limit=1&after=/a",
		"{\"changes\":[{\"kind\":\"removed\",\"path\":\"/"
		"b.d\",\"type\":\"directory\"}],\"more\":true,"
		"\"skipped\":5}");
	expect_changes(&daemon, id, "?after=/b%FF/c",
		"{\"changes\":[{\"kind\":\"added\",\"path_b64\":\"L2L/"
		"L2MK\",\"type\":\"symlink\",\"mode\":511,"
		"\"uid\":0,\"gid\":0,\"size\":9223372036854775807,\"modified_ms\":-1}],\"more\":false,"
		"\"skipped\":5}");
	daemon_stop(&daemon);
}

static void test_pages(void **state)
{
	struct daemon daemon;
	struct answer answer;
	size_t count = 0, pages = 0;
	char id[32], rest[64] = "/changes?limit=4096";
	bool more = true;

	(void)state;
	start_sandbox(&daemon, "boot changes:10000", pool_of_one, id);
	while (more) {
		const json_t *list;

		call_sandbox(&daemon, "GET", id, rest, NULL, &answer);
		assert_int_equal(answer.status, 200);
		list = json_object_get(answer.json, "changes");
		more = json_is_true(json_object_get(answer.json, "more"));
		count += json_array_size(list);
		snprintf(rest, sizeof rest, "/changes?limit=4096&after=%s",
			json_string_value(
				json_object_get(json_array_get(list, json_array_size(list) - 1), "path")));
		answer_finish(&answer);
		pages++;
	}
	assert_int_equal(count, 10000);
	assert_int_equal(pages, 3);
	/* What nobody asked for otherwise. */
	call_sandbox(&daemon, "GET", id, "/changes", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "changes")), 1000);
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static void test_queries(void **state)
{
	static const char limit[] = "limit is not a whole number from 1 to 4096: \"%s\"";
	static const char *const numbers[] = {"0", "4097", "-1", "1x", "18446744073709551616", "+1"};
	static const char after[] = "after is no absolute path of at most 4095 bytes";
	char rest[64], path[4200], message[512], id[32];
	struct daemon daemon;
	struct answer answer;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		snprintf(rest, sizeof rest, "/changes?limit=%s", numbers[i][0] == '+' ? "%2B1" : numbers[i]);
		snprintf(message, sizeof message, limit, numbers[i]);
		expect_refusal_of(&daemon, "GET", id, rest, NULL, 400, "invalid", message);
	}
	expect_refusal_of(&daemon, "GET", id, "/changes?after=a", NULL, 400, "invalid", after);
	snprintf(message, sizeof message,
		"/v1/sandboxes/%s/changes takes no parameter \"before\", but for after and limit", id);
	expect_refusal_of(&daemon, "GET", id, "/changes?before=/", NULL, 400, "invalid", message);
	expect_refusal_of(
		&daemon, "GET", "sb-none", "/changes", NULL, 404, "not_found", "there is no sandbox sb-none");
	/* The longest, and one byte more. */
	snprintf(path, sizeof path, "/v1/sandboxes/%s/changes?after=/%04094d", id, 0);
	call(&daemon, "GET", path, NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/changes?after=/%04095d", id, 0);
	call(&daemon, "GET", path, NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", after);
	daemon_stop(&daemon);
}

/* A guest that only fools its owner: an error, and the sandbox goes on. */
static void test_guests_that_misbehave(void **state)
{
	static const struct {
		const char *how, *fault;
	} cases[] = {
		{"kind", "CHANGE_LIST with a kind out of range"},
		{"mode", "CHANGE_LIST with a mode out of range"},
		{"path", "CHANGE_LIST with a path that is none"},
		{"root", "CHANGE_LIST with a path of a wrong length"},
		{"order", "CHANGE_LIST out of order"},
		{"length", "CHANGE_LIST with a path of a wrong length"},
		{"empty", "CHANGE_LIST of a wrong length"},
		{"many", "CHANGE_LIST with more than was asked for"},
		{"count", "CHANGES_END that counts other entries than came"},
		{"more", "CHANGES_END with a field out of range"},
		{"type", "a frame of a type that has no place among changes"},
		{"frame", "a malformed frame"},
	};
	char rest[64], message[512], id[32];
	struct daemon daemon;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		snprintf(rest, sizeof rest, "/changes?after=/bad-%s%s", cases[i].how,
			strcmp(cases[i].how, "many") ? "" : "&limit=1");
		snprintf(message, sizeof message,
			"the guest of sandbox %s did not tell its changes: it broke the agent protocol (%s)",
			id, cases[i].fault);
		expect_refusal_of(&daemon, "GET", id, rest, NULL, 502, "incomplete", message);
	}
	snprintf(message, sizeof message,
		"the guest of sandbox %s did not tell all of its changes: its stream ended", id);
	expect_refusal_of(&daemon, "GET", id, "/changes?after=/close", NULL, 502, "incomplete", message);
	await_state(&daemon, id, "ready");
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

static void test_guests_that_refuse(void **state)
{
	static const struct {
		const char *path, *code, *text;
		int status;
	} cases[] = {
		{"/refuse-busy", "exhausted", "Resource temporarily unavailable", 429},
		{"/refuse-root", "conflict", "Operation not supported", 409},
		{"/refuse-else", "attach_failed", "Input/output error", 502},
	};
	char rest[64], message[512], id[32];
	struct daemon daemon;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		snprintf(rest, sizeof rest, "/changes?after=%s", cases[i].path);
		snprintf(message, sizeof message,
			"the guest of sandbox %s does not tell its changes: no (%s)", id, cases[i].text);
		expect_refusal_of(&daemon, "GET", id, rest, NULL, cases[i].status, cases[i].code, message);
	}
	daemon_stop(&daemon);
}

static void test_streams_that_do_not_come(void **state)
{
	struct daemon daemon;
	char id[32], message[512];

	(void)state;
	start_sandbox(&daemon, "boot later-refused", pool_of_one, id);
	snprintf(message, sizeof message, "no stream to the guest of sandbox %s: Connection refused", id);
	expect_refusal_of(&daemon, "GET", id, "/changes", NULL, 502, "attach_failed", message);
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
}

static void test_states(void **state)
{
	struct daemon daemon;
	char id[32], message[512];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	ask_sandbox(&daemon, id, "pause", "paused");
	snprintf(message, sizeof message, "sandbox %s is paused, and cannot tell its changes: resume it", id);
	expect_refusal_of(&daemon, "GET", id, "/changes", NULL, 409, "conflict", message);
	/* Nobody has resumed it. */
	await_state(&daemon, id, "paused");
	ask_sandbox(&daemon, id, "resume", "ready");
	expect_changes(&daemon, id, "?after=/c", "{\"changes\":[],\"more\":false,\"skipped\":5}");
	delete_sandbox(&daemon, id);
	snprintf(message, sizeof message, "sandbox %s is gone, and cannot be given commands", id);
	expect_refusal_of(&daemon, "GET", id, "/changes", NULL, 409, "conflict", message);
	daemon_stop(&daemon);
}

/* Those who wait are told when the VM ends, or is not READY any more; who leaves is forgotten. */
static void test_ends_meanwhile(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], path[128], message[512];
	int fd;

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/changes?after=/nothing", id);
	fd = client_open(&daemon);
	client_request(fd, "GET", path, "", NULL);
	await_mark(&daemon, "asked-changes", 1);
	ask_sandbox(&daemon, id, "pause", "paused");
	client_answer(fd, &answer);
	close(fd);
	snprintf(message, sizeof message, "sandbox %s did not tell all of its changes: it is pausing", id);
	expect_error_answer(&answer, 409, "conflict", message);
	ask_sandbox(&daemon, id, "resume", "ready");
	fd = client_open(&daemon);
	client_request(fd, "GET", path, "", NULL);
	/* The first one's stands for good. */
	await_mark(&daemon, "asked-changes", 2);
	close(fd);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/changes?after=/die", id);
	call(&daemon, "GET", path, NULL, &answer);
	assert_int_equal(answer.status, 502);
	answer_finish(&answer);
	await_state(&daemon, id, "failed");
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_they_are),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_guests_that_misbehave),
		cmocka_unit_test(test_guests_that_refuse),
		cmocka_unit_test(test_streams_that_do_not_come),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_ends_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
