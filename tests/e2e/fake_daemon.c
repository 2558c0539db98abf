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
 *
 * Commands of sandboxes are what their ids say: see commands[]. One that is made is called as argv[0] says.
 * Each request of a sandbox is a line of SOCKET.log: method, path, body.
 */
#include "common/frame.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* One that runs, and others that have ended, each in another way. */
static const char commands_answer[] =
	"{\"commands\":["
	"{\"id\":\"cmd-1\",\"state\":\"running\",\"argv0\":\"sh\",\"result\":null,\"error\":null,"
	"\"stdout\":{\"bytes\":3},\"stderr\":{\"bytes\":0}},"
	"{\"id\":\"cmd-2\",\"state\":\"ended\",\"argv0\":\"make\",\"result\":{\"kind\":\"exited\",\"code\":3}"
	","
	"\"stdout\":{\"bytes\":12},\"stderr\":{\"bytes\":5}},"
	"{\"id\":\"cmd-3\",\"state\":\"ended\",\"argv0\":\"\\u001b[31mred\","
	"\"result\":{\"kind\":\"signalled\",\"signal\":9}},"
	"{\"id\":\"cmd-4\",\"state\":\"ended\",\"argv0\":\"sleep\",\"result\":{\"kind\":\"timed_out\"}},"
	"{\"id\":\"cmd-5\",\"state\":\"ended\",\"argv0\":\"true\",\"result\":null,"
	"\"error\":{\"code\":\"guest_lost\"}}]}";

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

static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
			       "Upgrade: tinderbox-frames\r\n\r\n";

static void answer_run(int fd, const json_t *request, bool upgraded)
{
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

/* ---- commands of sandboxes ---- */

/* What is held of a command's output: [0, head) and [oldest, bytes), of x's. */
struct held {
	long long head, oldest, bytes;
	bool ended;
};

enum { PART_MAX = 100000, RACE_STEP = 10, RACE_TAIL = 100 };

/* How much has been asked for yet: what grows from one request to the next. */
static long long log_size(const char *log)
{
	struct stat status;

	return stat(log, &status) == 0 ? (long long)status.st_size : 0;
}

static const struct command {
	const char *name;
	struct held held[2];
} commands[] = {
	/* The middle of its output is gone; it has ended. */
	{"gap", {{1000, 2000, 3000, true}, {0, 0, 0, true}}},
	/* Nothing of it is held any more, as after a daemon's restart. */
	{"lost", {{0, 500, 500, true}, {0, 20, 20, true}}},
	/* Runs, and has written a gap and more each time that it is looked at. */
	{"race", {{1000, 0, 0, false}, {0, 0, 0, false}}},
	/* Runs, and has written twice as much as is told each time that it is looked at. */
	{"flood", {{0, 0, 0, false}, {0, 0, 0, false}}},
	/* Is refused its start. */
	{"refuse", {{0, 0, 0, false}, {0, 0, 0, false}}},
	/* Starts. */
	{"start", {{0, 0, 0, true}, {0, 0, 0, true}}},
	/* Cannot start: there is no such program. */
	{"absent", {{0, 0, 0, true}, {0, 0, 0, true}}},
	/* Runs, says which signals come to it, and ends at a KILL. */
	{"signals", {{0, 0, 0, false}, {0, 0, 0, false}}},
};

static struct held look(const struct command *command, bool is_error, long long offset, const char *log)
{
	struct held held = command->held[is_error];

	if (strcmp(command->name, "race") == 0 && !is_error) {
		held.oldest = held.head + RACE_STEP * log_size(log);
		held.bytes = held.oldest + RACE_TAIL;
	} else if (strcmp(command->name, "flood") == 0 && !is_error) {
		held.bytes = offset + 2 * PART_MAX;
	}
	return held;
}

static void send_conflict(int fd)
{
	send_json(fd, 409,
		"{\"error\":{\"code\":\"conflict\",\"message\":\"no longer held\",\"retryable\":false,"
		"\"detail\":null}}");
}

static void send_held(int fd, const struct held *held, long long offset)
{
	static char part[PART_MAX];
	long long end = offset < held->head ? held->head : held->bytes;
	long long length = end - offset < PART_MAX ? end - offset : PART_MAX;
	json_t *answer;
	char *text;

	if (offset >= held->head && offset < held->oldest) {
		send_conflict(fd);
		return;
	}
	memset(part, 'x', sizeof(part));
	answer = json_pack("{s:s%, s:I, s:I, s:b}", "data", part, (size_t)length, "next_offset",
		(json_int_t)(offset + length), "bytes", (json_int_t)held->bytes, "ended", held->ended);
	text = json_dumps(answer, JSON_COMPACT);
	send_json(fd, 200, text);
	free(text);
	json_decref(answer);
}

static void send_info(int fd, const struct command *command, const char *log)
{
	struct held out = look(command, false, 0, log), err = look(command, true, 0, log);
	char text[256];

	snprintf(text, sizeof(text),
		"{\"argv0\":\"program\",\"stdout\":{\"bytes\":%lld,\"oldest\":%lld},"
		"\"stderr\":{\"bytes\":%lld,\"oldest\":%lld}}",
		out.bytes, out.oldest, err.bytes, err.oldest);
	send_json(fd, 200, text);
}

static bool is_held(const struct command *command, const json_t *request, const char *log)
{
	const json_t *given = json_object_get(request, "stdout_offset");

	return !given || json_integer_value(given) >= look(command, false, 0, log).oldest;
}

/* Both streams from their offsets, or the oldest bytes, on, and its end. */
static void attach_command(int fd, const struct command *command, const json_t *request, const char *log)
{
	static const char *const fields[] = {"stdout_offset", "stderr_offset"};
	struct agent_exit end = {.kind = AGENT_EXITED, .code = 7};
	char part[4096];

	memset(part, 'x', sizeof(part));
	io_write_all(fd, switched, strlen(switched));
	if (strcmp(command->name, "signals") == 0) {
		struct session session = {.fd = fd};

		frame_reader_init(&session.reader, AGENT_FRAME_MAX);
		script_signals(&session);
		frame_reader_finish(&session.reader);
		return;
	}
	if (strcmp(command->name, "absent") == 0)
		end = (struct agent_exit){
			.kind = AGENT_FAILED_TO_START, .code = ENOENT, .step = AGENT_STEP_EXEC};
	for (int i = 0; i < 2; i++) {
		const struct held held = look(command, i, 0, log);
		const json_t *given = json_object_get(request, fields[i]);
		struct agent_output output = {
			.offset = (uint64_t)(given ? json_integer_value(given) : held.oldest)};

		if (output.offset < (uint64_t)held.bytes)
			frame_write(fd, i ? AGENT_STDERR : AGENT_STDOUT, &output, sizeof(output), part,
				(size_t)held.bytes - output.offset);
		*(i ? &end.stderr_bytes : &end.stdout_bytes) = (uint64_t)held.bytes;
	}
	frame_write(fd, AGENT_EXIT, &end, sizeof(end), NULL, 0);
}

/* verb: what comes after its id. */
static void answer_command(
	int fd, const struct command *command, const char *verb, const json_t *request, const char *log)
{
	const char *at = strstr(verb, "offset=");
	const long long offset = at ? strtoll(at + 7, NULL, 10) : 0;
	const struct held held = look(command, strstr(verb, "stream=stderr") != NULL, offset, log);

	if (strncmp(verb, "/output", 7) == 0)
		send_held(fd, &held, offset);
	else if (strcmp(verb, "/token") == 0)
		send_json(fd, 200, "{\"attach_token\":\"again\"}");
	else if (strcmp(verb, "/attach") == 0 && strcmp(command->name, "refuse") == 0)
		send_json(fd, 429,
			"{\"error\":{\"code\":\"exhausted\",\"message\":\"too many run\",\"retryable\":true,"
			"\"detail\":null}}");
	else if (strcmp(verb, "/attach") == 0 && !is_held(command, request, log))
		send_conflict(fd);
	else if (strcmp(verb, "/attach") == 0)
		attach_command(fd, command, request, log);
	else
		send_info(fd, command, log);
}

static void note(const char *log, const char *method, const char *path, const char *body)
{
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	dprintf(fd, "%s %s %s\n", method, path, body);
	close(fd);
}

/* Two pages, of any sandbox; of "liar" more than there is. */
static void send_changes(int fd, const char *path)
{
	if (strstr(path, "/liar/"))
		send_json(fd, 200, "{\"changes\":[{\"kind\":\"added\"}],\"more\":true,\"skipped\":0}");
	else if (!strstr(path, "&after="))
		send_json(fd, 200,
			"{\"changes\":[{\"kind\":\"added\",\"path\":\"/a\\tb\\u0085\",\"type\":\"file\"},"
			"{\"kind\":\"changed\",\"path_b64\":\"L2L/LyAm\",\"type\":\"file\"}],"
			"\"more\":true,\"skipped\":1}");
	else if (strstr(path, "&after=%2Fb%FF%2F%20%26"))
		send_json(fd, 200,
			"{\"changes\":[{\"kind\":\"removed\",\"path\":\"/c\u00e9\\\\\",\"type\":"
			"\"directory\"}],\"more\":false,\"skipped\":1}");
	else
		send_json(fd, 400, "{}");
}

/* Of a request for /v1/sandboxes. False: a command is to be run, as by /v1/run. */
static bool answer_sandbox(int fd, const char *text, const char *body, const json_t *request, const char *log)
{
	char method[8] = "", path[512] = "", id[64] = "";
	const char *name, *verb;

	sscanf(text, "%7s %511s", method, path);
	if (strncmp(path, "/v1/sandboxes", 13) != 0)
		return false;
	note(log, method, path, body);
	if (strstr(path, "/changes")) {
		send_changes(fd, path);
		return true;
	}
	name = strstr(path, "/commands");
	if (!name && strstr(path, "/run"))
		return false;
	if (strcmp(method, "DELETE") == 0) {
		send_json(fd, 200, "{\"verified\":true}");
		return true;
	}
	if (!name && strstr(path, "/fork")) {
		send_json(fd, 201, "{\"pause_us\":1,\"children\":[{\"sandbox\":{\"id\":\"sb-child\"}}]}");
		return true;
	}
	if (!name && strcmp(method, "POST") == 0) {
		send_json(fd, 201, "{\"id\":\"sb-new\"}");
		return true;
	}
	if (!name) {
		send_json(fd, 200,
			"{\"sandboxes\":[{\"id\":\"sb-1\",\"name\":\"box\",\"state\":\"ready\",\"template\":"
			"\"base\","
			"\"reason\":null},{\"id\":\"sb-2\",\"name\":null,\"state\":\"suspending\","
			"\"template\":"
			"\"base\","
			"\"reason\":\"it ended\"}]}");
		return true;
	}
	if (strcmp(name, "/commands") == 0 && strcmp(method, "GET") == 0) {
		send_json(fd, 200, strstr(path, "/none/") ? "{\"commands\":[]}" : commands_answer);
		return true;
	}
	if (strcmp(name, "/commands") == 0) {
		char made[128];

		snprintf(made, sizeof(made), "{\"id\":\"cmd-%s\",\"attach_token\":\"first\"}",
			json_string_value(json_array_get(json_object_get(request, "argv"), 0)));
		send_json(fd, 201, made);
		return true;
	}
	sscanf(name, "/commands/cmd-%63[a-z]", id);
	verb = name + strlen("/commands/cmd-") + strlen(id);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(commands[i].name, id) == 0)
			answer_command(fd, &commands[i], verb, request, log);
	return true;
}

static void answer_events(int fd, const char *text, const char *log)
{
	char path[512] = "";

	sscanf(text, "GET %511s", path);
	note(log, "GET", path, "");
	send_json(fd, 404, "{}");
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

static void answer(int fd, const char *log)
{
	char *text = malloc(REQUEST_MAX + 1);
	size_t head = text ? read_request(fd, text) : 0;
	json_t *request = head ? json_loads(text + head, 0, NULL) : NULL;

	if (head && answer_sandbox(fd, text, text + head, request, log))
		;
	else if (head && strncmp(text, "GET /v1/pool ", 13) == 0)
		send_json(fd, 200, pool_answer);
	else if (head && strncmp(text, "GET /v1/events", 14) == 0)
		answer_events(fd, text, log);
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
	char log[sizeof(address.sun_path) + 8];
	int listener, fd;

	if (argc != 2)
		return 2;
	signal(SIGCHLD, SIG_IGN);
	snprintf(log, sizeof(log), "%s.log", argv[1]);
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
			answer(fd, log);
			return 0;
		}
		close(fd);
	}
	return 1;
}
