/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon knows of sandboxes and operations is bounded: what gives way, and what is refused; and what
 * it does not know yet. */
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandbox.h"
#include "tests/unit/hostctl_sandboxes_fixture.h"

enum { KNOWN = 1024 };

/* One that gets no VM; its id. The status of the answer. */
static int create_waiting(const struct daemon *daemon, char id[32])
{
	struct answer answer;
	int status;

	call(daemon, "POST", "/v1/sandboxes?wait=false", "{}", &answer);
	status = answer.status;
	if (status == 202)
		snprintf(id, 32, "%s",
			json_string_value(
				json_object_get(json_object_get(answer.json, "operation"), "sandbox")));
	answer_finish(&answer);
	return status;
}

static int status_of(const struct daemon *daemon, const char *id)
{
	struct answer answer;
	int status;

	call_sandbox(daemon, "GET", id, "", NULL, &answer);
	status = answer.status;
	answer_finish(&answer);
	return status;
}

/* First the oldest that is gone, then the oldest that failed; no other. */
static void test_sandboxes(void **state)
{
	char *const one[] = {"--pool", "0", "--max-vms", "1", "--queue-max", "4096", NULL};
	struct daemon daemon;
	struct answer answer;
	char first[32], second[32] = "", third[32] = "", id[32];

	(void)state;
	daemon_start(&daemon, "boot", one);
	create_sandbox(&daemon, "{}", first);
	for (int i = 0; i < KNOWN - 1; i++) {
		assert_int_equal(create_waiting(&daemon, id), 202);
		delete_sandbox(&daemon, id);
		memcpy(i == 0 ? second : third, id, i < 2 ? sizeof id : 0);
	}
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"gone\"} "), KNOWN - 1);
	assert_int_equal(status_of(&daemon, second), 200);
	assert_int_equal(create_waiting(&daemon, id), 202);
	assert_int_equal(status_of(&daemon, second), 404);
	assert_int_equal(status_of(&daemon, third), 200);
	for (int i = 0; i < KNOWN - 2; i++)
		assert_int_equal(create_waiting(&daemon, id), 202);
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"creating\"} "), KNOWN - 1);
	call(&daemon, "POST", "/v1/sandboxes?wait=false", "{}", &answer);
	expect_error_answer(&answer, 429, "exhausted", "there are 1024 sandboxes: delete some");
	assert_int_equal(status_of(&daemon, first), 200);
	call_sandbox(&daemon, "POST", first, "/run", "{\"argv\":[\"panic\"]}", &answer);
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	answer_finish(&answer);
	await_state(&daemon, first, "failed");
	await_pool(&daemon, "busy", 1);
	assert_int_equal(create_waiting(&daemon, id), 202);
	assert_int_equal(status_of(&daemon, first), 404);
	daemon_stop(&daemon);
}

/* One more transition that is not waited for; its operation's path. */
static void follow(const struct daemon *daemon, const char *id, const char *rest, char path[64])
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, rest, "", &answer);
	assert_int_equal(answer.status, 202);
	snprintf(path, 64, "/v1/operations/%s",
		json_string_value(json_object_get(json_object_get(answer.json, "operation"), "id")));
	answer_finish(&answer);
}

static int status_at(const struct daemon *daemon, const char *path)
{
	struct answer answer;
	int status;

	call(daemon, "GET", path, NULL, &answer);
	status = answer.status;
	answer_finish(&answer);
	return status;
}

static void create_stopped(const struct daemon *daemon, char id[32])
{
	struct answer answer;

	create_sandbox(daemon, "{}", id);
	call_sandbox(daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
}

/* As many as there may be: two sandboxes, which are stopped, wait for their VMs under two kinds each, and
 * others to be there. */
static void fill_operations(
	const struct daemon *daemon, const char *id, const char *second, char start[64], char wake[64])
{
	char more[64], created[32];

	follow(daemon, id, "/start?wait=false", start);
	follow(daemon, id, "/wake?wait=false", wake);
	follow(daemon, second, "/start?wait=false", more);
	follow(daemon, second, "/wake?wait=false", more);
	for (int i = 4; i < KNOWN; i++)
		assert_int_equal(create_waiting(daemon, created), 202);
}

/* Those that run are kept, of the others the oldest gives way; without one that does nothing is done. */
static void test_operations(void **state)
{
	static const char refusal[] = "1024 operations run: wait for some";
	char *const one[] = {"--pool", "0", "--max-vms", "1", "--queue-max", "4096", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], second[32], other[32], start[64], wake[64], last[64];

	(void)state;
	daemon_start(&daemon, "boot", one);
	create_stopped(&daemon, id);
	create_stopped(&daemon, second);
	create_sandbox(&daemon, "{}", other);
	fill_operations(&daemon, id, second, start, wake);
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"creating\"} "), KNOWN - 4);
	call(&daemon, "POST", "/v1/sandboxes?wait=false", "{}", &answer);
	expect_error_answer(&answer, 429, "exhausted", refusal);
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"creating\"} "), KNOWN - 4);
	expect_refusal_of(&daemon, "DELETE", other, "", NULL, 429, "exhausted", refusal);
	expect_refusal_of(
		&daemon, "POST", other, "/stop", "{\"discard_files\":true}", 429, "exhausted", refusal);
	await_state(&daemon, other, "ready");
	/* What runs already takes no other place. */
	follow(&daemon, id, "/start?wait=false", last);
	assert_string_equal(last, start);
	call_sandbox(&daemon, "POST", other, "/run", "{\"argv\":[\"panic\"]}", &answer);
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	answer_finish(&answer);
	await_state(&daemon, id, "ready");
	assert_int_equal(status_at(&daemon, start), 200);
	follow(&daemon, id, "/start?wait=false", last);
	assert_string_not_equal(last, start);
	assert_int_equal(status_at(&daemon, start), 404);
	assert_int_equal(status_at(&daemon, wake), 200);
	assert_int_equal(status_at(&daemon, last), 200);
	daemon_stop(&daemon);
}

/* Not even of one that is refused for another reason, and so was planned. */
static void test_refused_ones_take_no_place(void **state)
{
	char *const one[] = {"--pool", "0", "--max-vms", "1", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], path[64];

	(void)state;
	start_sandbox(&daemon, "boot", one, id);
	follow(&daemon, id, "/wake?wait=false", path);
	for (int i = 0; i < KNOWN; i++) {
		call_sandbox(&daemon, "POST", id, "/stop?wait=false", "", &answer);
		assert_int_equal(answer.status, 409);
		answer_finish(&answer);
	}
	assert_int_equal(status_at(&daemon, path), 200);
	follow(&daemon, id, "/wake?wait=false", path);
	daemon_stop(&daemon);
}

static void never(struct command *command, const struct error *error)
{
	(void)command;
	(void)error;
	fail();
}

/* Else others could hold what its creator, who leaves, destroys. */
static void test_what_is_not_written_yet_is_nobodys(void **state)
{
	struct command command = {.id = "cmd-1", .created = never};
	struct sandbox sandbox = {.id = "sb-1", .commands = &command};
	struct error error;
	json_t *list = commands_to_json(&sandbox);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(list, "commands")), 0);
	json_decref(list);
	assert_null(commands_find(&sandbox, "cmd-1", &error));
	assert_string_equal(error.message, "sandbox sb-1 has no command cmd-1");
	command.created = NULL;
	assert_ptr_equal(commands_find(&sandbox, "cmd-1", &error), &command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sandboxes),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_refused_ones_take_no_place),
		cmocka_unit_test(test_what_is_not_written_yet_is_nobodys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
