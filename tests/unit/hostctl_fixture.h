/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon for a test (hostctl_daemon_fixture.h), and a client that knows as much HTTP as that takes. */
#ifndef TESTS_UNIT_HOSTCTL_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_FIXTURE_H

#include "tests/unit/hostctl_daemon_fixture.h"

#include "common/frame.h"
#include <jansson.h>

enum { ANSWER_MAX = 8 * 1024 * 1024 };

struct answer {
	int status;
	char *body; /* NUL-terminated, freed by answer_finish */
	json_t *json;
};

/* --- a client --- */

/* Waits while the backlog is full. */
static inline int client_open(const struct daemon *daemon)
{
	const struct timeval limit = {.tv_sec = WAIT_MS / 1000};
	int fd = unix_connect(daemon->socket, SOCK_STREAM);

	for (int waited = 0; fd == -EAGAIN && waited < WAIT_MS; waited += POLL_MS) {
		sleep_ms(POLL_MS);
		fd = unix_connect(daemon->socket, SOCK_STREAM);
	}
	assert_true(fd >= 0);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

static inline void client_send(int fd, const void *data, size_t length)
{
	const char *at = data;

	while (length) {
		ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);

		assert_true(sent > 0);
		at += sent;
		length -= (size_t)sent;
	}
}

static inline void client_send_text(int fd, const char *text)
{
	client_send(fd, text, strlen(text));
}

/* A request with a body, which may be NULL; headers: whole lines. */
static inline void client_request(
	int fd, const char *method, const char *path, const char *headers, const char *body)
{
	char head[8192]; /* a path may be long */
	int length = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n",
		method, path, headers, body ? strlen(body) : 0);

	client_send(fd, head, (size_t)length);
	if (body)
		client_send(fd, body, strlen(body));
}

/* Reads the head of an answer, byte by byte so that nothing after it is taken. The status. */
static inline int client_read_head(int fd, char *head, size_t size)
{
	size_t length = 0;

	while (length < size - 1 && (length < 4 || memcmp(head + length - 4, "\r\n\r\n", 4))) {
		ssize_t got = read(fd, head + length, 1);

		if (got <= 0)
			return -1;
		length++;
	}
	head[length] = '\0';
	return (int)strtol(head + strlen("HTTP/1.1 "), NULL, 10);
}

static inline void client_answer(int fd, struct answer *answer)
{
	char head[2048];
	const char *found;
	size_t length, at = 0;

	*answer = (struct answer){.status = client_read_head(fd, head, sizeof head)};
	if (answer->status < 0)
		return;
	found = strstr(head, "Content-Length: ");
	assert_non_null(found);
	length = strtoul(found + strlen("Content-Length: "), NULL, 10);
	assert_true(length < ANSWER_MAX);
	answer->body = malloc(length + 1);
	assert_non_null(answer->body);
	while (at < length) {
		ssize_t got = read(fd, answer->body + at, length - at);

		assert_true(got > 0);
		at += (size_t)got;
	}
	answer->body[length] = '\0';
	answer->json = json_loads(answer->body, 0, NULL);
}

static inline void answer_finish(struct answer *answer)
{
	json_decref(answer->json);
	free(answer->body);
}

static inline void call(const struct daemon *daemon, const char *method, const char *path, const char *body,
	struct answer *answer)
{
	int fd = client_open(daemon);

	client_request(fd, method, path, "", body);
	client_answer(fd, answer);
	close(fd);
}

/* For what is only to be done. */
static inline void succeed(
	const struct daemon *daemon, const char *method, const char *path, const char *body)
{
	struct answer answer;

	call(daemon, method, path, body, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
}

static inline void run_command(const struct daemon *daemon, const char *body, struct answer *answer)
{
	call(daemon, "POST", "/v1/run", body, answer);
}

/* The text of one member of an answer, as compact JSON; static until the next call. */
static inline const char *member(const struct answer *answer, const char *name)
{
	static char text[4096];
	json_t *value = json_object_get(answer->json, name);
	size_t length = value ? json_dumpb(value, text, sizeof text - 1, JSON_COMPACT | JSON_ENCODE_ANY) : 0;

	text[length < sizeof text ? length : 0] = '\0';
	return text;
}

static inline const char *error_member(const struct answer *answer, const char *name)
{
	const char *text = json_string_value(json_object_get(json_object_get(answer->json, "error"), name));

	return text ? text : "";
}

static inline void expect_refused(const struct daemon *daemon, const char *method, const char *path,
	const char *body, const char *code, const char *message)
{
	struct answer answer;

	call(daemon, method, path, body, &answer);
	assert_string_equal(error_member(&answer, "message"), message);
	assert_string_equal(error_member(&answer, "code"), code);
	answer_finish(&answer);
}

static inline long pool_number(const struct daemon *daemon, const char *name)
{
	struct answer answer;
	long number;

	call(daemon, "GET", "/v1/pool", NULL, &answer);
	assert_int_equal(answer.status, 200);
	number = (long)json_integer_value(json_object_get(answer.json, name));
	answer_finish(&answer);
	return number;
}

static inline void await_pool(const struct daemon *daemon, const char *name, long wanted)
{
	long number = -1;

	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		number = pool_number(daemon, name);
		if (number == wanted)
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("%s stayed %ld, wanted %ld", name, number, wanted);
}

static inline void await_failure(const struct daemon *daemon, const char *wanted)
{
	struct answer answer;
	char last[512] = "";

	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		const char *text;

		call(daemon, "GET", "/v1/pool", NULL, &answer);
		text = json_string_value(json_object_get(answer.json, "last_failure"));
		snprintf(last, sizeof last, "%s", text ? text : "none");
		answer_finish(&answer);
		if (!strcmp(last, wanted))
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("last_failure stayed '%s', wanted '%s'", last, wanted);
}

/* The value of one line of /metrics. */
static inline long metric(const struct daemon *daemon, const char *line)
{
	struct answer answer;
	char start[128];
	const char *found;
	long number;

	call(daemon, "GET", "/metrics", NULL, &answer);
	assert_int_equal(answer.status, 200);
	snprintf(start, sizeof start, "\n%s", line);
	found = strstr(answer.body, start);
	assert_non_null(found);
	number = strtol(found + strlen(start), NULL, 10);
	answer_finish(&answer);
	return number;
}

/* --- its templates --- */

static inline void templates_path(const struct daemon *daemon, const char *name, char path[160])
{
	snprintf(path, 160, "%s/templates%s%s", daemon->state, name[0] ? "/" : "", name);
}

/* Entries of the folder of templates; two of them are itself and its parent. */
static inline int count_templates(const struct daemon *daemon, const char *prefix)
{
	char path[160];

	templates_path(daemon, "", path);
	return count_entries(path, prefix);
}

static inline void remove_state(const struct daemon *daemon)
{
	char path[160];

	templates_path(daemon, "base", path);
	if (access(path, F_OK) == 0)
		remove_folder(path);
	templates_path(daemon, "", path);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(daemon->state), 0);
}

/* Its state folder is to be removed by remove_state. */
static inline void start_with_templates_and(struct daemon *daemon, const char *script, char *const *options)
{
	daemon_folder(daemon);
	daemon->templates = true;
	daemon_launch(daemon, script, options, true);
}

/* How many VMs of the pool have these bytes on the command lines of their vmms, a NUL between two words. */
static inline int count_vmms(const struct daemon *daemon, const char *words, size_t size)
{
	struct answer answer;
	char path[64], line[1024];
	const json_t *vm;
	size_t i;
	int count = 0;

	call(daemon, "GET", "/v1/pool", NULL, &answer);
	json_array_foreach(json_object_get(answer.json, "vms"), i, vm)
	{
		FILE *file;
		size_t length;

		snprintf(path, sizeof path, "/proc/%lld/cmdline",
			(long long)json_integer_value(json_object_get(vm, "pid")));
		file = fopen(path, "re");
		length = file ? fread(line, 1, sizeof line, file) : 0;
		if (file)
			fclose(file);
		count += memmem(line, length, words, size) != NULL;
	}
	answer_finish(&answer);
	return count;
}

/* Those that were started to be clones. */
static inline int count_clones(const struct daemon *daemon)
{
	static const char restored[] = "--restore\0fd:5,memory=fd:6";

	return count_vmms(daemon, restored, sizeof restored - 1);
}

static inline void expect_health(const struct daemon *daemon, int status, const char *reason)
{
	struct answer answer;

	call(daemon, "GET", "/v1/healthz", NULL, &answer);
	assert_int_equal(answer.status, status);
	if (reason)
		assert_string_equal(json_string_value(json_object_get(answer.json, "reason")), reason);
	answer_finish(&answer);
}

static inline void expect_echo(const struct daemon *daemon)
{
	struct answer answer;

	run_command(daemon, "{\"argv\":[\"echo\",\"a\"]}", &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "stdout"), "{\"data\":\"a\\n\",\"bytes\":2,\"dropped\":0}");
	answer_finish(&answer);
}

/* So many VMs are of that template. */
static inline void await_vms(const struct daemon *daemon, const char *name, long wanted)
{
	char path[64];
	long found = -1;

	snprintf(path, sizeof path, "/v1/templates/%s", name);
	for (int waited = 0; waited < WAIT_MS && found != wanted; waited += POLL_MS) {
		struct answer answer;

		call(daemon, "GET", path, NULL, &answer);
		found = (long)json_integer_value(json_object_get(answer.json, "vms"));
		answer_finish(&answer);
		sleep_ms(found == wanted ? 0 : POLL_MS);
	}
	assert_int_equal(found, wanted);
}

/* A line of the daemon's /proc/PID/status, such as "VmRSS:", in KiB. */
static inline long daemon_memory_kib(const struct daemon *daemon, const char *field)
{
	char path[64], line[128];
	long kib = -1;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, field, strlen(field)))
			kib = strtol(line + strlen(field), NULL, 10);
	fclose(file);
	return kib;
}

#endif
