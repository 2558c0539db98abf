/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a whole daemon that sends an Idempotency-Key. */
#ifndef TESTS_UNIT_HOSTCTL_KEYED_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_KEYED_FIXTURE_H

#include "tests/unit/hostctl_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static const char echo_body[] = "{\"argv\":[\"echo\",\"a\"]}";
static const char long_body[] = "{\"argv\":[\"started-sleep\"],\"timeout_ms\":500}";

/* An answer, and whether it says that it is another's. */
struct keyed_answer {
	struct answer answer;
	bool replayed;
};

static inline int send_keyed(const struct daemon *daemon, const char *path, const char *key, const char *body)
{
	char header[256];
	int fd = client_open(daemon);

	snprintf(header, sizeof header, "Idempotency-Key: %s\r\n", key);
	client_request(fd, "POST", path, header, body);
	return fd;
}

/* Reads as client_answer does. False: the connection ended without an answer. */
static inline bool read_keyed(int fd, struct keyed_answer *keyed)
{
	char head[2048];
	const char *found;
	size_t length, at = 0;

	*keyed = (struct keyed_answer){.answer = {.status = client_read_head(fd, head, sizeof head)}};
	if (keyed->answer.status < 0) {
		close(fd);
		return false;
	}
	keyed->replayed = strstr(head, "\r\nIdempotency-Replayed: true\r\n") != NULL;
	found = strstr(head, "Content-Length: ");
	assert_non_null(found);
	length = strtoul(found + strlen("Content-Length: "), NULL, 10);
	assert_true(length < ANSWER_MAX);
	keyed->answer.body = malloc(length + 1);
	assert_non_null(keyed->answer.body);
	while (at < length) {
		ssize_t got = read(fd, keyed->answer.body + at, length - at);

		assert_true(got > 0);
		at += (size_t)got;
	}
	keyed->answer.body[length] = '\0';
	keyed->answer.json = json_loads(keyed->answer.body, 0, NULL);
	close(fd);
	return true;
}

static inline void run_keyed(
	const struct daemon *daemon, const char *key, const char *body, struct keyed_answer *keyed)
{
	assert_true(read_keyed(send_keyed(daemon, "/v1/run", key, body), keyed));
}

/* Leaves when it runs: before, nothing would be begun for nobody. */
static inline void send_and_leave(const struct daemon *daemon, const char *key, const char *body)
{
	int fd = send_keyed(daemon, "/v1/run", key, body);

	await_pool(daemon, "busy", 1);
	close(fd);
}

static inline void finish(struct keyed_answer *keyed)
{
	answer_finish(&keyed->answer);
}

static inline void expect_error_at(const struct daemon *daemon, const char *path, const char *key,
	const char *body, int status, const char *code, const char *message)
{
	struct keyed_answer got;

	assert_true(read_keyed(send_keyed(daemon, path, key, body), &got));
	assert_string_equal(error_member(&got.answer, "message"), message);
	assert_string_equal(error_member(&got.answer, "code"), code);
	assert_int_equal(got.answer.status, status);
	finish(&got);
}

static inline void expect_error(const struct daemon *daemon, const char *key, const char *body, int status,
	const char *code, const char *message)
{
	expect_error_at(daemon, "/v1/run", key, body, status, code, message);
}

/* The same answer, byte by byte, and said to be it. */
static inline void expect_replay(
	const struct daemon *daemon, const char *key, const char *body, const struct keyed_answer *first)
{
	struct keyed_answer got;

	run_keyed(daemon, key, body, &got);
	assert_true(got.replayed);
	assert_int_equal(got.answer.status, first->answer.status);
	assert_string_equal(got.answer.body, first->answer.body);
	finish(&got);
}

#define CONFLICT(key)                                                                                        \
	"the Idempotency-Key " key                                                                           \
	" is another request's: give this one a key of its own, or send the same "                           \
	"bytes to the same path as the same user"
#define NOT_KNOWN(key)                                                                                       \
	"the request with the Idempotency-Key " key                                                          \
	" was begun and may have been done, but its answer is not "                                          \
	"known: the daemon ended, or could not keep it"

static inline long exited(const struct daemon *daemon)
{
	return metric(daemon, "tinderbox_runs_total{result=\"exited\"} ");
}

static inline void kill_daemon(struct daemon *daemon)
{
	kill(daemon->pid, SIGKILL);
	assert_int_equal(daemon_wait(daemon), 128 + SIGKILL);
}

static inline void end_daemon(struct daemon *daemon)
{
	kill(daemon->pid, SIGTERM);
	assert_int_equal(daemon_wait(daemon), 0);
}

#endif
