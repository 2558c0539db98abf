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

/* One more start of a sandbox that waits for its VM; the status, and the operation's path. */
static int follow_start(const struct daemon *daemon, const char *id, char path[64])
{
	struct answer answer;
	int status;

	call_sandbox(daemon, "POST", id, "/start?wait=false", "", &answer);
	status = answer.status;
	if (status == 202)
		snprintf(path, 64, "/v1/operations/%s",
			json_string_value(json_object_get(json_object_get(answer.json, "operation"), "id")));
	answer_finish(&answer);
	return status;
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

/* Those that run are kept, of the others the oldest gives way. */
static void test_operations(void **state)
{
	char *const one[] = {"--pool", "0", "--max-vms", "1", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32], first[64], second[64], last[64];

	(void)state;
	start_sandbox(&daemon, "boot", one, id);
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	create_sandbox(&daemon, "{}", other);
	assert_int_equal(follow_start(&daemon, id, first), 202);
	assert_int_equal(follow_start(&daemon, id, second), 202);
	for (int i = 2; i < KNOWN; i++)
		assert_int_equal(follow_start(&daemon, id, last), 202);
	call_sandbox(&daemon, "POST", id, "/start?wait=false", "", &answer);
	expect_error_answer(&answer, 429, "exhausted", "1024 operations run: wait for some");
	assert_int_equal(status_at(&daemon, first), 200);
	/* Even so what was asked for is done: only nobody can follow it. */
	call_sandbox(&daemon, "DELETE", other, "", NULL, &answer);
	expect_error_answer(&answer, 429, "exhausted", "1024 operations run: wait for some");
	await_state(&daemon, other, "gone");
	await_state(&daemon, id, "ready");
	assert_int_equal(follow_start(&daemon, id, last), 202);
	assert_int_equal(status_at(&daemon, first), 404);
	assert_int_equal(status_at(&daemon, second), 200);
	assert_int_equal(status_at(&daemon, last), 200);
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
		cmocka_unit_test(test_what_is_not_written_yet_is_nobodys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
