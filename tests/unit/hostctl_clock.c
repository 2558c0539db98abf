/* SPDX-License-Identifier: Apache-2.0 */
/* A whole daemon whose wall clock is set back and forward: what it has promised for a time holds for that
 * time. */
#include "tests/unit/hostctl_sandboxes_fixture.h"

#include <sys/mman.h>

enum { DAY_S = 24 * 60 * 60, TTL_MS = 1500, SLACK_MS = 15000 };

static char *const pool_of_one[] = {"--pool", "1", NULL}, *const pool_of_two[] = {"--pool", "2", NULL};

/* Seconds that the daemon's clocks are ahead; in memory that it shares with the test. Timers are the
 * kernel's. */
struct shift {
	int64_t wall, monotonic;
};
static struct shift *ahead;

int __real_clock_gettime(clockid_t clock, struct timespec *now); /* NOLINT(bugprone-reserved-identifier) */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now); /* NOLINT(bugprone-reserved-identifier) */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) /* NOLINT(bugprone-reserved-identifier) */
{
	int status = __real_clock_gettime(clock, now);

	if (clock == CLOCK_REALTIME && ahead)
		now->tv_sec += ahead->wall;
	if (clock == CLOCK_MONOTONIC && ahead)
		now->tv_sec += ahead->monotonic;
	return status;
}

static void set_clock(int64_t seconds)
{
	ahead->wall = seconds;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int share_clock(void **state)
{
	(void)state;
	ahead = mmap(NULL, sizeof *ahead, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return ahead == MAP_FAILED;
}

static int reset_clock(void **state)
{
	(void)state;
	*ahead = (struct shift){0};
	return 0;
}

static void kill_daemon(struct daemon *daemon)
{
	kill(daemon->pid, SIGKILL);
	assert_int_equal(daemon_wait(daemon), 128 + SIGKILL);
}

static const int64_t steps[] = {-2 * DAY_S, 2 * DAY_S};

/* One with a short time ends by it, one with a long time does not. */
static void test_times_of_sandboxes(void **state)
{
	char brief[32], idle[32], lasting[32];
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		long start = now_ms();

		set_clock(0);
		create_sandbox(&daemon,
			"{\"ttl_ms\":86400000,\"idle\":{\"after_ms\":86400000,\"action\":\"kill\"}}",
			lasting);
		create_sandbox(&daemon, "{\"ttl_ms\":1500}", brief);
		create_sandbox(&daemon, "{\"idle\":{\"after_ms\":1500,\"action\":\"kill\"}}", idle);
		set_clock(steps[i]);
		await_state(&daemon, brief, "gone");
		assert_in_range(now_ms() - start, TTL_MS, TTL_MS + SLACK_MS);
		await_state(&daemon, idle, "gone");
		assert_in_range(now_ms() - start, TTL_MS, TTL_MS + SLACK_MS);
		await_state(&daemon, lasting, "ready");
		delete_sandbox(&daemon, lasting);
	}
	daemon_stop(&daemon);
}

/* Across the daemon's end, too. */
static void test_times_of_sandboxes_taken_back(void **state)
{
	char brief[32], lasting[32];
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_two);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		long start = now_ms();

		set_clock(0);
		create_sandbox(&daemon, "{\"ttl_ms\":86400000}", lasting);
		create_sandbox(&daemon, "{\"ttl_ms\":4000}", brief);
		set_clock(steps[i]);
		kill_daemon(&daemon);
		daemon_launch(&daemon, "boot", pool_of_two, true);
		await_state(&daemon, lasting, "ready");
		await_state(&daemon, brief, "gone");
		assert_in_range(now_ms() - start, 4000, 4000 + SLACK_MS);
		await_state(&daemon, lasting, "ready");
		delete_sandbox(&daemon, lasting);
	}
	daemon_stop(&daemon);
}

static void create_command(const struct daemon *daemon, const char *id, char command[32], char token[256])
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/commands", "{\"argv\":[\"exit\",\"4\"]}", &answer);
	assert_int_equal(answer.status, 201);
	snprintf(command, 32, "%s", json_string_value(json_object_get(answer.json, "id")));
	snprintf(token, 256, "{\"token\":\"%s\"}",
		json_string_value(json_object_get(answer.json, "attach_token")));
	answer_finish(&answer);
}

static void test_tokens_and_deadlines(void **state)
{
	char path[SANDBOX_PATH_MAX], body[256], id[32], command[32], head[2048];
	struct daemon daemon;
	struct answer answer;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		set_clock(0);
		create_command(&daemon, id, command, body);
		set_clock(steps[i]);
		snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/attach", id, command);
		assert_int_equal(open_stream_at(&daemon, &stream, path, body, head), 101);
		expect(&stream, AGENT_STARTED);
		expect_exit(&stream, AGENT_EXITED, 4);
		/* A deadline that the host has to keep. */
		set_clock(0);
		await_pool(&daemon, "warm", 1);
		run_command(&daemon, "{\"argv\":[\"started-sleep\"],\"timeout_ms\":100}", &answer);
		assert_string_equal(member(&answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
		answer_finish(&answer);
	}
	daemon_stop(&daemon);
}

static void test_a_token_expires(void **state)
{
	char path[SANDBOX_PATH_MAX], token[256], id[32], command[32], wanted[192];
	struct daemon daemon;
	struct answer answer;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	create_command(&daemon, id, command, token);
	ahead->monotonic = 61;
	snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/attach", id, command);
	fd = client_open(&daemon);
	client_request(fd, "POST", path, UPGRADE, token);
	client_answer(fd, &answer);
	close(fd);
	snprintf(wanted, sizeof wanted,
		"the token has expired: POST /v1/sandboxes/%s/commands/%s/token makes another", id, command);
	expect_error_answer(&answer, 403, "denied", wanted);
	daemon_stop(&daemon);
}

static void run_with_key(const struct daemon *daemon, struct answer *answer)
{
	int fd = client_open(daemon);

	client_request(fd, "POST", "/v1/run", "Idempotency-Key: a\r\n", "{\"argv\":[\"exit\",\"3\"]}");
	client_answer(fd, answer);
	close(fd);
	assert_int_equal(answer->status, 200);
}

/* The same run's, by its VM and its times. */
static void expect_replay(const struct daemon *daemon, const struct answer *first)
{
	struct answer answer;

	run_with_key(daemon, &answer);
	assert_string_equal(answer.body, first->body);
	answer_finish(&answer);
}

static void test_keys(void **state)
{
	struct answer first;
	struct daemon daemon;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	run_with_key(&daemon, &first);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		set_clock(steps[i]);
		expect_replay(&daemon, &first);
		kill_daemon(&daemon);
		daemon_launch(&daemon, "boot", pool_of_one, true);
		expect_replay(&daemon, &first);
	}
	answer_finish(&first);
	daemon_stop(&daemon);
}

/* Their order is their number's, whatever their times say. */
static void test_events(void **state)
{
	struct daemon daemon;
	struct stream stream = {.fd = -1};
	json_int_t last = 0;
	char id[32], head[2048];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	stream.fd = client_open(&daemon);
	assert_int_equal(frame_reader_init(&stream.reader, AGENT_FRAME_MAX), 0);
	client_request(stream.fd, "GET", "/v1/events", UPGRADE, NULL);
	assert_int_equal(client_read_head(stream.fd, head, sizeof head), 101);
	create_sandbox(&daemon, "{}", id);
	set_clock(-DAY_S);
	delete_sandbox(&daemon, id);
	for (const char *state_now = ""; strcmp(state_now, "gone") != 0;) {
		json_t *event;

		expect(&stream, AGENT_HOST_EVENT);
		event = json_loadb((const char *)stream.frame.payload, stream.frame.length, 0, NULL);
		assert_int_equal(json_integer_value(json_object_get(event, "seq")), last + 1);
		last++;
		state_now = strcmp(json_string_value(json_object_get(event, "state")), "gone") ? "" : "gone";
		json_decref(event);
	}
	assert_in_range(last, 3, 4);
	close_stream(&stream);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_times_of_sandboxes, reset_clock),
		cmocka_unit_test_teardown(test_times_of_sandboxes_taken_back, reset_clock),
		cmocka_unit_test_teardown(test_tokens_and_deadlines, reset_clock),
		cmocka_unit_test_teardown(test_a_token_expires, reset_clock),
		cmocka_unit_test_teardown(test_keys, reset_clock),
		cmocka_unit_test_teardown(test_events, reset_clock),
	};

	return cmocka_run_group_tests(tests, share_clock, NULL);
}
