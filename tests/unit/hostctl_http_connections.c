/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that hold connections: slow, idle, half-closed, deaf, and too many of one user. */
#include "tests/unit/hostctl_stream_fixture.h"

#include "host-ctl/http/http_connections.h"
#include <sys/resource.h>

enum {
	USER = 4711,
	OTHER_USER = 4712,
	FLOOD = 2000,
	LIMIT_MS = 800,
	LATE_MS = LIMIT_MS + 2 * LIMIT_MS / HTTP_LOOKS, /* by then, with a look before it and one after */
	TRICKLE_MS = 20,
	SLACK_MS = 5000, /* of a busy machine */
	IDLE_MS = 500,
};

static char *const plain[] = {"--pool", "1", NULL}, *const hasty[] = {"--pool", "1", "--client-timeout-ms",
							    "800", NULL};

/* --- as whom --- */

/* The socket's group is ours, and stays. */
static int connect_as(const struct daemon *daemon, uid_t uid)
{
	int fd;

	assert_int_equal(seteuid(uid), 0);
	fd = unix_connect(daemon->socket, SOCK_STREAM);
	assert_int_equal(seteuid(0), 0);
	return fd;
}

/* Waits while the backlog is full. */
static int client_open_as(const struct daemon *daemon, uid_t uid)
{
	const struct timeval limit = {.tv_sec = WAIT_MS / 1000};
	int fd = connect_as(daemon, uid);

	for (int waited = 0; fd == -EAGAIN && waited < WAIT_MS; waited += POLL_MS) {
		sleep_ms(POLL_MS);
		fd = connect_as(daemon, uid);
	}
	assert_true(fd >= 0);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

static void let_users_in(const struct daemon *daemon)
{
	assert_int_equal(chmod(daemon->folder, 0711), 0);
}

static void expect_served(int fd)
{
	struct answer answer;

	client_request(fd, "GET", "/v1/healthz", "", NULL);
	client_answer(fd, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
}

static void expect_served_anew(const struct daemon *daemon)
{
	int fd = client_open_as(daemon, 0);

	expect_served(fd);
	close(fd);
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Whether the daemon has closed it by then; what it answered before is left. */
static bool is_closed(int fd, int milliseconds)
{
	struct pollfd wait = {.fd = fd, .events = POLLRDHUP};

	return poll(&wait, 1, milliseconds) == 1;
}

static int fds_of(const struct daemon *daemon)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/fd", (int)daemon->pid);
	return count_entries(path, "") - 2;
}

/* --- places --- */

/* One user's cost that user's oldest, and nobody else anything. */
static void test_thousands_of_idle_connections(void **state)
{
	static int flood[FLOOD];
	struct daemon daemon;
	int kept, before, closed = 0;

	(void)state;
	daemon_start(&daemon, "boot", plain);
	let_users_in(&daemon);
	before = fds_of(&daemon);
	kept = client_open(&daemon);
	expect_served(kept);
	for (int i = 0; i < FLOOD; i++) {
		flood[i] = client_open_as(&daemon, USER);
		if (i % 100 == 99)
			expect_served_anew(&daemon);
	}
	expect_served(kept);
	expect_served(flood[FLOOD - 1]);
	assert_true(fds_of(&daemon) <= before + HTTP_CONNECTIONS_MAX);
	for (int i = 0; i < FLOOD; i++) {
		bool gone = is_closed(flood[i], 0);

		closed += gone;
		/* Those that stay are the last ones. */
		assert_true(gone == (closed == i + 1));
	}
	assert_true(closed >= FLOOD - HTTP_CONNECTIONS_MAX);
	for (int i = 0; i < FLOOD; i++)
		close(flood[i]);
	expect_served(kept);
	close(kept);
	daemon_stop(&daemon);
}

/* A request that is being sent gives way like an idle connection, after these. */
static void test_half_requests_give_way(void **state)
{
	static int flood[HTTP_CONNECTIONS_MAX];
	struct daemon daemon;
	int kept;

	(void)state;
	daemon_start(&daemon, "boot", plain);
	let_users_in(&daemon);
	kept = client_open(&daemon);
	expect_served(kept);
	for (int i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
		flood[i] = client_open_as(&daemon, USER);
		client_send_text(
			flood[i], "POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
	}
	expect_served_anew(&daemon);
	expect_served(kept);
	for (int i = 0; i < HTTP_CONNECTIONS_MAX; i++)
		close(flood[i]);
	close(kept);
	daemon_stop(&daemon);
}

/* A stream that stays, as this user; or the refusal. */
static int follow_events(const struct daemon *daemon, uid_t uid, struct answer *refusal)
{
	static const char switched[] = "HTTP/1.1 101";
	char head[2048] = "";
	int fd = client_open_as(daemon, uid);

	client_request(fd, "GET", "/v1/events", UPGRADE, NULL);
	assert_true(recv(fd, head, sizeof switched - 1, MSG_PEEK | MSG_WAITALL) > 0);
	if (!strcmp(head, switched)) {
		client_read_head(fd, head, sizeof head);
		return fd;
	}
	client_answer(fd, refusal);
	close(fd);
	return -1;
}

/* As many as there are for one user; the next is refused. */
static int follow_all(const struct daemon *daemon, uid_t uid, int *fds, const char *message)
{
	struct answer answer = {0};
	int count = 0;

	while (count < HTTP_CONNECTIONS_MAX && (fds[count] = follow_events(daemon, uid, &answer)) >= 0)
		count++;
	assert_int_equal(answer.status, 429);
	assert_string_equal(error_member(&answer, "code"), "exhausted");
	assert_string_equal(error_member(&answer, "message"), message);
	answer_finish(&answer);
	return count;
}

/* Waits until there is a place. */
static int await_place(const struct daemon *daemon, uid_t uid)
{
	int fd = -1;

	for (int waited = 0; fd < 0 && waited < WAIT_MS; waited += POLL_MS) {
		struct answer answer = {0};

		fd = follow_events(daemon, uid, &answer);
		answer_finish(&answer);
		sleep_ms(fd < 0 ? POLL_MS : 0);
	}
	assert_true(fd >= 0);
	return fd;
}

static void test_one_users_share(void **state)
{
	static int one[HTTP_CONNECTIONS_MAX], two[HTTP_CONNECTIONS_MAX];
	struct daemon daemon;
	int ones, twos;

	(void)state;
	daemon_start(&daemon, "boot", plain);
	let_users_in(&daemon);
	ones = follow_all(&daemon, USER, one,
		"uid 4711 has 256 requests and streams under way, of 512 that there may be of all: let some "
		"end");
	assert_int_equal(ones, HTTP_CONNECTIONS_MAX / 2);
	twos = follow_all(&daemon, OTHER_USER, two,
		"uid 4712 has 128 requests and streams under way, of 512 that there may be of all: let some "
		"end");
	assert_int_equal(twos, HTTP_CONNECTIONS_MAX / 4);
	expect_served_anew(&daemon);
	expect_echo(&daemon);
	close(two[twos - 1]);
	two[twos - 1] = await_place(&daemon, OTHER_USER);
	while (ones)
		close(one[--ones]);
	while (twos)
		close(two[--twos]);
	daemon_stop(&daemon);
}

/* --- times --- */

/* Sends the text byte by byte, and none of it late, until the daemon has closed: not before the limit, which
 * began at `start` or later, and soon after it. */
static void trickle(int fd, const char *text, long start)
{
	long took;

	while (*text && !is_closed(fd, TRICKLE_MS))
		if (send(fd, text++, 1, MSG_NOSIGNAL) < 0)
			break;
	took = now_ms() - start;
	if (took < LIMIT_MS || took >= LATE_MS + SLACK_MS)
		fail_msg("closed after %ld ms", took);
}

static void test_slow_heads(void **state)
{
	char text[512];
	struct daemon daemon;
	long start;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", hasty);
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	memcpy(text, "GET /v1/", 8);
	start = now_ms();
	fd = client_open(&daemon);
	trickle(fd, text, start);
	assert_int_equal(read(fd, text, sizeof text), 0);
	close(fd);
	/* Of the second request, too. */
	start = now_ms();
	fd = client_open(&daemon);
	expect_served(fd);
	trickle(fd, text, start);
	close(fd);
	expect_echo(&daemon);
	daemon_stop(&daemon);
}

static void test_slow_bodies(void **state)
{
	static const char head[] = "POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
			  chunked[] =
				  "POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
	const char *const heads[] = {head, chunked};
	char body[512];
	struct daemon daemon;
	struct answer answer;

	(void)state;
	daemon_start(&daemon, "boot", hasty);
	for (int i = 0; i < 2; i++) {
		const long start = now_ms();
		int fd = client_open(&daemon);

		for (size_t at = 0; at + 6 < sizeof body; at += 6)
			memcpy(body + at, "1\r\n{\r\n", 7);
		client_send_text(fd, heads[i]);
		trickle(fd, body, start);
		client_answer(fd, &answer);
		assert_int_equal(answer.status, 408);
		assert_string_equal(error_member(&answer, "code"), "request_timeout");
		assert_string_equal(error_member(&answer, "message"),
			"the body did not come within 800 ms: send it in one go");
		assert_true(
			json_is_true(json_object_get(json_object_get(answer.json, "error"), "retryable")));
		answer_finish(&answer);
		assert_int_equal(read(fd, body, 1), 0);
		close(fd);
	}
	assert_int_equal(metric(&daemon, "tinderbox_errors_total{code=\"request_timeout\"} "), 2);
	expect_echo(&daemon);
	daemon_stop(&daemon);
}

/* What takes long is not late. */
static void test_idle_and_busy_connections(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stream stream;
	char head[2048];
	int idle, busy, used;

	(void)state;
	daemon_start(&daemon, "boot", (char *[]){"--pool", "2", "--client-timeout-ms", "800", NULL});
	idle = client_open(&daemon);
	used = client_open(&daemon);
	expect_served(used);
	busy = client_open(&daemon);
	client_request(busy, "POST", "/v1/run", "", "{\"argv\":[\"sleep\"],\"timeout_ms\":1000}");
	assert_int_equal(
		open_stream_at(&daemon, &stream, "/v1/run", "{\"argv\":[\"started-sleep\"]}", head), 101);
	assert_true(is_closed(idle, LATE_MS + SLACK_MS));
	assert_true(is_closed(used, SLACK_MS));
	expect(&stream, AGENT_STARTED);
	client_answer(busy, &answer);
	assert_string_equal(member(&answer, "result"), "{\"kind\":\"timed_out\",\"by\":\"host\"}");
	answer_finish(&answer);
	assert_false(is_closed(stream.fd, 0));
	/* From its answer on, not from its start. */
	expect_served(busy);
	close_stream(&stream);
	close(idle);
	close(used);
	close(busy);
	daemon_stop(&daemon);
}

/* A client that says that no more will come has left, though its last bytes and that came together. */
static void test_half_closed_requests(void **state)
{
	static const char *const halves[] = {"", "GET /v1/hea", "GET /v1/healthz HTTP/1.1\r\nHost: x\r\n",
		"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"argv\":"};
	char *const options[] = {"--pool", "1", "--client-timeout-ms", "80000", NULL};
	struct daemon daemon;
	int fds[4];

	(void)state;
	daemon_start(&daemon, "boot", options);
	for (int i = 0; i < 4; i++) {
		fds[i] = client_open(&daemon);
		client_send_text(fds[i], halves[i]);
		assert_int_equal(shutdown(fds[i], SHUT_WR), 0);
	}
	for (int i = 0; i < 4; i++) {
		struct pollfd wait = {.fd = fds[i], .events = POLLIN};
		char byte;

		assert_int_equal(poll(&wait, 1, 80000 / HTTP_LOOKS + SLACK_MS), 1);
		assert_int_equal(read(fds[i], &byte, 1), 0);
		close(fds[i]);
	}
	expect_echo(&daemon);
	daemon_stop(&daemon);
}

/* Clock ticks that the daemon has used, and what is open of it. */
static long ticks_of(const struct daemon *daemon)
{
	char path[64], text[1024], *at;
	unsigned long user, system;
	ssize_t length;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)daemon->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	length = read(fd, text, sizeof text - 1);
	close(fd);
	assert_true(length > 0);
	text[length] = '\0';
	at = strrchr(text, ')');
	assert_non_null(at);
	assert_int_equal(
		sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
	return (long)(user + system);
}

static void expect_idle(const struct daemon *daemon)
{
	long before = ticks_of(daemon), per_second = sysconf(_SC_CLK_TCK);

	sleep_ms(IDLE_MS);
	assert_in_range(ticks_of(daemon) - before, 0, per_second * IDLE_MS / 1000 / 4);
}

/* A line of a chunk that fills libmicrohttpd's buffer, which then reads no more and calls nobody. */
static int open_endless_chunk(const struct daemon *daemon)
{
	static char line[HTTP_HEADER_MEMORY + 1024];
	int fd = client_open(daemon);

	memset(line, 'a', sizeof line - 1);
	memcpy(line, "15;", 3);
	client_send_text(fd, "POST /v1/run HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	client_send_text(fd, line);
	return fd;
}

/* No more of them are left: at the daemon's start there may be one that is not for long. */
static void await_fds(const struct daemon *daemon, int count)
{
	for (int waited = 0; fds_of(daemon) > count && waited < LATE_MS + SLACK_MS; waited += POLL_MS)
		sleep_ms(POLL_MS);
	assert_in_range(fds_of(daemon), 1, count);
}

static void test_endless_chunk_lines(void **state)
{
	struct daemon daemon;
	struct answer answer;
	int fds[8], before;

	(void)state;
	daemon_start(&daemon, "boot", (char *[]){"--pool", "1", "--client-timeout-ms", "3000", NULL});
	before = fds_of(&daemon);
	for (int i = 0; i < 8; i++)
		fds[i] = open_endless_chunk(&daemon);
	sleep_ms(100);
	/* Half of the clients leave. */
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	expect_idle(&daemon);
	expect_echo(&daemon);
	expect_idle(&daemon);
	for (int i = 4; i < 8; i++) {
		client_answer(fds[i], &answer);
		assert_int_equal(answer.status, 408);
		answer_finish(&answer);
	}
	await_fds(&daemon, before);
	for (int i = 4; i < 8; i++)
		close(fds[i]);
	expect_idle(&daemon);
	expect_echo(&daemon);
	daemon_stop(&daemon);
}

/* An answer that is not read is kept for five limits; a connection of many requests that are not, too. */
static void test_answers_that_are_not_read(void **state)
{
	char *const options[] = {"--pool", "1", "--client-timeout-ms", "200", NULL};
	const long least = 200L * HTTP_ANSWER_LIMITS;
	struct daemon daemon;
	struct answer answer;
	long start;
	int fd;

	(void)state;
	daemon_start(&daemon, "boot", options);
	run_command(&daemon, "{\"argv\":[\"flood\",\"1000000\"]}", &answer);
	assert_non_null(answer.body);
	assert_true(strlen(answer.body) > 1000000);
	answer_finish(&answer);
	await_pool(&daemon, "warm", 1);
	fd = client_open(&daemon);
	client_request(fd, "POST", "/v1/run", "", "{\"argv\":[\"flood\",\"1000000\"]}");
	start = now_ms();
	assert_true(is_closed(fd, WAIT_MS));
	assert_true(now_ms() - start >= least);
	close(fd);
	await_pool(&daemon, "busy", 0);
	fd = client_open(&daemon);
	for (int i = 0; i < 1000; i++)
		if (send(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 34, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	assert_true(is_closed(fd, WAIT_MS));
	close(fd);
	expect_echo(&daemon);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thousands_of_idle_connections),
		cmocka_unit_test(test_half_requests_give_way),
		cmocka_unit_test(test_one_users_share),
		cmocka_unit_test(test_slow_heads),
		cmocka_unit_test(test_slow_bodies),
		cmocka_unit_test(test_idle_and_busy_connections),
		cmocka_unit_test(test_half_closed_requests),
		cmocka_unit_test(test_answers_that_are_not_read),
		cmocka_unit_test(test_endless_chunk_lines),
	};

	/* Both ends of thousands of connections are not in one process, but one end of each is. */
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 4096, .rlim_max = 4096});
	return cmocka_run_group_tests(tests, NULL, NULL);
}
