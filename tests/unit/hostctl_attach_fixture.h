/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of a whole daemon's sandboxes, and attaching to them. */
#ifndef TESTS_UNIT_HOSTCTL_ATTACH_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_ATTACH_FIXTURE_H

#include "tests/unit/hostctl_sandboxes_fixture.h"

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

/* Waits until it has ended. */
static inline void await_result(
	const struct daemon *daemon, const char *id, const char *command, const char *wanted)
{
	char rest[SANDBOX_PATH_MAX], last[256] = "null";

	snprintf(rest, sizeof rest, "/commands/%s", command);
	for (int waited = 0; !strcmp(last, "null") && waited < WAIT_MS; waited += POLL_MS) {
		struct answer answer;

		call_sandbox(daemon, "GET", id, rest, NULL, &answer);
		snprintf(last, sizeof last, "%.255s", member(&answer, "result"));
		answer_finish(&answer);
		sleep_ms(POLL_MS);
	}
	assert_string_equal(last, wanted);
}

#endif
