/* SPDX-License-Identifier: Apache-2.0 */
/* The resources /v1/sandboxes/ID/commands, as far as they answer at once. */
#include "host-ctl/api/api_commands.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/sandbox/command_record.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PART_MAX = 80 };

struct sandbox *api_find_sandbox(struct api *api, const struct http_request *request, struct error *error)
{
	char id[PART_MAX];

	api_path_part(request, 2, id, sizeof id);
	return sandboxes_find(api->sandboxes, id, error);
}

struct command *api_find_command(struct api *api, const struct http_request *request, struct error *error)
{
	struct sandbox *sandbox = api_find_sandbox(api, request, error);
	char id[PART_MAX];

	if (!sandbox)
		return NULL;
	api_path_part(request, 4, id, sizeof id);
	return commands_find(sandbox, id, error);
}

int api_check_fetched(const struct command *command, struct error *error)
{
	if (!command->fetches)
		return 0;
	return error_set(error, ERROR_NOT_READY,
		"the output of command %s is still in its guest: try again when its sandbox is ready",
		command->id);
}

struct command *api_create_command(
	struct api *api, const struct http_request *request, const char *on_detach, struct error *error)
{
	struct sandbox *sandbox = api_find_sandbox(api, request, error);
	struct command *command = NULL;
	enum sandbox_state next;
	json_t *body;

	if (!sandbox || sandbox_check(sandbox, SANDBOX_EXEC, &next, error))
		return NULL;
	body = run_request_load(request->body, request->body_length, RUN_COMMAND, error);
	if (body && !json_object_get(body, "on_detach") &&
		json_object_set_new(body, "on_detach", json_string(on_detach)))
		error_set(error, ERROR_INTERNAL, "out of memory for the command");
	else if (body)
		command = command_create(sandbox, body, request->body_length, error);
	json_decref(body);
	return command;
}

/* No body and no error: there was no memory for the body. */
static void reply(struct http_request *request, unsigned int status, json_t *body, const struct error *error)
{
	if (body || error->kind == ERROR_NONE)
		http_reply_json(request, status, body);
	else
		http_reply_error(request, error);
}

static json_t *token_to_json(const struct command *command)
{
	return json_pack("{s:s,s:s,s:i}", "id", command->id, "attach_token", command->token.text,
		"expires_ms", COMMAND_TOKEN_MS);
}

/* Its row is written, and so it may be promised; or it is not. */
static void created(struct command *command, const struct error *error)
{
	struct http_request *request = command->creator;

	command_drop(command);
	if (!error) {
		http_reply_json(request, 201, token_to_json(command));
		return;
	}
	http_reply_error(request, error);
	command_destroy(command);
}

/* Nobody was told of it. */
static void creator_left(void *context)
{
	struct command *command = context;

	command->created = NULL;
	command_drop(command);
	if (command->state == COMMAND_CREATED)
		command_destroy(command);
}

void api_commands_post(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	struct command *command = api_create_command(api, request, "keep", &error);

	if (!command) {
		reply(request, 201, NULL, &error);
		return;
	}
	command->created = created;
	command->creator = request;
	command_hold(command);
	request->left = creator_left;
	request->left_context = command;
	if (command_record(command, &error))
		created(command, &error);
}

void api_commands_get(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	struct sandbox *sandbox = api_find_sandbox(api, request, &error);

	reply(request, 200, sandbox ? commands_to_json(sandbox) : NULL, &error);
}

void api_command_get(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	struct command *command = api_find_command(api, request, &error);

	reply(request, 200, command ? command_to_json(command) : NULL, &error);
}

void api_command_delete(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	struct command *command = api_find_command(api, request, &error);
	json_t *body = NULL;

	if (command && command->holders) {
		error_set(&error, ERROR_CONFLICT, "command %s is being read", command->id);
	} else if (command && command->state != COMMAND_ENDED && command->state != COMMAND_CREATED) {
		error_set(&error, ERROR_CONFLICT, "command %s runs: kill it first", command->id);
	} else if (command) {
		body = json_pack("{s:s}", "removed", command->id);
		command_destroy(command);
	}
	reply(request, 200, body, &error);
}

/* One more attachment; the token before it is good no more. */
void api_command_token(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	struct command *command = api_find_command(api, request, &error);
	json_t *body = NULL;

	if (command && command_token_make(&command->token, COMMAND_TOKEN_MS))
		error_set(&error, ERROR_INTERNAL, "no random bytes for a token");
	else if (command)
		body = token_to_json(command);
	reply(request, 201, body, &error);
}

/* --- what a command is told --- */

static int refuse_input(const struct command *command, struct error *error)
{
	return error_set(error, ERROR_CONFLICT, "command %s is %s: it does not run", command->id,
		command_state_name(command));
}

/* 0, or -1 with *error set. */
static int tell(struct command *command, const struct frame *frame, struct error *error)
{
	const char *why = "";
	int status = command_input(command, frame, &why);

	if (status == -ENOTCONN)
		return refuse_input(command, error);
	if (status == -EAGAIN && command->sandbox->state == SANDBOX_SUSPENDING)
		return error_set(error, ERROR_NOT_READY,
			"command %s takes nothing while sandbox %s is being suspended: wake that, and try "
			"again",
			command->id, command->sandbox->id);
	if (status == -EAGAIN)
		return error_set(error, ERROR_EXHAUSTED, "command %s takes nothing at present", command->id);
	return status ? error_set(error, ERROR_INVALID, "%s", why) : 0;
}

static void tell_and_reply(
	struct http_request *request, struct command *command, const struct frame *frame, struct error *error)
{
	json_t *body = NULL;

	if (command && tell(command, frame, error) == 0)
		body = command_to_json(command);
	reply(request, 200, body, error);
}

void api_command_kill(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	struct command *command = api_find_command(api, request, &error);

	/* One that has ended is as it was to be. */
	if (command)
		command_kill(command);
	reply(request, 200, command ? command_to_json(command) : NULL, &error);
}

void api_command_signal(struct api *api, struct http_request *request)
{
	static const char *const fields[] = {"signal", NULL};
	struct error error = {.kind = ERROR_NONE};
	struct command *command = api_find_command(api, request, &error);
	json_t *body = command ? http_body_parse(request, fields, &error) : NULL;
	unsigned int number = 0;
	struct agent_signal signal = {.signal = 0};
	const struct frame frame = {
		.type = AGENT_SIGNAL, .length = sizeof signal, .payload = (const uint8_t *)&signal};

	if (!body || http_body_number(body, "signal", 1, 64, &number, &error))
		command = NULL;
	signal.signal = number;
	json_decref(body);
	tell_and_reply(request, command, &frame, &error);
}

/* The bytes of data or data_b64, from malloc; NULL with *error set. */
static uint8_t *take_data(const json_t *body, size_t *length, struct error *error)
{
	const json_t *plain = json_object_get(body, "data"), *coded = json_object_get(body, "data_b64");
	const json_t *given = coded ? coded : plain;
	ptrdiff_t decoded = (ptrdiff_t)json_string_length(given);
	uint8_t *bytes;

	if ((plain && coded) || (given && !json_is_string(given))) {
		error_set(error, ERROR_INVALID, "give one of data and data_b64, a string");
		return NULL;
	}
	bytes = malloc(json_string_length(given) + 1);
	if (!bytes) {
		error_set(error, ERROR_INTERNAL, "out of memory for the data");
		return NULL;
	}
	if (coded)
		decoded = text_base64_decode(bytes, json_string_value(coded), json_string_length(coded));
	else if (plain)
		memcpy(bytes, json_string_value(plain), (size_t)decoded);
	*length = (size_t)decoded;
	if (decoded >= 0 && decoded <= AGENT_DATA_MAX)
		return bytes;
	free(bytes);
	if (decoded < 0)
		error_set(error, ERROR_INVALID, "data_b64 is not base64");
	else
		error_set(error, ERROR_TOO_LARGE, "the data is over %d bytes", AGENT_DATA_MAX);
	return NULL;
}

/* data, then the end of stdin when eof is true. To be told nothing, too, is only for what runs. */
static int send_input(struct command *command, const json_t *body, struct error *error)
{
	const json_t *eof = json_object_get(body, "eof");
	const struct frame end = {.type = AGENT_STDIN_EOF};
	struct frame frame = {.type = AGENT_STDIN};
	size_t length = 0;
	uint8_t *bytes;
	int status = 0;

	if (eof && !json_is_boolean(eof))
		return error_set(error, ERROR_INVALID, "eof is not true or false");
	bytes = take_data(body, &length, error);
	if (!bytes)
		return -1;
	frame.payload = bytes;
	frame.length = (uint32_t)length;
	if (command->state == COMMAND_CREATED || command->state == COMMAND_ENDED)
		status = refuse_input(command, error);
	if (!status && length)
		status = tell(command, &frame, error);
	if (!status && json_is_true(eof))
		status = tell(command, &end, error);
	free(bytes);
	return status;
}

void api_command_stdin(struct api *api, struct http_request *request)
{
	static const char *const fields[] = {"data", "data_b64", "eof", NULL};
	struct error error = {.kind = ERROR_NONE};
	struct command *command = api_find_command(api, request, &error);
	json_t *body = command ? http_body_parse(request, fields, &error) : NULL, *answer = NULL;

	if (body && send_input(command, body, &error) == 0)
		answer = command_to_json(command);
	json_decref(body);
	reply(request, 200, answer, &error);
}
