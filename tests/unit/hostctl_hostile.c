/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon against a vmm that its guest has taken over: whatever that sends, writes or keeps open, its own
 * VM ends with the cause named, and the daemon goes on serving.
 */
#include "tests/unit/hostctl_fixture.h"

#include "host-ctl/vm/vm.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

/* A VM that boots so never becomes warm, and this is why. */
static void expect_failure(const char *script, const char *cause)
{
	struct daemon daemon;

	daemon_folder(&daemon);
	daemon_launch(&daemon, script, pool_of_one, false);
	await_failure(&daemon, cause);
	daemon_stop(&daemon);
}

static void test_fds_that_are_no_streams(void **state)
{
	(void)state;
	expect_failure("agent-file", "the vmm sent an fd that is no stream");
	expect_failure("agent-seqpacket", "the vmm sent an fd that is no stream");
}

/* Both hold the same open file, so that the vmm can make the daemon's end block at any time. */
static void test_a_stream_that_blocks(void **state)
{
	struct daemon daemon;
	int client;

	(void)state;
	daemon_start(&daemon, "boot unblock", pool_of_one);
	client = client_open(&daemon);
	client_request(client, "POST", "/v1/run", "", "{\"argv\":[\"started-sleep\"]}");
	await_pool(&daemon, "busy", 1);
	await_pool(&daemon, "warm", 1);
	close(client);
	await_pool(&daemon, "busy", 0);
	daemon_stop(&daemon);
}

static void test_streams_without_end(void **state)
{
	(void)state;
	expect_failure("strays", "the guest opened streams without end");
}

/* Whoever has no right to the agent's ports is no agent, whatever he says: he is not given the identity. */
static void test_a_program_that_poses_as_the_agent(void **state)
{
	static char *const options[] = {"--pool", "1", "--boot-timeout-ms", "300", NULL};
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot impostor", pool_of_one);
	expect_echo(&daemon);
	daemon_stop(&daemon);
	daemon_folder(&daemon);
	daemon_launch(&daemon, "boot agent-unprivileged", options, false);
	await_failure(&daemon,
		"not ready within 300 ms: still waiting for the guest's agent to say hello; who came to its "
		"port did not come from one of the agent's own: if the image or template is older than this "
		"daemon, make it anew");
	daemon_stop(&daemon);
}

/* The end of the process is not the end of what it wrote: its children go on. */
static void test_children_that_go_on_writing(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon_launch(&daemon, "children-write", pool_of_one, false);
	for (long failed = 0; failed < 2;
		failed = metric(&daemon, "tinderbox_vm_start_failures_total{template=\"base\"} "))
		sleep_ms(POLL_MS);
	succeed(&daemon, "GET", "/v1/pool", NULL);
	daemon_stop(&daemon);
}

static int count_lines(const char *path, const char *part)
{
	char line[1024];
	FILE *file = fopen(path, "re");
	int count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		count += strstr(line, part) != NULL;
	fclose(file);
	return count;
}

static void test_warnings_without_end(void **state)
{
	struct daemon daemon;
	char path[80];
	int log, before = dup(STDERR_FILENO);

	(void)state;
	daemon_folder(&daemon);
	snprintf(path, sizeof path, "%s/log", daemon.folder);
	log = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(log >= 0 && before >= 0);
	assert_int_equal(setenv("TINDERBOX_TEST_LOG", "1", 1), 0);
	dup2(log, STDERR_FILENO);
	daemon_launch(&daemon, "boot hello-lines", pool_of_one, true);
	dup2(before, STDERR_FILENO);
	unsetenv("TINDERBOX_TEST_LOG");
	close(log);
	close(before);
	assert_int_equal(count_lines(path, ": guest: "), VM_WARNINGS_MAX);
	assert_int_equal(count_lines(path, "the guest has more to say"), 1);
	daemon_stop(&daemon);
}

/* The log of a serial port fills up; the VM does not end for it. The vmm is told the bound, which is the
 * log's own: that of files is a disk's where there is one. */
static void test_a_serial_log_without_end(void **state)
{
	static const char bound[] = "--serial-max\0004194304";
	char serial[64], path[512];
	char *const options[] = {"--pool", "1", "--serial-dir", serial, NULL};
	struct daemon daemon;
	struct dirent *entry;
	struct stat status;
	DIR *listing;
	int logs = 0;

	(void)state;
	snprintf(serial, sizeof serial, "/tmp/tinderbox-unit.XXXXXX");
	assert_non_null(mkdtemp(serial));
	daemon_start(&daemon, "boot serial-flood", options);
	listing = opendir(serial);
	assert_non_null(listing);
	while ((entry = readdir(listing))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", serial, entry->d_name);
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(status.st_size, VM_SERIAL_MAX);
		logs++;
	}
	closedir(listing);
	assert_int_equal(logs, 1);
	assert_int_equal(VM_SERIAL_MAX, 4194304);
	assert_int_equal(count_vmms(&daemon, bound, sizeof bound), 1);
	daemon_stop(&daemon);
	remove_folder(serial);
}

/* A guest that does not say STARTED, with no deadline and with a late one; the third one has said so. */
static void test_commands_that_are_not_answered(void **state)
{
	static char *const options[] = {"--pool", "3", NULL};
	static const char *const bodies[] = {"{\"argv\":[\"sleep\"]}",
		"{\"argv\":[\"sleep\"],\"timeout_ms\":60000}",
		"{\"argv\":[\"started-sleep\"],\"timeout_ms\":9000}"};
	struct daemon daemon;
	struct answer answer;
	int clients[3];

	(void)state;
	daemon_start(&daemon, "boot", options);
	for (int i = 0; i < 3; i++) {
		clients[i] = client_open(&daemon);
		client_request(clients[i], "POST", "/v1/run", "", bodies[i]);
	}
	for (int i = 0; i < 2; i++) {
		client_answer(clients[i], &answer);
		assert_int_equal(answer.status, 502);
		assert_string_equal(error_member(&answer, "code"), "incomplete");
		assert_string_equal(error_member(&answer, "message"),
			"the guest did not answer the command within 10 s; its VM was destroyed. The command "
			"may have run");
		answer_finish(&answer);
		close(clients[i]);
	}
	client_answer(clients[2], &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	answer_finish(&answer);
	close(clients[2]);
	await_pool(&daemon, "busy", 0);
	daemon_stop(&daemon);
}

static void test_system_calls(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot calls", pool_of_one);
	assert_int_equal(metric(&daemon, "tinderbox_vm_start_failures_total{template=\"base\"} "), 0);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fds_that_are_no_streams),
		cmocka_unit_test(test_a_stream_that_blocks),
		cmocka_unit_test(test_streams_without_end),
		cmocka_unit_test(test_a_program_that_poses_as_the_agent),
		cmocka_unit_test(test_children_that_go_on_writing),
		cmocka_unit_test(test_warnings_without_end),
		cmocka_unit_test(test_commands_that_are_not_answered),
		cmocka_unit_test(test_system_calls),
		cmocka_unit_test(test_a_serial_log_without_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
