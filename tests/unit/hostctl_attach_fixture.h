/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of a whole daemon's sandboxes, and attaching to them. */
#ifndef TESTS_UNIT_HOSTCTL_ATTACH_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_ATTACH_FIXTURE_H

#include "tests/unit/hostctl_sandboxes_fixture.h"

/* --- the plain form --- */

static inline void run_in(
	const struct daemon *daemon, const char *id, const char *body, struct answer *answer)
{
	call_sandbox(daemon, "POST", id, "/run", body, answer);
}

static inline void expect_run(
	const struct daemon *daemon, const char *id, const char *body, const char *result)
{
	struct answer answer;

	run_in(daemon, id, body, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "result"), result);
	assert_string_equal(json_string_value(json_object_get(answer.json, "sandbox")), id);
	answer_finish(&answer);
}

/* A request to a command; rest: of the path, after its id. */
static inline void call_command(const struct daemon *daemon, const char *method, const char *id,
	const char *command, const char *rest, const char *body, struct answer *answer)
{
	char path[SANDBOX_PATH_MAX];

	snprintf(path, sizeof path, "/commands/%.31s%s", command, rest);
	call_sandbox(daemon, method, id, path, body, answer);
}

/* What is known of one, as JSON; the answer is the caller's. */
static inline void get_command(
	const struct daemon *daemon, const char *id, const char *command, struct answer *answer)
{
	call_command(daemon, "GET", id, command, "", NULL, answer);
	assert_int_equal(answer->status, 200);
}

static inline void expect_field(
	const struct daemon *daemon, const char *id, const char *command, const char *name, const char *value)
{
	struct answer answer;

	get_command(daemon, id, command, &answer);
	assert_string_equal(member(&answer, name), value);
	answer_finish(&answer);
}

/* Waits until the field has that value, as JSON. */
static inline void await_field(const struct daemon *daemon, const char *id, const char *command,
	const char *name, const char *wanted)
{
	char last[256] = "";

	for (int waited = 0; waited < WAIT_MS && strcmp(last, wanted) != 0; waited += POLL_MS) {
		struct answer answer;

		get_command(daemon, id, command, &answer);
		snprintf(last, sizeof last, "%.255s", member(&answer, name));
		answer_finish(&answer);
		sleep_ms(strcmp(last, wanted) ? POLL_MS : 0);
	}
	assert_string_equal(last, wanted);
}

/* Waits until it has ended. */
static inline void await_result(
	const struct daemon *daemon, const char *id, const char *command, const char *wanted)
{
	await_field(daemon, id, command, "state", "\"ended\"");
	expect_field(daemon, id, command, "result", wanted);
}

/* --- the upgraded form --- */

/* Runs one, its STARTED read; the stream is the caller's to close. */
static inline void start_followed(const struct daemon *daemon, struct stream *stream, const char *id,
	const char *body, char command[32])
{
	static const char header[] = "Tinderbox-Command: ";
	char path[SANDBOX_PATH_MAX], head[2048];

	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", id);
	assert_int_equal(open_stream_at(daemon, stream, path, body, head), 101);
	snprintf(command, 32, "%.20s", strstr(head, header) + strlen(header));
	expect(stream, AGENT_STARTED);
}

/* The same of one that is kept without its client, who leaves. */
static inline void start_detached(
	const struct daemon *daemon, const char *id, const char *body, char command[32])
{
	struct stream stream;

	start_followed(daemon, &stream, id, body, command);
	close_stream(&stream);
}

struct command {
	char id[32], token[80];
};

static inline void take_token(struct answer *answer, struct command *command)
{
	assert_int_equal(answer->status, 201);
	snprintf(command->id, sizeof command->id, "%s",
		json_string_value(json_object_get(answer->json, "id")));
	snprintf(command->token, sizeof command->token, "%s",
		json_string_value(json_object_get(answer->json, "attach_token")));
	assert_int_equal(strlen(command->token), 64);
	answer_finish(answer);
}

static inline void create_command(
	const struct daemon *daemon, const char *id, const char *body, struct command *command)
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/commands", body, &answer);
	take_token(&answer, command);
}

static inline void renew_token(const struct daemon *daemon, const char *id, struct command *command)
{
	struct answer answer;
	char rest[SANDBOX_PATH_MAX];

	snprintf(rest, sizeof rest, "/commands/%s/token", command->id);
	call_sandbox(daemon, "POST", id, rest, NULL, &answer);
	take_token(&answer, command);
}

/* more: fields after the token's, such as ",\"stdout_offset\":3". The status. */
static inline int attach(const struct daemon *daemon, const char *id, const struct command *command,
	const char *more, struct stream *stream)
{
	char path[SANDBOX_PATH_MAX], body[256], head[2048];

	snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/attach", id, command->id);
	snprintf(body, sizeof body, "{\"token\":\"%s\"%s}", command->token, more);
	return open_stream_at(daemon, stream, path, body, head);
}

/* One that is refused as plain HTTP. */
static inline void expect_no_attach(const struct daemon *daemon, const char *id,
	const struct command *command, const char *more, int status, const char *code, const char *message)
{
	char path[SANDBOX_PATH_MAX], body[256];
	struct answer answer;
	int fd = client_open(daemon);

	snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/attach", id, command->id);
	snprintf(body, sizeof body, "{\"token\":\"%s\"%s}", command->token, more);
	client_request(fd, "POST", path, UPGRADE, body);
	client_answer(fd, &answer);
	close(fd);
	expect_error_answer(&answer, status, code, message);
}

/* Attaches to one with its token, which starts it; STARTED is read. */
static inline void start_attached(const struct daemon *daemon, const char *id, const char *body,
	struct command *command, struct stream *stream)
{
	create_command(daemon, id, body, command);
	assert_int_equal(attach(daemon, id, command, "", stream), 101);
	expect(stream, AGENT_STARTED);
}

/* --- a dialogue by stdin --- */

/* A cat that is attached to, and has given back "first". */
static inline void begin_dialogue(
	const struct daemon *daemon, const char *id, struct command *command, struct stream *stream)
{
	start_attached(daemon, id, "{\"argv\":[\"cat\"],\"stdin_stream\":true}", command, stream);
	send_frame(stream, AGENT_STDIN, "first", 5);
	expect_output(stream, AGENT_STDOUT, 0, "first");
}

/* Attached to again, with a new token and from that offset on; what was taken of stdin is known. */
static inline void take_up_dialogue(const struct daemon *daemon, const char *id, struct command *command,
	int offset, struct stream *stream)
{
	struct agent_started started;
	char more[64];

	renew_token(daemon, id, command);
	snprintf(more, sizeof more, ",\"stdout_offset\":%d", offset);
	assert_int_equal(attach(daemon, id, command, more, stream), 101);
	expect(stream, AGENT_STARTED);
	memcpy(&started, stream->frame.payload, sizeof started);
	assert_int_equal(started.stdin_offset, 5);
	assert_int_equal(started.stdin_credit, AGENT_STDIN_WINDOW);
	assert_int_equal(started.pid, 77);
	expect_output(stream, AGENT_STDOUT, (uint64_t)offset, &"first"[offset]);
}

/* More is given back, from that offset on, and then the end. */
static inline void end_dialogue(struct stream *stream, uint64_t offset, const char *text)
{
	send_frame(stream, AGENT_STDIN, text, strlen(text));
	expect_output(stream, AGENT_STDOUT, offset, text);
	expect(stream, AGENT_STDIN_CREDIT);
	send_frame(stream, AGENT_STDIN_EOF, NULL, 0);
	expect_exit(stream, AGENT_EXITED, 0);
}

/* Why its token is not taken. */
static inline void denial(
	const char *sandbox, const char *command, const char *fault, char *message, size_t size)
{
	snprintf(message, size, "the token %s: POST /v1/sandboxes/%s/commands/%s/token makes another", fault,
		sandbox, command);
}

#endif
