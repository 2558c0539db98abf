/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon without VMs, for tests of the client: `fake_daemon SOCKET` answers every request by a script that
 * argv[0] of the request names, and writes "ready" when it listens. One process a connection.
 *
 *   cat            sends standard input back                 flood N        N bytes of output
 *   exit N         ends with N                               both           output on both streams
 *   signals        says which signals come; TERM ends it     argv           says how argv and env came
 *   hang           never answers                             refuse         429 exhausted
 *   lose           HOST_ERROR                                vanish         closes without a result
 *   fail STEP ERR  failed to start                           kind NAME      that result
 */
#include "common/frame.h"
#include "common/io.h"
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUEST_MAX = 2 * 1024 * 1024, CHUNK = 60 * 1000 };

struct session {
	int fd;
	const json_t *request;
	uint64_t offset; /* of stdout */
	struct frame_reader reader;
};

/* ---- frames ---- */

static void send_text(struct session *session, uint8_t type, const void *text, size_t length)
{
	struct agent_output output = {.offset = type == AGENT_STDOUT ? session->offset : 0};

	if (type == AGENT_STDOUT)
		session->offset += length;
	if (frame_write(session->fd, type, &output, sizeof(output), text, length) < 0)
		exit(0);
}

static void send_exit(struct session *session, int kind, int code, int step)
{
	struct agent_exit exit = {
		.kind = (uint8_t)kind,
		.code = code,
		.step = (uint16_t)step,
		.stdout_bytes = session->offset,
	};

	frame_write(session->fd, AGENT_EXIT, &exit, sizeof(exit), NULL, 0);
}

/* False when the client has left. */
static bool next_frame(struct session *session, struct frame *frame)
{
	for (;;) {
		int r = frame_reader_next(&session->reader, frame);

		if (r != 0)
			return r > 0;
		if (frame_reader_fill(&session->reader, session->fd) <= 0)
			return false;
	}
}

static const char *argument(const struct session *session, size_t i)
{
	const char *text = json_string_value(json_array_get(json_object_get(session->request, "argv"), i));

	return text ? text : "";
}

/* ---- scripts ---- */

static void script_cat(struct session *session)
{
	struct frame frame;

	while (next_frame(session, &frame) && frame.type == AGENT_STDIN) {
		struct agent_credit credit = {.bytes = frame.length};

		send_text(session, AGENT_STDOUT, frame.payload, frame.length);
		frame_write(session->fd, AGENT_STDIN_CREDIT, &credit, sizeof(credit), NULL, 0);
	}
	send_exit(session, AGENT_EXITED, 0, 0);
}

static void script_flood(struct session *session)
{
	static uint8_t chunk[CHUNK];
	unsigned long long left = strtoull(argument(session, 1), NULL, 10);

	for (size_t i = 0; i < sizeof(chunk); i++)
		chunk[i] = (uint8_t)i;
	while (left > 0) {
		size_t length = left < sizeof(chunk) ? (size_t)left : sizeof(chunk);

		send_text(session, AGENT_STDOUT, chunk, length);
		left -= length;
	}
	send_exit(session, AGENT_EXITED, 0, 0);
}

static void script_exit(struct session *session)
{
	send_exit(session, AGENT_EXITED, atoi(argument(session, 1)), 0);
}

static void script_both(struct session *session)
{
	send_text(session, AGENT_STDOUT, "out\n", 4);
	send_text(session, AGENT_STDERR, "err\n", 4);
	send_exit(session, AGENT_EXITED, 0, 0);
}

static void script_signals(struct session *session)
{
	struct agent_signal received = {0};
	struct frame frame;
	char line[32];

	send_text(session, AGENT_STDOUT, "ready\n", 6);
	while (next_frame(session, &frame) && frame.type != AGENT_KILL && received.signal != SIGTERM) {
		if (frame.type != AGENT_SIGNAL)
			continue;
		memcpy(&received, frame.payload, sizeof(received));
		send_text(session, AGENT_STDOUT, line,
			(size_t)snprintf(line, sizeof(line), "signal %u\n", received.signal));
		if (received.signal == SIGTERM)
			break;
	}
	if (frame.type == AGENT_KILL)
		send_exit(session, AGENT_KILLED, 0, 0);
	else
		send_exit(session, AGENT_SIGNALLED, SIGTERM, 0);
}

static void script_argv(struct session *session)
{
	char *text = json_dumps(session->request, JSON_COMPACT | JSON_SORT_KEYS);

	send_text(session, AGENT_STDOUT, text, strlen(text));
	send_exit(session, AGENT_EXITED, 0, 0);
	free(text);
}

static void script_hang(struct session *session)
{
	struct frame frame;

	while (next_frame(session, &frame))
		;
}

static void script_lose(struct session *session)
{
	static const char error[] = "{\"error\":{\"code\":\"guest_lost\",\"message\":\"the VM ended\","
				    "\"retryable\":false,\"detail\":{\"vm\":\"7\"}}}";

	send_text(session, AGENT_STDOUT, "partial\n", 8);
	frame_write(session->fd, AGENT_HOST_ERROR, error, strlen(error), NULL, 0);
}

static void script_vanish(struct session *session)
{
	send_text(session, AGENT_STDOUT, "partial\n", 8);
}

static void script_fail(struct session *session)
{
	send_exit(session, AGENT_FAILED_TO_START, atoi(argument(session, 2)), atoi(argument(session, 1)));
}

static void script_kind(struct session *session)
{
	send_exit(session, atoi(argument(session, 1)), 0, 0);
}

static const struct {
	const char *name;
	void (*run)(struct session *session);
} scripts[] = {
	{"cat", script_cat},
	{"flood", script_flood},
	{"exit", script_exit},
	{"both", script_both},
	{"signals", script_signals},
	{"argv", script_argv},
	{"hang", script_hang},
	{"lose", script_lose},
	{"vanish", script_vanish},
	{"fail", script_fail},
	{"kind", script_kind},
};

/* ---- HTTP ---- */

static void send_json(int fd, int status, const char *body)
{
	char head[128];
	int length = snprintf(
		head, sizeof(head), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", status, strlen(body));

	io_write_all(fd, head, (size_t)length);
	io_write_all(fd, body, strlen(body));
}

static const char pool_answer[] =
	"{\"target\":2,\"warm\":1,\"starting\":1,\"busy\":0,\"queued\":3,\"queue_max\":64,\"claims_warm\":10,"
	"\"claims_missed\":3,\"claims_waited\":2,\"times\":{\"claim\":{\"count\":12,\"p50_us\":45,"
	"\"p99_us\":1200},\"refill_clone\":{\"count\":0},\"refill_boot\":{\"count\":3,\"p50_us\":1800000,"
	"\"p99_us\":61000000}},"
	"\"starts_failed\":1,\"warm_lost\":0,\"last_failure\":\"it \\u001b[31mpanicked\","
	"\"vms\":[{\"id\":\"a1\",\"state\":\"warm\",\"pid\":123,\"age_ms\":61000,\"boot_ms\":1800},"
	"{\"id\":\"a2\",\"state\":\"starting\",\"pid\":124,\"age_ms\":500,\"boot_ms\":0}]}";

/* The plain form: one result for all scripts but these. */
static void answer_plain(int fd, const char *script, const json_t *request)
{
	const char *input = json_string_value(json_object_get(request, "stdin"));
	json_t *answer;
	char *text;

	answer = json_pack("{s:{s:s, s:i}, s:{s:s}}", "result", "kind", "exited", "code",
		strcmp(script, "exit") == 0 ? 9 : 0, "stdout", "data", input ? input : "");
	text = json_dumps(answer, JSON_COMPACT);
	send_json(fd, 200, text);
	free(text);
	json_decref(answer);
}

static void answer_run(int fd, const json_t *request, bool upgraded)
{
	static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
				       "Upgrade: tinderbox-frames\r\n\r\n";
	struct session session = {.fd = fd, .request = request};
	const char *script = argument(&session, 0);

	if (json_object_get(request, "argv_b64"))
		script = "argv";
	if (strcmp(script, "refuse") == 0) {
		send_json(fd, 429,
			"{\"error\":{\"code\":\"exhausted\",\"message\":\"the queue is full\","
			"\"retryable\":true,\"detail\":null}}");
		return;
	}
	if (!upgraded) {
		answer_plain(fd, script, request);
		return;
	}
	io_write_all(fd, switched, strlen(switched));
	frame_reader_init(&session.reader, AGENT_FRAME_MAX);
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (strcmp(scripts[i].name, script) == 0)
			scripts[i].run(&session);
	frame_reader_finish(&session.reader);
}

/* Reads a whole request into text. The length of its head, or 0. */
static size_t read_request(int fd, char *text)
{
	size_t have = 0, need = REQUEST_MAX, head = 0;

	while (have < need) {
		ssize_t n = read(fd, text + have, need - have);
		const char *end, *length;

		if (n <= 0)
			return 0;
		have += (size_t)n;
		text[have] = '\0';
		end = head ? NULL : strstr(text, "\r\n\r\n");
		if (!end)
			continue;
		head = (size_t)(end - text) + 4;
		length = strstr(text, "Content-Length: ");
		need = head + (length ? strtoul(length + 16, NULL, 10) : 0);
	}
	return head;
}

static void answer(int fd)
{
	char *text = malloc(REQUEST_MAX + 1);
	size_t head = text ? read_request(fd, text) : 0;
	json_t *request = head ? json_loads(text + head, 0, NULL) : NULL;

	if (head && strncmp(text, "GET /v1/pool ", 13) == 0)
		send_json(fd, 200, pool_answer);
	else if (head && strncmp(text, "GET /v1/healthz ", 16) == 0)
		send_json(fd, 503, "{\"status\":\"degraded\",\"reason\":\"x\",\"version\":\"9.9\"}");
	else if (request)
		answer_run(fd, request, strstr(text, "Upgrade: tinderbox-frames") != NULL);
	else if (head)
		send_json(fd, 404, "{}");
	json_decref(request);
	free(text);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener, fd;

	if (argc != 2)
		return 2;
	signal(SIGCHLD, SIG_IGN);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", argv[1]);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(listener, 16) < 0) {
		fprintf(stderr, "fake_daemon: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	puts("ready");
	fclose(stdout);
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		pid_t pid = fork();

		if (pid == 0) {
			close(listener);
			answer(fd);
			return 0;
		}
		close(fd);
	}
	return 1;
}
