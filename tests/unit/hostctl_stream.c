/* SPDX-License-Identifier: Apache-2.0 */
/* The upgraded form of a run against a whole daemon with a vmm that plays its guests. */
#include "tests/unit/hostctl_stream_fixture.h"

#include "host-ctl/api/api_stream.h"

#include <poll.h>

static char *const pool_of_one[] = {"--pool", "1", NULL};

static int open_stream(const struct daemon *daemon, struct stream *stream, const char *body)
{
	char head[2048];
	int status = open_stream_at(daemon, stream, "/v1/run", body, head);

	if (status == 101)
		assert_non_null(strstr(head, "Tinderbox-VM: vm-"));
	return status;
}

static void test_output_and_exit(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"both\"]}"), 101);
	expect(&stream, AGENT_STARTED);
	expect_output(&stream, AGENT_STDOUT, 0, "out\n");
	expect_output(&stream, AGENT_STDERR, 0, "err\n");
	expect_exit(&stream, AGENT_EXITED, 0);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"cat\"],\"stdin\":\"given\"}"), 101);
	expect(&stream, AGENT_STARTED);
	expect_output(&stream, AGENT_STDOUT, 0, "given");
	expect(&stream, AGENT_STDIN_CREDIT);
	expect_exit(&stream, AGENT_EXITED, 0);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"no-such-command\"]}"), 101);
	expect_exit(&stream, AGENT_FAILED_TO_START, ENOENT);
	daemon_stop(&daemon);
}

/* 2 MiB through cat, never more on the way than the credit allows; the bytes come back as they went. */
static void test_stdin_within_credit(void **state)
{
	enum { TOTAL = 2 * 1024 * 1024, PART = 48 * 1024 };
	struct daemon daemon;
	struct stream stream;
	size_t sent = 0, got = 0, credit = AGENT_STDIN_WINDOW;
	uint8_t *data = malloc(TOTAL);
	struct agent_credit more;

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < TOTAL; i++)
		data[i] = (uint8_t)(i * 7 + i / 1000);
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"cat\"],\"stdin_stream\":true}"), 101);
	expect(&stream, AGENT_STARTED);
	while (got < TOTAL) {
		while (sent < TOTAL && credit >= PART) {
			size_t part = TOTAL - sent < PART ? TOTAL - sent : PART;

			send_frame(&stream, AGENT_STDIN, data + sent, part);
			sent += part;
			credit -= part;
		}
		assert_true(next_frame(&stream));
		if (stream.frame.type == AGENT_STDIN_CREDIT) {
			memcpy(&more, stream.frame.payload, sizeof more);
			credit += more.bytes;
			continue;
		}
		assert_int_equal(stream.frame.type, AGENT_STDOUT);
		assert_memory_equal(stream.frame.payload + 8, data + got, stream.frame.length - 8);
		got += stream.frame.length - 8;
	}
	send_frame(&stream, AGENT_STDIN_EOF, NULL, 0);
	expect(&stream, AGENT_STDIN_CREDIT);
	expect_exit(&stream, AGENT_EXITED, 0);
	free(data);
	daemon_stop(&daemon);
}

/* Frames that each read of one turn brings half of, until its last empties the socket: no event tells of that
 * one's. */
static void test_stdin_that_comes_in_one_burst(void **state)
{
	enum { PART = 8192, TOTAL = API_STREAM_READS_PER_TURN * PART };
	static uint8_t burst[API_STREAM_READS_PER_TURN * (AGENT_FRAME_HEADER + PART)];
	const struct agent_frame_header header = {.length = PART, .type = AGENT_STDIN};
	struct daemon daemon;
	struct stream stream;
	size_t got = 0;

	(void)state;
	for (int i = 0; i < API_STREAM_READS_PER_TURN; i++)
		memcpy(burst + (size_t)i * (sizeof header + PART), &header, sizeof header);
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"cat\"],\"stdin_stream\":true}"), 101);
	expect(&stream, AGENT_STARTED);
	/* All of it is there before the first of it is read. */
	assert_int_equal(kill(daemon.pid, SIGSTOP), 0);
	client_send(stream.fd, burst, sizeof burst);
	assert_int_equal(kill(daemon.pid, SIGCONT), 0);
	while (got < TOTAL) {
		assert_true(next_frame(&stream));
		if (stream.frame.type == AGENT_STDOUT)
			got += stream.frame.length - sizeof(struct agent_output);
	}
	assert_int_equal(got, TOTAL);
	close_stream(&stream);
	await_pool(&daemon, "busy", 0);
	daemon_stop(&daemon);
}

static void test_kill_and_signal(void **state)
{
	const struct agent_signal term = {.signal = SIGTERM};
	const struct agent_resize size = {.rows = 25, .cols = 80};
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_STARTED);
	send_frame(&stream, AGENT_KILL, NULL, 0);
	expect_exit(&stream, AGENT_KILLED, 0);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_STARTED);
	send_frame(&stream, AGENT_RESIZE, &size, sizeof size);
	send_frame(&stream, AGENT_SIGNAL, &term, sizeof term);
	expect_exit(&stream, AGENT_SIGNALLED, SIGTERM);
	daemon_stop(&daemon);
}

/* Frames that come right behind the request are not lost. */
static void test_frames_sent_with_the_request(void **state)
{
	const char *body = "{\"argv\":[\"cat\"],\"stdin_stream\":true}";
	struct agent_frame_header header = {.length = 2, .type = AGENT_STDIN},
				  eof = {.type = AGENT_STDIN_EOF};
	struct daemon daemon;
	struct stream stream;
	char request[512], head[2048];
	int length;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	stream.fd = client_open(&daemon);
	assert_int_equal(frame_reader_init(&stream.reader, AGENT_FRAME_MAX), 0);
	length = snprintf(request, sizeof request,
		"POST /v1/run HTTP/1.1\r\nHost: x\r\n" UPGRADE "Content-Length: %zu\r\n\r\n%s", strlen(body),
		body);
	memcpy(request + length, &header, sizeof header);
	request[length + 8] = 'h';
	request[length + 9] = 'i';
	memcpy(request + length + 10, &eof, sizeof eof);
	client_send(stream.fd, request, (size_t)length + 18);
	assert_int_equal(client_read_head(stream.fd, head, sizeof head), 101);
	expect(&stream, AGENT_STARTED);
	expect_output(&stream, AGENT_STDOUT, 0, "hi");
	expect(&stream, AGENT_STDIN_CREDIT);
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

/* A fault right behind the request is found while libmicrohttpd still hands the connection over. */
static void test_fault_sent_with_the_request(void **state)
{
	const char *body = "{\"argv\":[\"started-sleep\"]}";
	struct agent_frame_header header = {.length = AGENT_FRAME_MAX + 1, .type = AGENT_STDIN};
	struct daemon daemon;
	struct stream stream;
	char request[512], head[2048];
	struct pollfd end;
	int length;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	stream.fd = client_open(&daemon);
	assert_int_equal(frame_reader_init(&stream.reader, AGENT_FRAME_MAX), 0);
	length = snprintf(request, sizeof request,
		"POST /v1/run HTTP/1.1\r\nHost: x\r\n" UPGRADE "Content-Length: %zu\r\n\r\n%s", strlen(body),
		body);
	memcpy(request + length, &header, sizeof header);
	client_send(stream.fd, request, (size_t)length + sizeof header);
	assert_int_equal(client_read_head(stream.fd, head, sizeof head), 101);
	expect(&stream, AGENT_HOST_ERROR);
	end = (struct pollfd){.fd = stream.fd, .events = POLLIN};
	assert_int_equal(poll(&end, 1, 5000), 1);
	expect_end(&stream);
	daemon_stop(&daemon);
}

static void test_refusals_before_the_claim_are_http(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[]}"), 400);
	close_stream(&stream);
	assert_int_equal(pool_number(&daemon, "warm"), 1);
	daemon_stop(&daemon);
}

static void test_runs_without_a_result(void **state)
{
	static const struct {
		const char *body, *code, *message;
	} cases[] = {
		{"{\"argv\":[\"panic\"]}", "guest_lost",
			"the VM died during the run: the guest's kernel panicked: pvpanic"},
		{"{\"argv\":[\"close\"]}", "incomplete",
			"no result, and the VM was destroyed: the guest ended the session's stream without a "
			"result"},
		{"{\"argv\":[\"bad-offset\"]}", "incomplete",
			"no result: the guest broke the agent protocol (output at a wrong offset); its VM "
			"was "
			"destroyed"},
	};
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct stream stream;

		assert_int_equal(open_stream(&daemon, &stream, cases[i].body), 101);
		expect(&stream, AGENT_STARTED);
		expect_error(&stream, cases[i].code, cases[i].message);
	}
	daemon_stop(&daemon);
}

/* Each fault of the client's costs it its run, and nobody else anything. */
static void test_clients_that_break_the_protocol(void **state)
{
	static const uint8_t zeros[16];
	static const struct {
		int type;
		size_t length;
		const char *fault;
	} cases[] = {
		{AGENT_STDOUT, 9, "a frame of a type that a client does not send"},
		{AGENT_SIGNAL, 7, "SIGNAL of a wrong length"},
		{AGENT_SIGNAL, 8, "SIGNAL with a number out of range"},
		{AGENT_STDIN, 0, "STDIN after the end of stdin, or in a run without stdin_stream"},
		{AGENT_STDIN, 1, "STDIN after the end of stdin, or in a run without stdin_stream"},
		{AGENT_KILL, 1, "KILL with a payload"},
		{AGENT_STDIN_EOF, 1, "STDIN_EOF with a payload"},
		{AGENT_RESIZE, 1, "RESIZE of a wrong length"},
	};
	struct daemon daemon;
	struct stream stream;
	char message[256];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"started-sleep\"]}"), 101);
		expect(&stream, AGENT_STARTED);
		send_frame(&stream, cases[i].type, zeros, cases[i].length);
		snprintf(message, sizeof message, "the client broke the frame protocol: %s", cases[i].fault);
		expect_error(&stream, "invalid", message);
	}
	await_pool(&daemon, "busy", 0);
	daemon_stop(&daemon);
}

static void test_stdin_beyond_credit(void **state)
{
	static const uint8_t data[AGENT_DATA_MAX];
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"sleep\"],\"stdin_stream\":true}"), 101);
	for (int i = 0; i < AGENT_STDIN_WINDOW / AGENT_DATA_MAX; i++) {
		struct agent_frame_header header = {.length = AGENT_DATA_MAX, .type = AGENT_STDIN};

		client_send(stream.fd, &header, sizeof header);
		client_send(stream.fd, data, sizeof data);
	}
	send_frame(&stream, AGENT_STDIN, data, 1);
	expect_error(&stream, "invalid",
		"the client broke the frame protocol: STDIN beyond the credit that STDIN_CREDIT frames gave");
	daemon_stop(&daemon);
}

static void test_client_that_leaves(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_STARTED);
	assert_int_equal(pool_number(&daemon, "busy"), 1);
	close_stream(&stream);
	await_pool(&daemon, "busy", 0);
	assert_int_equal(metric(&daemon, "tinderbox_clients_left_total "), 1);
	/* A half-closed connection counts as left. */
	await_pool(&daemon, "warm", 1);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_STARTED);
	shutdown(stream.fd, SHUT_WR);
	await_pool(&daemon, "busy", 0);
	close_stream(&stream);
	daemon_stop(&daemon);
}

/* A client that does not read holds its own VM only; when it reads, all bytes are there. */
static void test_slow_reader(void **state)
{
	enum { TOTAL = 20 * 1000 * 1000 };
	static char *const options[] = {"--pool", "2", NULL};
	struct daemon daemon;
	struct stream stream;
	size_t got = 0;

	(void)state;
	daemon_start(&daemon, "boot", options);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"flood\",\"20000000\"]}"), 101);
	for (int i = 0; i < 10; i++) {
		succeed(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\",\"hi\"]}");
	}
	await_pool(&daemon, "busy", 1);
	expect(&stream, AGENT_STARTED);
	while (got < TOTAL) {
		const uint8_t *data;

		expect(&stream, AGENT_STDOUT);
		data = stream.frame.payload + 8;
		for (size_t i = 0; i < stream.frame.length - 8; i++)
			if (data[i] != 'a' + (got + i) % (32 * 1024) % 26)
				fail_msg("byte %zu differs", got + i);
		got += stream.frame.length - 8;
	}
	assert_int_equal(got, TOTAL);
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

/* The VM of a client that does not read dies: no spin, no hang, and the client learns it after the output. */
/* More small frames than the client's queue holds, and a client that lets it fill up. */
static void test_frames_of_one_byte(void **state)
{
	enum { FRAMES = 60000 };
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"dribble\",\"60000\"]}"), 101);
	sleep_ms(200);
	expect(&stream, AGENT_STARTED);
	for (uint64_t i = 0; i < FRAMES; i++)
		expect_output(&stream, AGENT_STDOUT, i, "x");
	expect_exit(&stream, AGENT_EXITED, 0);
	daemon_stop(&daemon);
}

static void test_vm_dies_behind_a_slow_reader(void **state)
{
	struct daemon daemon;
	struct stream stream;
	struct answer answer;
	long pid;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"flood\",\"9000000\"]}"), 101);
	await_pool(&daemon, "busy", 1);
	call(&daemon, "GET", "/v1/pool", NULL, &answer);
	pid = 0;
	for (size_t i = 0; i < json_array_size(json_object_get(answer.json, "vms")); i++) {
		json_t *vm = json_array_get(json_object_get(answer.json, "vms"), i);

		if (!strcmp(json_string_value(json_object_get(vm, "state")), "busy"))
			pid = (long)json_integer_value(json_object_get(vm, "pid"));
	}
	answer_finish(&answer);
	assert_true(pid > 0);
	/* Until the queues on the way are full. */
	sleep_ms(300);
	kill((pid_t)pid, SIGKILL);
	await_pool(&daemon, "busy", 0);
	expect(&stream, AGENT_STARTED);
	do
		assert_true(next_frame(&stream));
	while (stream.frame.type == AGENT_STDOUT);
	assert_int_equal(stream.frame.type, AGENT_HOST_ERROR);
	assert_non_null(memmem(stream.frame.payload, stream.frame.length, "guest_lost", 10));
	assert_non_null(memmem(stream.frame.payload, stream.frame.length, "killed by signal 9 (Killed)", 27));
	expect_end(&stream);
	daemon_stop(&daemon);
}

static void test_stop_tells_the_client(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(open_stream(&daemon, &stream, "{\"argv\":[\"started-sleep\"]}"), 101);
	expect(&stream, AGENT_STARTED);
	daemon_stop(&daemon);
	expect_error(&stream, "incomplete", "no result, and the VM was destroyed: the daemon is stopping");
}

static void test_deadline_by_host(void **state)
{
	struct daemon daemon;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	assert_int_equal(
		open_stream(&daemon, &stream, "{\"argv\":[\"started-sleep\"],\"timeout_ms\":1}"), 101);
	expect(&stream, AGENT_STARTED);
	expect_exit(&stream, AGENT_TIMED_OUT, 0);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_output_and_exit),
		cmocka_unit_test(test_stdin_within_credit),
		cmocka_unit_test(test_stdin_that_comes_in_one_burst),
		cmocka_unit_test(test_kill_and_signal),
		cmocka_unit_test(test_frames_sent_with_the_request),
		cmocka_unit_test(test_fault_sent_with_the_request),
		cmocka_unit_test(test_refusals_before_the_claim_are_http),
		cmocka_unit_test(test_runs_without_a_result),
		cmocka_unit_test(test_clients_that_break_the_protocol),
		cmocka_unit_test(test_stdin_beyond_credit),
		cmocka_unit_test(test_client_that_leaves),
		cmocka_unit_test(test_slow_reader),
		cmocka_unit_test(test_frames_of_one_byte),
		cmocka_unit_test(test_vm_dies_behind_a_slow_reader),
		cmocka_unit_test(test_stop_tells_the_client),
		cmocka_unit_test(test_deadline_by_host),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
