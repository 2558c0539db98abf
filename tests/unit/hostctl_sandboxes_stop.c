/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes of a whole daemon that are switched off and on again: what they keep, and what is refused. */
#include "tests/unit/hostctl_attach_fixture.h"

static const char discard[] = "{\"discard_files\":true}";
static char *const pool_of_one[] = {"--pool", "1", NULL};

static void stop_sandbox(const struct daemon *daemon, const char *id)
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/stop", discard, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "state"), "\"stopped\"");
	answer_finish(&answer);
}

/* The field of a sandbox as JSON; static until the next call. */
static const char *field(const struct daemon *daemon, const char *id, const char *name)
{
	static char text[4096];
	struct answer answer;

	call_sandbox(daemon, "GET", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	snprintf(text, sizeof text, "%s", member(&answer, name));
	answer_finish(&answer);
	return text;
}

static void run_echo(const struct daemon *daemon, const char *id, char command[32])
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/run", "{\"argv\":[\"echo\",\"kept\"]}", &answer);
	assert_int_equal(answer.status, 200);
	snprintf(command, 32, "%s", json_string_value(json_object_get(answer.json, "command")));
	answer_finish(&answer);
}

static void expect_output_of(const struct daemon *daemon, const char *id, const char *command)
{
	struct answer answer;
	char rest[96];

	snprintf(rest, sizeof rest, "/commands/%s/output", command);
	call_sandbox(daemon, "GET", id, rest, NULL, &answer);
	assert_string_equal(member(&answer, "data"), "\"kept\\n\"");
	answer_finish(&answer);
}

/* It keeps what is the daemon's, and gets another VM. */
static void test_stop_and_start(void **state)
{
	static const char body[] = "{\"name\":\"web\",\"metadata\":{\"a\":\"b\"},\"env\":{\"A\":\"1\"},"
				   "\"ttl_ms\":60000,\"memory_max\":134217728}";
	struct daemon daemon;
	char id[32], vm[64], command[32], expires[64], message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, body, id);
	run_echo(&daemon, id, command);
	snprintf(vm, sizeof vm, "%s", field(&daemon, id, "vm"));
	snprintf(expires, sizeof expires, "%s", field(&daemon, id, "expires_ms"));
	ask_sandbox(&daemon, id, "start", "ready");
	stop_sandbox(&daemon, id);
	await_pool(&daemon, "warm", 1);
	assert_int_equal(pool_number(&daemon, "busy"), 0);
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 1);
	assert_string_equal(field(&daemon, "web", "vm"), "null");
	expect_reason(&daemon, id, "it was stopped, and its files are gone");
	expect_output_of(&daemon, id, command);
	/* Nothing is lost by it any more. */
	ask_sandbox(&daemon, id, "stop", "stopped");
	snprintf(message, sizeof message,
		"sandbox %s is stopped, and cannot be given commands: start it first", id);
	expect_refusal_of(&daemon, "POST", id, "/run", "{\"argv\":[\"x\"]}", 409, "conflict", message);
	expect_refusal_of(&daemon, "POST", id, "/commands", "{\"argv\":[\"x\"]}", 409, "conflict", message);
	for (int i = 0; i < 3; i++) {
		ask_sandbox(&daemon, id, "start", "ready");
		assert_string_not_equal(field(&daemon, id, "vm"), vm);
		assert_string_equal(field(&daemon, id, "reason"), "null");
		assert_string_equal(field(&daemon, id, "metadata"), "{\"a\":\"b\"}");
		assert_string_equal(field(&daemon, id, "expires_ms"), expires);
		expect_output_of(&daemon, "web", command);
		run_echo(&daemon, id, command);
		stop_sandbox(&daemon, id);
	}
	daemon_stop(&daemon);
}

static void test_it_has_to_be_asked_for(void **state)
{
	static const struct {
		const char *body, *message;
	} cases[] = {
		{"[]", "the body is not a JSON object"},
		{"{\"discard\":true}", "unknown field \"discard\" in the request"},
		{"{\"discard_files\":1}", "discard_files is not true or false"},
	};
	struct daemon daemon;
	char id[32], message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(message, sizeof message,
		"sandbox %s has its files in its memory, and would lose them: stop it with "
		"\"discard_files\": true (host-ctl stop --discard-files), or pause it",
		id);
	expect_refusal_of(&daemon, "POST", id, "/stop", NULL, 409, "conflict", message);
	expect_refusal_of(&daemon, "POST", id, "/stop", "{}", 409, "conflict", message);
	expect_refusal_of(
		&daemon, "POST", id, "/stop", "{\"discard_files\":false}", 409, "conflict", message);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect_refusal_of(
			&daemon, "POST", id, "/stop", cases[i].body, 400, "invalid", cases[i].message);
	ask_sandbox(&daemon, id, "pause", "paused");
	expect_refusal_of(&daemon, "POST", id, "/stop", "{}", 409, "conflict", message);
	snprintf(message, sizeof message, "sandbox %s is paused, and cannot be started: resume it", id);
	expect_refusal_of(&daemon, "POST", id, "/start", NULL, 409, "conflict", message);
	/* Its guest stands, and so is not asked. */
	stop_sandbox(&daemon, id);
	delete_sandbox(&daemon, id);
	snprintf(message, sizeof message, "sandbox %s is gone, and cannot be started", id);
	expect_refusal_of(&daemon, "POST", id, "/start", NULL, 409, "conflict", message);
	daemon_stop(&daemon);
}

/* What runs has no result, and says why. */
static void test_commands_that_run(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], command[32], rest[64], message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	start_detached(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", command);
	stop_sandbox(&daemon, id);
	snprintf(rest, sizeof rest, "/commands/%s", command);
	snprintf(message, sizeof message,
		"no result: sandbox %s stopped: it was stopped, and its files are gone", id);
	call_sandbox(&daemon, "GET", id, rest, NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"ended\"");
	assert_string_equal(error_member(&answer, "code"), "incomplete");
	assert_string_equal(error_member(&answer, "message"), message);
	answer_finish(&answer);
	/* The next ones are another VM's. */
	ask_sandbox(&daemon, id, "start", "ready");
	run_echo(&daemon, id, command);
	daemon_stop(&daemon);
}

static void test_the_receipt_of_a_stopped_one(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	stop_sandbox(&daemon, id);
	call_sandbox(&daemon, "DELETE", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(
		member(&answer, "removed"), "{\"vm\":null,\"cgroup\":null,\"files\":0,\"bytes\":0}");
	assert_string_equal(member(&answer, "verified"), "true");
	answer_finish(&answer);
	expect_reason(&daemon, id, "it was deleted");
	daemon_stop(&daemon);
}

static void test_ttl_goes_on_and_idleness_does_not(void **state)
{
	struct daemon daemon;
	char brief[32], idle[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{\"ttl_ms\":3000}", brief);
	create_sandbox(&daemon, "{\"idle\":{\"after_ms\":500,\"action\":\"kill\"}}", idle);
	stop_sandbox(&daemon, idle);
	stop_sandbox(&daemon, brief);
	await_state(&daemon, brief, "gone");
	expect_reason(&daemon, brief, "its ttl_ms is over");
	await_state(&daemon, idle, "stopped");
	ask_sandbox(&daemon, idle, "start", "ready");
	await_state(&daemon, idle, "gone");
	expect_reason(&daemon, idle, "it was idle for idle.after_ms");
	daemon_stop(&daemon);
}

/* A guest that is slow, one that hangs, and one that dies of it: all are off in the end. */
static void test_guests_that_do_not_obey(void **state)
{
	static const char *const scripts[] = {"boot shutdown-late:300", "boot shutdown-nothing",
		"boot shutdown-panic", "boot later-refused", "boot later-nothing"};
	struct daemon daemon;
	char id[32], command[32];

	(void)state;
	for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
		daemon_start(&daemon, scripts[i], pool_of_one);
		create_sandbox(&daemon, "{}", id);
		/* So that the stream of the shutdown is a later one. */
		run_echo(&daemon, id, command);
		stop_sandbox(&daemon, id);
		assert_int_equal(pool_number(&daemon, "busy"), 0);
		ask_sandbox(&daemon, id, "start", "ready");
		daemon_stop(&daemon);
	}
}

static void test_operations(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], same[32], code[64], message[256];

	(void)state;
	daemon_start(&daemon, "boot shutdown-late:1500", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	call_sandbox(&daemon, "POST", id, "/stop?wait=false", discard, &answer);
	snprintf(message, sizeof message, "sandbox %s is stopping, and cannot be given commands", id);
	expect_refusal_of(&daemon, "POST", id, "/run", "{\"argv\":[\"x\"]}", 409, "conflict", message);
	snprintf(message, sizeof message, "sandbox %s is stopping, and cannot be started yet", id);
	expect_refusal_of(&daemon, "POST", id, "/start", NULL, 503, "not_ready", message);
	await_operation(&daemon, &answer, "stop", "done", same, code);
	assert_string_equal(same, id);
	call_sandbox(&daemon, "POST", id, "/start?wait=false", "", &answer);
	await_operation(&daemon, &answer, "start", "done", same, code);
	assert_string_equal(code, "none");
	/* Deleted while it stops: what was asked first has not come about. */
	call_sandbox(&daemon, "POST", id, "/stop?wait=false", discard, &answer);
	delete_sandbox(&daemon, id);
	await_operation(&daemon, &answer, "stop", "failed", same, code);
	assert_string_equal(code, "conflict");
	expect_reason(&daemon, id, "it was deleted");
	daemon_stop(&daemon);
}

/* A start without a VM to be had leaves it as it was. */
static void test_starts_that_fail(void **state)
{
	char *const two[] = {"--pool", "0", "--max-vms", "1", "--queue-max", "1", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32], code[64];
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", two);
	create_sandbox(&daemon, "{}", id);
	stop_sandbox(&daemon, id);
	create_sandbox(&daemon, "{}", other);
	/* There is one place, which is the other's; so it waits in the queue... */
	call_sandbox(&daemon, "POST", id, "/start?wait=false", "", &answer);
	await_state(&daemon, id, "starting");
	/* ...where it may be deleted as well, */
	delete_sandbox(&daemon, id);
	await_operation(&daemon, &answer, "start", "failed", code, code);
	assert_string_equal(code, "conflict");
	delete_sandbox(&daemon, other);

	create_sandbox(&daemon, "{}", id);
	stop_sandbox(&daemon, id);
	create_sandbox(&daemon, "{}", other);
	/* ...and when that is full, it is refused at once. */
	fd = client_open(&daemon);
	client_request(fd, "POST", "/v1/sandboxes", "", "{}");
	await_pool(&daemon, "queued", 1);
	call_sandbox(&daemon, "POST", id, "/start", NULL, &answer);
	assert_int_equal(answer.status, 429);
	assert_string_equal(error_member(&answer, "code"), "exhausted");
	answer_finish(&answer);
	await_state(&daemon, id, "stopped");
	close(fd);
	await_pool(&daemon, "queued", 0);
	delete_sandbox(&daemon, other);
	ask_sandbox(&daemon, id, "start", "ready");
	daemon_stop(&daemon);
}

static json_t *next_event(struct stream *stream)
{
	expect(stream, AGENT_HOST_EVENT);
	return json_loadb((const char *)stream->frame.payload, stream->frame.length, 0, NULL);
}

static void test_events(void **state)
{
	static const char *const states[] = {"stopping", "stopped", "starting", "ready"};
	struct daemon daemon;
	struct stream stream;
	char id[32], head[2048];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	stream.fd = client_open(&daemon);
	assert_int_equal(frame_reader_init(&stream.reader, AGENT_FRAME_MAX), 0);
	client_request(stream.fd, "GET", "/v1/events", UPGRADE, NULL);
	assert_int_equal(client_read_head(stream.fd, head, sizeof head), 101);
	stop_sandbox(&daemon, id);
	ask_sandbox(&daemon, id, "start", "ready");
	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		json_t *event = next_event(&stream);

		assert_string_equal(json_string_value(json_object_get(event, "state")), states[i]);
		json_decref(event);
	}
	close_stream(&stream);
	daemon_stop(&daemon);
}

/* The second of two with one key is told what the first was, though the sandbox runs again. */
static void test_a_key(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], path[SANDBOX_PATH_MAX];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/stop", id);
	for (int i = 0; i < 2; i++) {
		int fd = client_open(&daemon);

		client_request(fd, "POST", path, "Idempotency-Key: off\r\n", discard);
		client_answer(fd, &answer);
		close(fd);
		assert_int_equal(answer.status, 200);
		assert_string_equal(member(&answer, "state"), "\"stopped\"");
		answer_finish(&answer);
		if (i == 0)
			ask_sandbox(&daemon, id, "start", "ready");
	}
	await_state(&daemon, id, "ready");
	daemon_stop(&daemon);
}

/* As the next daemon finds it, however the one before ended. */
static void test_the_next_daemon(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], during[32];

	(void)state;
	daemon_start(&daemon, "boot shutdown-late:2000", pool_of_one);
	create_sandbox(&daemon, "{\"name\":\"web\",\"ttl_ms\":600000}", id);
	create_sandbox(&daemon, "{}", during);
	stop_sandbox(&daemon, id);
	call_sandbox(&daemon, "POST", during, "/stop?wait=false", discard, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	/* The journal knows before the guest is told, who takes its time. */
	await_mark(&daemon, "told-shutdown", 1);
	kill(daemon.pid, SIGKILL);
	assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 1);
	await_state(&daemon, during, "stopped");
	await_state(&daemon, "web", "stopped");
	expect_reason(&daemon, id, "it was stopped, and its files are gone");
	assert_string_equal(field(&daemon, id, "vm"), "null");
	assert_int_equal(kill(daemon.pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(&daemon), 0);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	await_state(&daemon, id, "stopped");
	ask_sandbox(&daemon, id, "start", "ready");
	kill(daemon.pid, SIGKILL);
	assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	await_state(&daemon, id, "ready");
	stop_sandbox(&daemon, id);
	delete_sandbox(&daemon, during);
	kill(daemon.pid, SIGKILL);
	assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	call_sandbox(&daemon, "GET", during, "", NULL, &answer);
	/* That it was deleted is known for a while, or it is known no more. */
	if (answer.status != 404)
		assert_string_equal(member(&answer, "state"), "\"gone\"");
	answer_finish(&answer);
	await_state(&daemon, id, "stopped");
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop_and_start),
		cmocka_unit_test(test_it_has_to_be_asked_for),
		cmocka_unit_test(test_commands_that_run),
		cmocka_unit_test(test_the_receipt_of_a_stopped_one),
		cmocka_unit_test(test_ttl_goes_on_and_idleness_does_not),
		cmocka_unit_test(test_guests_that_do_not_obey),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_starts_that_fail),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_a_key),
		cmocka_unit_test(test_the_next_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
