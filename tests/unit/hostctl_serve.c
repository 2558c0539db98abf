/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a whole, with a vmm that plays its guests: plain runs, the pool, starts that fail, life. */
#include "tests/unit/hostctl_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static void run_argv(const struct daemon *daemon, const char *argv, struct answer *answer)
{
	char body[256];

	snprintf(body, sizeof body, "{\"argv\":[%s]}", argv);
	run_command(daemon, body, answer);
}

static void test_results(void **state)
{
	static const struct {
		const char *argv, *result;
	} cases[] = {
		{"\"exit\",\"0\"", "{\"kind\":\"exited\",\"code\":0}"},
		{"\"exit\",\"255\"", "{\"kind\":\"exited\",\"code\":255}"},
		{"\"signal\",\"9\"", "{\"kind\":\"signalled\",\"signal\":9,\"core\":false}"},
		{"\"oom\"", "{\"kind\":\"out_of_memory\"}"},
		{"\"timeout\"", "{\"kind\":\"timed_out\",\"by\":\"guest\"}"},
		{"\"no-such-command\"", "{\"kind\":\"failed_to_start\",\"errno\":2,"
					"\"error\":\"No such file or directory\",\"step\":\"exec\"}"},
	};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		run_argv(&daemon, cases[i].argv, &answer);
		assert_int_equal(answer.status, 200);
		assert_string_equal(member(&answer, "result"), cases[i].result);
		assert_string_equal(member(&answer, "stdout"), "{\"data\":\"\",\"bytes\":0,\"dropped\":0}");
		answer_finish(&answer);
	}
	daemon_stop(&daemon);
}

static void test_output(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_argv(&daemon, "\"both\"", &answer);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"out\\n\",\"bytes\":4,\"dropped\":0}");
	assert_string_equal(member(&answer, "stderr"), "{\"data\":\"err\\n\",\"bytes\":4,\"dropped\":0}");
	answer_finish(&answer);
	run_argv(&daemon, "\"latin\"", &answer);
	assert_string_equal(
		member(&answer, "stdout"), "{\"data_b64\":\"6f8AeA==\",\"bytes\":4,\"dropped\":0}");
	answer_finish(&answer);
	run_command(&daemon, "{\"argv\":[\"cat\"],\"stdin_b64\":\"/wBh\"}", &answer);
	assert_string_equal(member(&answer, "stdout"), "{\"data_b64\":\"/wBh\",\"bytes\":3,\"dropped\":0}");
	answer_finish(&answer);
	run_command(&daemon, "{\"argv\":[\"cat\"],\"stdin\":\"\"}", &answer);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"\",\"bytes\":0,\"dropped\":0}");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* Byte n of the fake's flood starts anew with each chunk of 32 KiB. */
static char flood_byte(size_t n)
{
	return (char)('a' + n % (32 * 1024) % 26);
}

static void test_long_output_keeps_head_and_tail(void **state)
{
	const size_t total = 3000001, half = 512 * 1024;
	struct daemon daemon;
	struct answer answer;
	const char *data;
	json_t *output;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_argv(&daemon, "\"flood\",\"3000001\"", &answer);
	assert_int_equal(answer.status, 200);
	output = json_object_get(answer.json, "stdout");
	assert_int_equal(json_integer_value(json_object_get(output, "bytes")), total);
	assert_int_equal(json_integer_value(json_object_get(output, "dropped")), total - 2 * half);
	assert_int_equal(json_integer_value(json_object_get(output, "head_bytes")), half);
	data = json_string_value(json_object_get(output, "data"));
	assert_int_equal(strlen(data), 2 * half);
	for (size_t i = 0; i < half; i++) {
		assert_int_equal(data[i], flood_byte(i));
		assert_int_equal(data[half + i], flood_byte(total - half + i));
	}
	answer_finish(&answer);
	daemon_stop(&daemon);
}

static void test_guests_that_break_the_protocol(void **state)
{
	static const struct {
		const char *argv, *fault;
	} cases[] = {
		{"\"bad-type\"", "a frame of a type that has no place in a session"},
		{"\"bad-flags\"", "a frame with a malformed header"},
		{"\"bad-length\"", "a frame over the limit"},
		{"\"bad-offset\"", "output at a wrong offset"},
		{"\"bad-exit\"", "EXIT with a code out of range"},
		{"\"bad-count\"", "EXIT that counts less output than came"},
		{"\"bad-started\"", "STARTED of another session"},
		{"\"bad-early\"", "a frame before STARTED"},
		{"\"bad-credit\"", "STDIN_CREDIT of a wrong size"},
	};
	struct daemon daemon;
	struct answer answer;
	char message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		run_argv(&daemon, cases[i].argv, &answer);
		assert_int_equal(answer.status, 502);
		assert_string_equal(error_member(&answer, "code"), "incomplete");
		snprintf(message, sizeof message,
			"no result: the guest broke the agent protocol (%s); its VM was destroyed",
			cases[i].fault);
		assert_string_equal(error_member(&answer, "message"), message);
		answer_finish(&answer);
	}
	await_pool(&daemon, "busy", 0);
	await_pool(&daemon, "warm", 1);
	assert_int_equal(pool_number(&daemon, "warm_lost"), 0);
	daemon_stop(&daemon);
}

static void test_runs_without_a_result(void **state)
{
	static const struct {
		const char *argv, *code, *message;
	} cases[] = {
		{"\"panic\"", "guest_lost",
			"the VM died during the run: the guest's kernel panicked: pvpanic"},
		{"\"die\",\"5\"", "guest_lost", "the VM died during the run: the guest's processor gave up"},
		{"\"die\",\"99\"", "guest_lost", "the VM died during the run: the vmm exited with status 99"},
		{"\"half\"", "guest_lost",
			"the VM died during the run: the guest's processor gave up: at the half of a frame"},
		{"\"close\"", "incomplete",
			"no result, and the VM was destroyed: the guest ended the session's stream without a "
			"result"},
		{"\"refuse\"", "attach_failed", "the guest refused the command: not now"},
	};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		run_argv(&daemon, cases[i].argv, &answer);
		assert_int_equal(answer.status, 502);
		assert_string_equal(error_member(&answer, "code"), cases[i].code);
		assert_string_equal(error_member(&answer, "message"), cases[i].message);
		answer_finish(&answer);
	}
	daemon_stop(&daemon);
}

static void test_host_keeps_the_deadline(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_command(&daemon, "{\"argv\":[\"sleep\"],\"timeout_ms\":1}", &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	answer_finish(&answer);
	await_pool(&daemon, "busy", 0);
	daemon_stop(&daemon);
}

static void test_a_vm_is_used_once(void **state)
{
	struct daemon daemon;
	struct answer first, second;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_argv(&daemon, "\"exit\",\"0\"", &first);
	await_pool(&daemon, "warm", 1);
	run_argv(&daemon, "\"exit\",\"0\"", &second);
	assert_string_not_equal(json_string_value(json_object_get(first.json, "vm")),
		json_string_value(json_object_get(second.json, "vm")));
	assert_true(json_is_true(json_object_get(first.json, "warm")));
	assert_int_equal(pool_number(&daemon, "claims_warm"), 2);
	answer_finish(&first);
	answer_finish(&second);
	daemon_stop(&daemon);
}

static void test_empty_pool_boots_on_demand(void **state)
{
	static char *const options[] = {"--pool", "0", "--rehearsals", "0", NULL};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", options);
	run_argv(&daemon, "\"echo\",\"cold\"", &answer);
	assert_int_equal(answer.status, 200);
	assert_true(json_is_false(json_object_get(answer.json, "warm")));
	answer_finish(&answer);
	assert_int_equal(pool_number(&daemon, "claims_waited"), 1);
	assert_int_equal(pool_number(&daemon, "warm"), 0);
	daemon_stop(&daemon);
}

/* One VM at a time, one place in the queue: the third run is refused, the first two are not disturbed. */
static void test_exhausted(void **state)
{
	static char *const options[] = {"--pool", "1", "--max-vms", "1", "--queue-max", "1", NULL};
	const char *body = "{\"argv\":[\"started-sleep\"]}";
	struct daemon daemon;
	struct answer answer;
	int busy, queued;

	(void)state;
	daemon_start(&daemon, "boot", options);
	busy = client_open(&daemon);
	client_request(busy, "POST", "/v1/run", "", body);
	await_pool(&daemon, "busy", 1);
	queued = client_open(&daemon);
	client_request(queued, "POST", "/v1/run", "", "{\"argv\":[\"echo\",\"queued\"]}");
	await_pool(&daemon, "queued", 1);
	run_command(&daemon, body, &answer);
	assert_int_equal(answer.status, 429);
	assert_string_equal(error_member(&answer, "code"), "exhausted");
	assert_true(json_is_true(json_object_get(json_object_get(answer.json, "error"), "retryable")));
	assert_string_equal(error_member(&answer, "message"),
		"no warm VM, and 1 runs wait already (--queue-max): try again later, or raise --pool");
	answer_finish(&answer);
	close(busy);
	client_answer(queued, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"queued\\n\",\"bytes\":7,\"dropped\":0}");
	answer_finish(&answer);
	close(queued);
	assert_int_equal(metric(&daemon, "tinderbox_errors_total{code=\"exhausted\"} "), 1);
	daemon_stop(&daemon);
}

static void test_clients_that_leave(void **state)
{
	static char *const options[] = {"--pool", "1", "--max-vms", "1", NULL};
	struct daemon daemon;
	int busy, queued;

	(void)state;
	daemon_start(&daemon, "boot", options);
	busy = client_open(&daemon);
	client_request(busy, "POST", "/v1/run", "", "{\"argv\":[\"started-sleep\"]}");
	await_pool(&daemon, "busy", 1);
	queued = client_open(&daemon);
	client_request(queued, "POST", "/v1/run", "", "{\"argv\":[\"started-sleep\"]}");
	await_pool(&daemon, "queued", 1);
	close(queued);
	await_pool(&daemon, "queued", 0);
	assert_int_equal(pool_number(&daemon, "busy"), 1);
	close(busy);
	await_pool(&daemon, "warm", 1);
	assert_int_equal(pool_number(&daemon, "busy"), 0);
	assert_int_equal(metric(&daemon, "tinderbox_clients_left_total "), 2);
	daemon_stop(&daemon);
}

/* Many at once on a small pool: they queue, and each gets its own answer. */
static void test_many_at_once(void **state)
{
	enum { MANY = 24 };
	static char *const options[] = {"--pool", "2", "--max-vms", "4", NULL};
	struct daemon daemon;
	struct answer answer;
	int clients[MANY];
	char body[64], wanted[64];

	(void)state;
	daemon_start(&daemon, "boot", options);
	for (int i = 0; i < MANY; i++) {
		clients[i] = client_open(&daemon);
		snprintf(body, sizeof body, "{\"argv\":[\"echo\",\"%02d\"]}", i);
		client_request(clients[i], "POST", "/v1/run", "", body);
	}
	for (int i = 0; i < MANY; i++) {
		client_answer(clients[i], &answer);
		assert_int_equal(answer.status, 200);
		snprintf(wanted, sizeof wanted, "{\"data\":\"%02d\\n\",\"bytes\":3,\"dropped\":0}", i);
		assert_string_equal(member(&answer, "stdout"), wanted);
		answer_finish(&answer);
		close(clients[i]);
	}
	assert_int_equal(metric(&daemon, "tinderbox_runs_total{result=\"exited\"} "), MANY);
	daemon_stop(&daemon);
}

static void test_starts_that_fail(void **state)
{
	static const struct {
		const char *script, *cause;
	} cases[] = {
		{"exit:1", "the VM could not be set up (vmm: fake vmm: told to exit)"},
		{"exit:2", "the vmm refused its command line (vmm: fake vmm: told to exit)"},
		{"hello-garbage", "the agent sent a malformed frame"},
		{"hello-version", "the agent speaks protocol 3, this daemon 2: rebuild the images"},
		{"identity-refused",
			"the agent could not take its identity: entropy: Operation not permitted"},
		{"no-connect", "no stream to the agent: Connection refused"},
		{"bad-status", "the vmm sent a status that is no error's"},
		{"sample-refused", "the agent refused the sample command"},
		{"sample-dies", "the guest's kernel panicked: in the sample command (is --initrd one with "
				"guest-init? "
				"`serve --serial-dir DIR` keeps what the guest said)"},
		{"sample-missing", "the sample command could not start: No such file or directory; is "
				   "--image a usable base?"},
		{"sample-status:127", "the sample command exited with status 127; is --image a usable base?"},
		{"sample-malformed", "the agent sent a malformed EXIT of the sample command"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct daemon daemon;
		struct answer answer;

		daemon_folder(&daemon);
		daemon_launch(&daemon, cases[i].script, pool_of_one, false);
		run_argv(&daemon, "\"exit\",\"0\"", &answer);
		assert_int_equal(answer.status, 503);
		assert_string_equal(error_member(&answer, "code"), "not_ready");
		assert_memory_equal(error_member(&answer, "message"), "no VM: the last ", 16);
		assert_string_equal(
			json_string_value(json_object_get(
				json_object_get(json_object_get(answer.json, "error"), "detail"), "cause")),
			cases[i].cause);
		answer_finish(&answer);
		call(&daemon, "GET", "/v1/healthz", NULL, &answer);
		assert_int_equal(answer.status, 503);
		assert_string_equal(json_string_value(json_object_get(answer.json, "status")), "unavailable");
		assert_string_equal(
			json_string_value(json_object_get(answer.json, "reason")), cases[i].cause);
		answer_finish(&answer);
		assert_true(pool_number(&daemon, "starts_failed") >= 1);
		daemon_stop(&daemon);
	}
}

static void test_guests_that_say_nothing(void **state)
{
	static char *const options[] = {"--pool", "1", "--boot-timeout-ms", "300", NULL};
	static const struct {
		const char *script, *cause;
	} cases[] = {
		{"silent",
			"not ready within 300 ms: still waiting for the vmm to answer on its control socket"},
		{"mute", "not ready within 300 ms: still waiting for the guest's agent to say hello"},
		{"sample-hangs", "not ready within 300 ms: still waiting for the sample command to end"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct daemon daemon;

		daemon_folder(&daemon);
		daemon_launch(&daemon, cases[i].script, options, false);
		await_failure(&daemon, cases[i].cause);
		daemon_stop(&daemon);
	}
}

/* A cause that goes away: the pool fills by itself. */
static void test_pool_recovers(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_folder(&daemon);
	daemon_launch(&daemon, "exit:1", pool_of_one, false);
	await_failure(&daemon, "the VM could not be set up (vmm: fake vmm: told to exit)");
	write_text(daemon.folder, "kernel", "boot");
	await_pool(&daemon, "warm", 1);
	expect_health(&daemon, 200, NULL);
	run_argv(&daemon, "\"exit\",\"7\"", &answer);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"exited\",\"code\":7}");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* What goes missing while the daemon runs. */
static void test_missing_files_are_named(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char path[96], wanted[192];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	snprintf(path, sizeof path, "%s/image", daemon.folder);
	snprintf(wanted, sizeof wanted, "cannot open the image %s: No such file or directory", path);
	unlink(path);
	run_argv(&daemon, "\"exit\",\"0\"", &answer);
	answer_finish(&answer);
	await_failure(&daemon, wanted);
	daemon_stop(&daemon);
}

static void test_warm_vms_that_are_lost(void **state)
{
	static const struct {
		const char *script, *cause;
	} cases[] = {
		{"warm-panic:0", "the guest's kernel panicked: while warm"},
		{"warm-write", "the guest wrote to its session stream while warm"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct daemon daemon;

		daemon_start(&daemon, cases[i].script, pool_of_one);
		await_failure(&daemon, cases[i].cause);
		assert_true(pool_number(&daemon, "warm_lost") >= 1);
		write_text(daemon.folder, "kernel", "boot");
		await_pool(&daemon, "warm", 1);
		assert_int_equal(pool_number(&daemon, "starts_failed"), 0);
		daemon_stop(&daemon);
	}
}

static void test_stop_in_mid_run(void **state)
{
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	fd = client_open(&daemon);
	client_request(fd, "POST", "/v1/run", "", "{\"argv\":[\"started-sleep\"]}");
	await_pool(&daemon, "busy", 1);
	daemon_stop(&daemon);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 502);
	assert_string_equal(error_member(&answer, "message"),
		"no result, and the VM was destroyed: the daemon is stopping");
	answer_finish(&answer);
	close(fd);
}

/* What the killed daemon left is gone before the next one serves; the pid in the lock is of the living one.
 */
/* Also when the terminal that it was started from is closed. */
static void test_stops_by_each_signal(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

	(void)state;
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
		char *const options[] = {"--pool", "1", NULL};
		struct daemon daemon;

		daemon_start(&daemon, "boot", options);
		daemon_stop_by(&daemon, signals[i]);
	}
}

static void test_killed_daemon_leaves_nothing_for_long(void **state)
{
	static char *const options[] = {"--pool", "3", NULL};
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", options);
	kill(daemon.pid, SIGKILL);
	assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 3);
	assert_int_equal(access(daemon.socket, F_OK), 0);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 1);
	assert_int_equal(metric(&daemon, "tinderbox_leftovers_removed_total "), 3);
	daemon_stop(&daemon);
}

static void test_second_daemon_is_refused(void **state)
{
	struct daemon daemon, second;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	second = daemon;
	second.pid = fork();
	if (second.pid == 0)
		daemon_child(&second, STDERR_FILENO, pool_of_one);
	assert_int_equal(daemon_wait(&second), 1);
	run_argv(&daemon, "\"exit\",\"0\"", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_results),
		cmocka_unit_test(test_output),
		cmocka_unit_test(test_long_output_keeps_head_and_tail),
		cmocka_unit_test(test_guests_that_break_the_protocol),
		cmocka_unit_test(test_runs_without_a_result),
		cmocka_unit_test(test_host_keeps_the_deadline),
		cmocka_unit_test(test_a_vm_is_used_once),
		cmocka_unit_test(test_empty_pool_boots_on_demand),
		cmocka_unit_test(test_exhausted),
		cmocka_unit_test(test_clients_that_leave),
		cmocka_unit_test(test_many_at_once),
		cmocka_unit_test(test_starts_that_fail),
		cmocka_unit_test(test_guests_that_say_nothing),
		cmocka_unit_test(test_pool_recovers),
		cmocka_unit_test(test_missing_files_are_named),
		cmocka_unit_test(test_warm_vms_that_are_lost),
		cmocka_unit_test(test_stop_in_mid_run),
		cmocka_unit_test(test_stops_by_each_signal),
		cmocka_unit_test(test_killed_daemon_leaves_nothing_for_long),
		cmocka_unit_test(test_second_daemon_is_refused),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
