/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes of a whole daemon with a vmm that plays its guests: made, paused, resumed, ended, and refused. */
#include "tests/unit/hostctl_sandboxes_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static void test_create_get_list_delete(void **state)
{
	static const char body[] =
		"{\"name\":\"web\",\"metadata\":{\"owner\":\"ann\"},\"env\":{\"A\":\"secret\"},"
		"\"ttl_ms\":60000,\"idle\":{\"after_ms\":50000,\"action\":\"pause\"},"
		"\"memory_max\":134217728,\"cpu_max\":50,\"pids_max\":40}";
	struct daemon daemon;
	struct answer answer;
	char first[32], second[32], path[SANDBOX_PATH_MAX];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, body, first);
	create_sandbox(&daemon, "{}", second);
	call_sandbox(&daemon, "GET", "web", "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(json_string_value(json_object_get(answer.json, "id")), first);
	assert_string_equal(member(&answer, "metadata"), "{\"owner\":\"ann\"}");
	assert_string_equal(member(&answer, "env"), "[\"A\"]");
	assert_string_equal(member(&answer, "idle"), "{\"after_ms\":50000,\"action\":\"pause\"}");
	assert_string_equal(member(&answer, "template"), "\"base\"");
	assert_string_equal(member(&answer, "memory_max"), "134217728");
	assert_string_equal(member(&answer, "cpu_max"), "50");
	assert_string_equal(member(&answer, "pids_max"), "40");
	assert_string_equal(member(&answer, "reason"), "null");
	assert_string_equal(member(&answer, "receipt"), "null");
	assert_int_equal(json_integer_value(json_object_get(answer.json, "expires_ms")),
		json_integer_value(json_object_get(answer.json, "created_ms")) + 60000);
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/sandboxes", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 2);
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/sandboxes?metadata.owner=ann&state=ready&template=base", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 1);
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/sandboxes?metadata.owner=bob", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 0);
	answer_finish(&answer);
	assert_int_equal(pool_number(&daemon, "busy"), 2);
	delete_sandbox(&daemon, first);
	snprintf(path, sizeof path, "/v1/sandboxes?state=gone");
	call(&daemon, "GET", path, NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 1);
	answer_finish(&answer);
	assert_int_equal(pool_number(&daemon, "busy"), 1);
	/* Known by its id for a while, and its name is free again. */
	expect_reason(&daemon, first, "it was deleted");
	expect_refusal_of(&daemon, "GET", "web", "", NULL, 404, "not_found", "there is no sandbox web");
	delete_sandbox(&daemon, first);
	create_sandbox(&daemon, "{\"name\":\"web\"}", first);
	call(&daemon, "POST", "/v1/sandboxes", "{\"name\":\"web\"}", &answer);
	snprintf(path, sizeof path, "the name web is that of sandbox %s", first);
	expect_error_answer(&answer, 409, "conflict", path);
	daemon_stop(&daemon);
}

/* What is more than its template has is cut to that, and told so; and so it stays. */
static void test_limits_over_the_templates(void **state)
{
	char *const sized[] = {"--pool", "1", "--mem", "64M", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", sized);
	create_sandbox(&daemon, "{\"memory_max\":1099511627776,\"cpu_max\":10000}", id);
	for (int i = 0; i < 2; i++) {
		call_sandbox(&daemon, "GET", id, "", NULL, &answer);
		/* Of the guest, and 64 MiB; its one processor, and one. */
		assert_string_equal(member(&answer, "memory_max"), "134217728");
		assert_string_equal(member(&answer, "cpu_max"), "200");
		assert_string_equal(member(&answer, "pids_max"), "null");
		answer_finish(&answer);
		kill(daemon.pid, SIGKILL);
		assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
		daemon_launch(&daemon, "boot", sized, true);
	}
	create_sandbox(&daemon, "{\"memory_max\":134217727,\"cpu_max\":199}", id);
	call_sandbox(&daemon, "GET", id, "", NULL, &answer);
	assert_string_equal(member(&answer, "memory_max"), "134217727");
	assert_string_equal(member(&answer, "cpu_max"), "199");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* What was there is named, and it is gone: process, cgroup, socket. */
static void test_the_receipt(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], vm[32], path[SANDBOX_PATH_MAX], expected[SANDBOX_PATH_MAX];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	call_sandbox(&daemon, "GET", id, "", NULL, &answer);
	snprintf(vm, sizeof vm, "%s", json_string_value(json_object_get(answer.json, "vm")));
	answer_finish(&answer);
	snprintf(path, sizeof path, "%s/%s", daemon.cgroups, vm);
	assert_int_equal(access(path, F_OK), 0);
	call_sandbox(&daemon, "DELETE", id, "", NULL, &answer);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof path, "%s/vm/%s", daemon.folder, vm);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(expected, sizeof expected, "{\"vm\":\"%s\",\"cgroup\":\"%s\",\"files\":1,\"bytes\":0}", vm,
		vm);
	assert_string_equal(member(&answer, "removed"), expected);
	assert_string_equal(member(&answer, "verified"), "true");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static void test_pause_and_resume(void **state)
{
	struct daemon daemon;
	char id[32], message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	ask_sandbox(&daemon, id, "resume", "ready");
	for (int i = 0; i < 3; i++) {
		ask_sandbox(&daemon, id, "pause", "paused");
		ask_sandbox(&daemon, id, "pause", "paused");
		ask_sandbox(&daemon, id, "resume", "ready");
	}
	ask_sandbox(&daemon, id, "pause", "paused");
	delete_sandbox(&daemon, id);
	snprintf(message, sizeof message, "sandbox %s is gone, and cannot be paused", id);
	expect_refusal_of(&daemon, "POST", id, "/pause", NULL, 409, "conflict", message);
	daemon_stop(&daemon);
}

static void test_operations(void **state)
{
	char *const cold[] = {"--pool", "0", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], code[64], message[128];

	(void)state;
	daemon_start(&daemon, "boot boot:1000", cold);
	call(&daemon, "POST", "/v1/sandboxes?wait=false", "{}", &answer);
	await_operation(&daemon, &answer, "create", "done", id, code);
	assert_string_equal(code, "none");
	await_state(&daemon, id, "ready");
	call_sandbox(&daemon, "POST", id, "/pause?wait=false", "", &answer);
	await_operation(&daemon, &answer, "pause", "done", id, code);
	call_sandbox(&daemon, "POST", id, "/resume?wait=false", "", &answer);
	await_operation(&daemon, &answer, "resume", "done", id, code);
	call_sandbox(&daemon, "DELETE", id, "?wait=false", "", &answer);
	await_operation(&daemon, &answer, "delete", "done", id, code);
	/* One that is deleted before it was there. */
	call(&daemon, "POST", "/v1/sandboxes?wait=false", "{}", &answer);
	snprintf(id, sizeof id, "%s",
		json_string_value(json_object_get(json_object_get(answer.json, "operation"), "sandbox")));
	snprintf(message, sizeof message, "sandbox %s is creating, and cannot be paused yet", id);
	expect_refusal_of(&daemon, "POST", id, "/pause", NULL, 503, "not_ready", message);
	delete_sandbox(&daemon, id);
	await_operation(&daemon, &answer, "create", "failed", id, code);
	assert_string_equal(code, "conflict");
	call(&daemon, "GET", "/v1/operations/op-none", NULL, &answer);
	expect_error_answer(&answer, 404, "not_found", "there is no operation op-none");
	call(&daemon, "POST", "/v1/sandboxes?wait=maybe", "{}", &answer);
	expect_error_answer(&answer, 400, "invalid", "wait is true or false, not \"maybe\"");
	daemon_stop(&daemon);
}

static int look(const struct daemon *daemon, const char *path)
{
	int fd = client_open(daemon);

	client_request(fd, "GET", path, "", NULL);
	return fd;
}

static void expect_operation(int fd, const char *wanted)
{
	struct answer answer;

	client_answer(fd, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(answer.json, "operation"), "state")),
		wanted);
	answer_finish(&answer);
	close(fd);
}

/* Any number may wait for one; who leaves changes nothing of it. */
static void test_waiting_for_an_operation(void **state)
{
	char *const cold[] = {"--pool", "0", NULL};
	struct daemon daemon;
	struct answer answer;
	char path[SANDBOX_PATH_MAX], id[32];
	const json_t *operation;
	int first, second, third;

	(void)state;
	daemon_start(&daemon, "boot boot:1500", cold);
	call(&daemon, "POST", "/v1/sandboxes?wait=false", "{}", &answer);
	operation = json_object_get(answer.json, "operation");
	snprintf(path, sizeof path, "/v1/operations/%s?wait=true",
		json_string_value(json_object_get(operation, "id")));
	snprintf(id, sizeof id, "%s", json_string_value(json_object_get(operation, "sandbox")));
	answer_finish(&answer);
	first = look(&daemon, path);
	second = look(&daemon, path);
	third = look(&daemon, path);
	/* All are read: the next one is answered after them. */
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"creating\"} "), 1);
	close(second);
	expect_operation(first, "done");
	expect_operation(third, "done");
	await_state(&daemon, id, "ready");
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"ready\"} "), 1);
	expect_operation(look(&daemon, path), "done");
	path[strlen(path) - strlen("true")] = '\0';
	strcat(path, "soon");
	call(&daemon, "GET", path, NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "wait is true or false, not \"soon\"");
	call(&daemon, "GET", "/v1/operations/op-none?wait=true", NULL, &answer);
	expect_error_answer(&answer, 404, "not_found", "there is no operation op-none");
	daemon_stop(&daemon);
}

/* It is ended with the daemon, and so is who waits for it. */
static void test_waiting_while_the_daemon_stops(void **state)
{
	char *const cold[] = {"--pool", "0", NULL};
	struct daemon daemon;
	struct answer answer;
	char path[SANDBOX_PATH_MAX];
	int fd;

	(void)state;
	daemon_start(&daemon, "boot boot:2000", cold);
	call(&daemon, "POST", "/v1/sandboxes?wait=false", "{}", &answer);
	snprintf(path, sizeof path, "/v1/operations/%s?wait=true",
		json_string_value(json_object_get(json_object_get(answer.json, "operation"), "id")));
	answer_finish(&answer);
	fd = look(&daemon, path);
	await_pool(&daemon, "queued", 1);
	assert_int_equal(kill(daemon.pid, SIGTERM), 0);
	expect_operation(fd, "failed");
	daemon_stop(&daemon);
}

static void test_bodies_that_are_refused(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *message;
	} cases[] = {
		{"", 400, "the body is empty: send a JSON object"},
		{"[]", 400, "the body is not a JSON object"},
		{"{\"name\":1}", 400, NULL},
		{"{\"name\":\"sb-1\"}", 400, NULL},
		{"{\"name\":\"../x\"}", 400, NULL},
		{"{\"other\":1}", 400, "unknown field \"other\" in the request"},
		{"{\"template\":\"none\"}", 404,
			"there is no template none: see `host-ctl template list`, or build it"},
		{"{\"metadata\":[]}", 400, "metadata is not an object of strings"},
		{"{\"metadata\":{\"a\":1}}", 400, "metadata.a is not a string"},
		{"{\"metadata\":{\"\":\"x\"}}", 400, "a key of metadata is empty or over 64 bytes"},
		{"{\"env\":{\"a=b\":\"x\"}}", 400,
			"env has the name \"a=b\": a name is not empty and has no '='"},
		{"{\"ttl_ms\":0}", 400,
			"ttl_ms is not a whole number of milliseconds from 1 to 2592000000 (30 days)"},
		{"{\"ttl_ms\":1.5}", 400,
			"ttl_ms is not a whole number of milliseconds from 1 to 2592000000 (30 days)"},
		{"{\"ttl_ms\":5,\"ttl_action\":\"rest\"}", 400,
			"ttl_action is not \"kill\", \"pause\" or \"suspend\""},
		{"{\"ttl_ms\":5,\"ttl_action\":1}", 400,
			"ttl_action is not \"kill\", \"pause\" or \"suspend\""},
		{"{\"mem\":\"31M\"}", 400, "mem is not a size from 32M to 511G in whole MiB, as a string"},
		{"{\"mem\":64}", 400, "mem is not a size from 32M to 511G in whole MiB, as a string"},
		{"{\"cpus\":0}", 400, "cpus is not a whole number from 1 to 8"},
		{"{\"cpus\":9}", 400, "cpus is not a whole number from 1 to 8"},
		{"{\"cpus\":\"2\"}", 400, "cpus is not a whole number from 1 to 8"},
		{"{\"idle\":true}", 400, "idle is not an object of after_ms and action"},
		{"{\"idle\":{}}", 400, "idle.after_ms is missing"},
		{"{\"idle\":{\"after_ms\":2592000001,\"action\":\"kill\"}}", 400,
			"after_ms is not a whole number of milliseconds from 1 to 2592000000 (30 days)"},
		{"{\"idle\":{\"after_ms\":5,\"action\":\"rest\"}}", 400,
			"idle.action is not \"kill\", \"pause\" or \"suspend\""},
		{"{\"idle\":{\"after_ms\":5,\"action\":\"kill\",\"x\":1}}", 400,
			"unknown field \"x\" in the request"},
		{"{\"memory_max\":4096}", 400,
			"memory_max is not a whole number from 100663296 to 9223372036854775807"},
		{"{\"cpu_max\":1}", 400, "cpu_max is not a whole number from 5 to 10000"},
		{"{\"pids_max\":0}", 400, "pids_max is not a whole number from 1 to 4194304"},
		{"{\"pids_max\":4194305}", 400, "pids_max is not a whole number from 1 to 4194304"},
		{"{\"pids_max\":\"40\"}", 400, "pids_max is not a whole number from 1 to 4194304"},
	};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		call(&daemon, "POST", "/v1/sandboxes", cases[i].body, &answer);
		assert_int_equal(answer.status, cases[i].status);
		if (cases[i].message)
			assert_string_equal(error_member(&answer, "message"), cases[i].message);
		answer_finish(&answer);
	}
	call(&daemon, "GET", "/v1/sandboxes?colour=red", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid",
		"unknown parameter \"colour\": a list takes state, template and metadata.KEY");
	call(&daemon, "GET", "/v1/sandboxes?state=red", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "state is not that of a sandbox: \"red\"");
	call(&daemon, "GET", "/v1/sandboxes?state=ready&state=ready", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "the parameter state is there twice");
	call(&daemon, "GET", "/v1/sandboxes?template=a&metadata.k=v&template=b", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "the parameter template is there twice");
	call(&daemon, "GET", "/v1/sandboxes?metadata.k=v&metadata.l=v&metadata.k=w", NULL, &answer);
	expect_error_answer(&answer, 400, "invalid", "the parameter metadata.k is there twice");
	expect_refusal_of(
		&daemon, "DELETE", "sb-none", "", NULL, 404, "not_found", "there is no sandbox sb-none");
	call(&daemon, "PATCH", "/v1/sandboxes/sb-none", NULL, &answer);
	expect_error_answer(
		&answer, 405, "method_not_allowed", "/v1/sandboxes/sb-none takes GET and DELETE, not PATCH");
	call(&daemon, "GET", "/v1/sandboxes/", NULL, &answer);
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	assert_int_equal(pool_number(&daemon, "busy"), 0);
	daemon_stop(&daemon);
}

static void test_ttl_and_idle(void **state)
{
	struct daemon daemon;
	char brief[32], killed[32], paused[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	/* From its creation on, so a busy host has to make it within that. */
	create_sandbox(&daemon, "{\"ttl_ms\":3000}", brief);
	create_sandbox(&daemon, "{\"idle\":{\"after_ms\":150,\"action\":\"kill\"}}", killed);
	create_sandbox(&daemon, "{\"idle\":{\"after_ms\":150,\"action\":\"pause\"}}", paused);
	await_state(&daemon, brief, "gone");
	expect_reason(&daemon, brief, "its ttl_ms is over");
	await_state(&daemon, killed, "gone");
	expect_reason(&daemon, killed, "it was idle for idle.after_ms");
	await_state(&daemon, paused, "paused");
	ask_sandbox(&daemon, paused, "resume", "ready");
	await_state(&daemon, paused, "paused");
	daemon_stop(&daemon);
}

static void test_vms_that_fail(void **state)
{
	static const struct {
		const char *script;
		int status;
		const char *code, *after, *reason;
	} cases[] = {
		{"boot pause-refused", 500, "internal", "ready", NULL},
		{"boot pause-panic", 0, NULL, "failed",
			"its VM ended: the guest's kernel panicked: while paused"},
	};
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		daemon_start(&daemon, cases[i].script, pool_of_one);
		create_sandbox(&daemon, "{}", id);
		call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
		if (cases[i].status) {
			assert_int_equal(answer.status, cases[i].status);
			assert_string_equal(error_member(&answer, "code"), cases[i].code);
		}
		answer_finish(&answer);
		await_state(&daemon, id, cases[i].after);
		if (cases[i].reason)
			expect_reason(&daemon, id, cases[i].reason);
		delete_sandbox(&daemon, id);
		daemon_stop(&daemon);
	}
	daemon_start(&daemon, "boot resume-refused", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	ask_sandbox(&daemon, id, "pause", "paused");
	call_sandbox(&daemon, "POST", id, "/resume", NULL, &answer);
	assert_string_equal(error_member(&answer, "code"), "internal");
	answer_finish(&answer);
	await_state(&daemon, id, "paused");
	daemon_stop(&daemon);
}

/* A vmm that says nothing is ended, and who waits for it is told. */
static void test_a_vmm_that_does_not_answer(void **state)
{
	struct daemon daemon;
	char id[32], message[256];

	(void)state;
	daemon_start(&daemon, "boot pause-nothing", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(message, sizeof message, "sandbox %s is failed: the vmm did not answer in time", id);
	expect_refusal_of(&daemon, "POST", id, "/pause", NULL, 502, "guest_lost", message);
	await_pool(&daemon, "busy", 0);
	daemon_stop(&daemon);
}

/* It never learns of the sandbox; nobody else would end it. */
static void test_a_client_that_leaves_its_create(void **state)
{
	char *const cold[] = {"--pool", "0", NULL};
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot boot:1500", cold);
	fd = client_open(&daemon);
	client_request(fd, "POST", "/v1/sandboxes", "", "{}");
	await_pool(&daemon, "queued", 1);
	close(fd);
	await_pool(&daemon, "queued", 0);
	call(&daemon, "GET", "/v1/sandboxes?state=gone", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 1);
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static int create_keyed(const struct daemon *daemon)
{
	int fd = client_open(daemon);

	client_request(fd, "POST", "/v1/sandboxes", "Idempotency-Key: one\r\n", "{}");
	return fd;
}

/* With a key it is waited for a while longer: who asks again finds it, and nobody else's is made. */
static void test_a_client_that_leaves_its_keyed_create(void **state)
{
	char *const patient[] = {"--pool", "0", NULL};
	char *const brief[] = {"--pool", "0", "--key-grace-ms", "50", NULL};
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot boot:1500", patient);
	fd = create_keyed(&daemon);
	await_pool(&daemon, "queued", 1);
	close(fd);
	fd = create_keyed(&daemon);
	client_answer(fd, &answer);
	close(fd);
	assert_int_equal(answer.status, 201);
	assert_string_equal(member(&answer, "state"), "\"ready\"");
	answer_finish(&answer);
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"ready\"} "), 1);
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"gone\"} "), 0);
	daemon_stop(&daemon);

	daemon_start(&daemon, "boot boot:2000", brief);
	fd = create_keyed(&daemon);
	await_pool(&daemon, "queued", 1);
	close(fd);
	await_pool(&daemon, "queued", 0);
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"gone\"} "), 1);
	fd = create_keyed(&daemon);
	client_answer(fd, &answer);
	close(fd);
	expect_error_answer(&answer, 502, "incomplete",
		"the request with the Idempotency-Key one was ended: its client had left, and nobody asked "
		"for "
		"it again within 50 ms (--key-grace-ms)");
	daemon_stop(&daemon);
}

/* Waits until it is not ready any more, and not for longer. */
static void await_leaving(const struct daemon *daemon, const char *id)
{
	const time_t end = time(NULL) + WAIT_MS / 1000;
	bool ready = true;

	while (ready && time(NULL) < end) {
		struct answer answer;

		call_sandbox(daemon, "GET", id, "", NULL, &answer);
		assert_int_equal(answer.status, 200);
		ready = !strcmp(member(&answer, "state"), "\"ready\"");
		answer_finish(&answer);
	}
	assert_false(ready);
}

/* One who leaves a pause or a deletion changes nothing of it. */
static void test_a_client_that_leaves_its_delete(void **state)
{
	struct daemon daemon;
	char id[32], path[SANDBOX_PATH_MAX];
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	fd = client_open(&daemon);
	client_request(fd, "DELETE", path, "", NULL);
	/* One that leaves before it is read has asked for nothing. */
	await_leaving(&daemon, id);
	close(fd);
	await_state(&daemon, id, "gone");
	daemon_stop(&daemon);
}

static void test_it_is_forgotten(void **state)
{
	char *const brief[] = {"--pool", "1", "--keep-ms", "100", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", brief);
	create_sandbox(&daemon, "{}", id);
	delete_sandbox(&daemon, id);
	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		call_sandbox(&daemon, "GET", id, "", NULL, &answer);
		if (answer.status == 404)
			break;
		answer_finish(&answer);
		sleep_ms(POLL_MS);
	}
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static void test_no_vm_to_be_had(void **state)
{
	char *const none[] = {"--pool", "0", "--queue-max", "0", NULL};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", none);
	call(&daemon, "POST", "/v1/sandboxes", "{}", &answer);
	assert_int_equal(answer.status, 429);
	assert_string_equal(error_member(&answer, "code"), "exhausted");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_get_list_delete),
		cmocka_unit_test(test_the_receipt),
		cmocka_unit_test(test_limits_over_the_templates),
		cmocka_unit_test(test_pause_and_resume),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_waiting_for_an_operation),
		cmocka_unit_test(test_waiting_while_the_daemon_stops),
		cmocka_unit_test(test_bodies_that_are_refused),
		cmocka_unit_test(test_ttl_and_idle),
		cmocka_unit_test(test_vms_that_fail),
		cmocka_unit_test(test_a_vmm_that_does_not_answer),
		cmocka_unit_test(test_a_client_that_leaves_its_create),
		cmocka_unit_test(test_a_client_that_leaves_its_keyed_create),
		cmocka_unit_test(test_a_client_that_leaves_its_delete),
		cmocka_unit_test(test_it_is_forgotten),
		cmocka_unit_test(test_no_vm_to_be_had),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
