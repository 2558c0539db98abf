/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that a client follows to its end:
 *
 *   attach   token → started, if it is not yet → 101 → STARTED, output from the offsets on, EXIT or
 * HOST_ERROR run      created and started in one → one JSON answer, or 101 as above
 *
 * The frames are made from what the command keeps, so that one who reads slowly, or attaches late, gets the
 * same bytes at the same offsets. What the host dropped meanwhile ends the stream with `incomplete`.
 */
#include "host-ctl/api/api_commands.h"
#include "host-ctl/api/api_stream.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/run/run_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the upgraded form --- */

struct attached {
	struct command *command; /* held */
	struct command_reader reader;
	struct api_stream stream;
	bool over;	/* its last frame was put */
	bool oldest[2]; /* it reads from the oldest byte on, which is not known yet */
	bool unchecked; /* whether there is output at its offsets was not known */
};

/* After its last frame. The memory may be gone after the call. */
static void finish(struct attached *attached)
{
	attached->over = true;
	command_detach(attached->command, &attached->reader);
	api_stream_end(&attached->stream);
}

static void finish_with_error(struct attached *attached, enum error_kind kind, const char *text)
{
	struct error error;

	error_set(&error, kind, "%s", text);
	api_stream_put_error(&attached->stream, &error);
	finish(attached);
}

/* One frame of one stream's output: 1; 0: there is no more; -EAGAIN: no room; -ENODATA: it was dropped. */
static int put_output(struct attached *attached, int stream)
{
	const struct run_output *output = &attached->command->output[stream];
	struct agent_output head = {.offset = attached->reader.at[stream]};
	const uint8_t *bytes;
	ptrdiff_t length;

	if (attached->oldest[stream] && output->total)
		head.offset = attached->reader.at[stream] = run_output_oldest(output);
	attached->oldest[stream] = attached->oldest[stream] && !output->total;
	if (head.offset >= output->total)
		return 0;
	if (!api_stream_has_room(&attached->stream))
		return -EAGAIN;
	length = run_output_peek(output, head.offset, &bytes);
	if (length < 0)
		return -ENODATA;
	if (length > AGENT_DATA_MAX)
		length = AGENT_DATA_MAX;
	api_stream_put(&attached->stream, stream ? AGENT_STDERR : AGENT_STDOUT, &head, sizeof head, bytes,
		(size_t)length);
	attached->reader.at[stream] += (uint64_t)length;
	return 1;
}

static void put_end(struct attached *attached)
{
	const struct run_result *result = &attached->command->result;

	if (result->error.kind)
		api_stream_put_error(&attached->stream, &result->error);
	else
		api_stream_put(&attached->stream, AGENT_EXIT, &result->exit, sizeof result->exit, NULL, 0);
	finish(attached);
}

/* Of an offset that could not be checked when it was given. */
static bool is_beyond(const struct attached *attached)
{
	const struct command *command = attached->command;

	return !command->uncounted && (attached->reader.at[0] > command->output[0].total ||
					      attached->reader.at[1] > command->output[1].total);
}

/* Puts what there is room for, and the end when that comes next. False: the memory may be gone. */
static bool pump(struct attached *attached)
{
	int status = 1;

	for (int stream = 0; stream < 2 && status >= 0; stream++) {
		do
			status = put_output(attached, stream);
		while (status > 0);
	}
	if (status == -ENODATA) {
		finish_with_error(attached, attached->unchecked ? ERROR_CONFLICT : ERROR_INCOMPLETE,
			attached->unchecked ? "output at the given offset is no longer held"
					    : "output was dropped before this client had read it");
		return false;
	}
	if (status < 0 || attached->command->state != COMMAND_ENDED)
		return true;
	if (is_beyond(attached))
		finish_with_error(attached, ERROR_INVALID, "the given offset is beyond what was written");
	else
		put_end(attached);
	return false;
}

static void reader_frame(void *context, const struct frame *frame)
{
	struct attached *attached = context;

	api_stream_put(&attached->stream, frame->type, frame->payload, frame->length, NULL, 0);
}

/* From within the session's turn: it is not at its end. */
static void reader_more(void *context)
{
	pump(context);
}

static void reader_settled(void *context)
{
	struct attached *attached = context;

	api_stream_flush(&attached->stream);
}

static void reader_drained(void *context)
{
	struct attached *attached = context;

	api_stream_read_on(&attached->stream);
}

static void reader_ended(void *context)
{
	struct attached *attached = context;

	if (pump(attached))
		api_stream_flush(&attached->stream);
}

static void reader_replaced(void *context)
{
	finish_with_error(context, ERROR_CONFLICT, "another client attached to the command");
}

static const struct command_reader_events reader_events = {.frame = reader_frame,
	.more = reader_more,
	.settled = reader_settled,
	.drained = reader_drained,
	.ended = reader_ended,
	.replaced = reader_replaced};

static int stream_frame(void *context, const struct frame *frame, const char **why)
{
	struct attached *attached = context;
	int status = command_input(attached->command, frame, why);

	/* What crosses its end is ignored. */
	return status == -ENOTCONN ? 0 : status;
}

static void stream_room(void *context)
{
	struct attached *attached = context;

	if (!pump(attached))
		return;
	api_stream_flush(&attached->stream);
	command_read_on(attached->command);
}

static void stream_left(void *context, const char *why)
{
	(void)why;
	finish(context);
}

/* The daemon's stop ends the sandbox's VM. Of a command that was given to its guest nobody is told that it
 * has had no effect. */
static void stream_stop(void *context)
{
	struct attached *attached = context;
	const struct command *command = attached->command;
	char text[ERROR_MESSAGE_MAX];

	if (command->state == COMMAND_ENDED) {
		finish_with_error(attached, ERROR_INCOMPLETE,
			"the daemon is stopping, and the command has ended: ask the next one for its result");
	} else if (command->state == COMMAND_RUNNING || command->returns) {
		snprintf(text, sizeof text,
			"no result: the daemon is stopping, and sandbox %s ends with it; the command may "
			"have run",
			command->sandbox->id);
		finish_with_error(attached, ERROR_INCOMPLETE, text);
	} else {
		finish_with_error(
			attached, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	}
}

static void stream_closed(void *context)
{
	struct attached *attached = context;

	command_drop(attached->command);
	free(attached);
}

static const struct api_stream_events stream_events = {.frame = stream_frame,
	.room = stream_room,
	.left = stream_left,
	.stop = stream_stop,
	.closed = stream_closed};

/* Attaches to a command that was started. */
static void attach(struct attached *attached, struct api *api, struct http_request *request)
{
	struct command *command = attached->command;
	const char *const headers[] = {
		"Tinderbox-Sandbox", command->sandbox->id, "Tinderbox-Command", command->id, NULL};
	const struct agent_started started = command_started(command);

	command_hold(command);
	attached->reader.events = &reader_events;
	attached->reader.context = attached;
	attached->reader.follows = true;
	api_stream_open(&attached->stream, api, request, headers, &stream_events, attached);
	if (command->started)
		api_stream_put(&attached->stream, AGENT_STARTED, &started, sizeof started, NULL, 0);
	command_attach(command, &attached->reader);
	if (!attached->over && pump(attached))
		api_stream_flush(&attached->stream);
}

static void refuse(struct http_request *request, const struct error *error)
{
	http_reply_error(request, error);
}

static void refuse_memory(struct http_request *request)
{
	struct error error;

	error_set(&error, ERROR_INTERNAL, "out of memory for the request");
	refuse(request, &error);
}

/* --- what may attach --- */

/* What is wrong with it, and where another is made. */
static int deny(const struct command *command, const char *fault, struct error *error)
{
	return error_set(error, ERROR_DENIED,
		"the token %s: POST /v1/sandboxes/%s/commands/%s/token makes another", fault,
		command->sandbox->id, command->id);
}

static int check_token(struct api *api, const struct command *command, const char *text, struct error *error)
{
	switch (command_token_check(&command->token, text)) {
	case TOKEN_GOOD:
		return 0;
	case TOKEN_USED:
		return deny(command, "was used before", error);
	case TOKEN_EXPIRED:
		return deny(command, "has expired", error);
	case TOKEN_REPLACED:
		return deny(command, "was replaced by one that was made since, which is good", error);
	default:
		if (commands_find_token(api->sandboxes, text))
			return deny(command, "is that of another command", error);
		return deny(command,
			command->token.restored
				? "is not this command's, or is void since the daemon was started anew"
				: "is not this command's",
			error);
	}
}

/* Where the client goes on: as it says, or at the oldest byte after which nothing is missing. */
static int parse_offset(
	struct attached *attached, const json_t *body, const char *field, int stream, struct error *error)
{
	const struct command *command = attached->command;
	uint64_t *offset = &attached->reader.at[stream];
	const struct run_output *output = &command->output[stream];
	const json_t *value = json_object_get(body, field);
	bool returns = command->returns && command->state != COMMAND_ENDED;
	const uint8_t *bytes;
	ptrdiff_t length;

	attached->unchecked = attached->unchecked || (value && returns);
	attached->oldest[stream] = !value && returns && !output->total;
	*offset = run_output_oldest(output);
	if (!value)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return error_set(error, ERROR_INVALID, "%s is not a whole number", field);
	*offset = (uint64_t)json_integer_value(value);
	length = run_output_peek(output, *offset, &bytes);
	/* What an earlier daemon has handed out may still be on its way to this one, or never come. */
	if (length == -EINVAL && (returns || command->uncounted))
		return 0;
	if (length == -EINVAL)
		return error_set(error, ERROR_INVALID, "%s is beyond the %llu bytes that were written", field,
			(unsigned long long)output->total);
	if (length < 0)
		return error_set(error, ERROR_CONFLICT,
			"output at %s %llu is no longer held: all from %llu on is", field,
			(unsigned long long)*offset, (unsigned long long)run_output_oldest(output));
	return 0;
}

static int parse_attach(
	struct api *api, const struct http_request *request, struct attached *attached, struct error *error)
{
	static const char *const fields[] = {"token", "stdout_offset", "stderr_offset", NULL};
	json_t *body = http_body_parse(request, fields, error);
	const char *token = json_string_value(json_object_get(body, "token"));
	int status = body ? 0 : -1;

	if (body && !token)
		status = error_set(error, ERROR_INVALID, "token is missing, or no string");
	if (!status && (check_token(api, attached->command, token, error) ||
			       api_check_fetched(attached->command, error) ||
			       parse_offset(attached, body, "stdout_offset", 0, error) ||
			       parse_offset(attached, body, "stderr_offset", 1, error)))
		status = -1;
	json_decref(body);
	return status;
}

void api_command_attach(struct api *api, struct http_request *request)
{
	struct error error;
	struct command *command = api_find_command(api, request, &error);
	struct attached *attached = calloc(1, sizeof *attached);

	if (command && attached)
		attached->command = command;
	if (command && !request->wants_upgrade) {
		error_set(
			&error, ERROR_INVALID, "attach needs the upgraded form (Upgrade: tinderbox-frames)");
		command = NULL;
	}
	if (command && attached &&
		(parse_attach(api, request, attached, &error) ||
			(command->state == COMMAND_CREATED && command_start(command, &error))))
		command = NULL;
	if (command && attached) {
		command->token.used = true;
		attach(attached, api, request);
		return;
	}
	free(attached);
	if (command)
		refuse_memory(request);
	else
		refuse(request, &error);
}

/* --- run: created and started in one --- */

struct plain {
	struct http_request *request;
	struct command *command; /* held, so that all of its output is there for the answer */
	struct command_reader reader;
};

static void reply_result(struct http_request *request, struct command *command)
{
	json_t *body;

	if (command->result.error.kind) {
		refuse(request, &command->result.error);
		return;
	}
	body = run_answer_to_json(&command->result, command->output);
	if (body)
		json_object_set_new(body, "sandbox", json_string(command->sandbox->id));
	if (body)
		json_object_set_new(body, "command", json_string(command->id));
	http_reply_json(request, 200, body);
}

static void ignore_frame(void *context, const struct frame *frame)
{
	(void)context;
	(void)frame;
}

static void ignore(void *context)
{
	(void)context;
}

static void finish_plain(struct plain *plain)
{
	command_drop(plain->command);
	free(plain);
}

static void plain_ended(void *context)
{
	struct plain *plain = context;

	reply_result(plain->request, plain->command);
	finish_plain(plain);
}

static void plain_replaced(void *context)
{
	struct plain *plain = context;
	struct error error;

	error_set(&error, ERROR_CONFLICT, "another client attached to command %s", plain->command->id);
	refuse(plain->request, &error);
	finish_plain(plain);
}

static const struct command_reader_events plain_events = {.frame = ignore_frame,
	.more = ignore,
	.settled = ignore,
	.drained = ignore,
	.ended = plain_ended,
	.replaced = plain_replaced};

static void plain_left(void *context)
{
	struct plain *plain = context;

	command_detach(plain->command, &plain->reader);
	finish_plain(plain);
}

static void wait_plain(struct http_request *request, struct command *command)
{
	struct plain *plain;

	if (command->state == COMMAND_ENDED) {
		reply_result(request, command);
		return;
	}
	plain = calloc(1, sizeof *plain);
	if (!plain) {
		command_kill(command);
		refuse_memory(request);
		return;
	}
	*plain = (struct plain){.request = request,
		.command = command,
		.reader = {.events = &plain_events, .context = plain}};
	request->left = plain_left;
	request->left_context = plain;
	command_hold(command);
	command_attach(command, &plain->reader);
}

static int start(const struct http_request *request, struct command *command, struct error *error)
{
	if (command->request.input_streams && !request->wants_upgrade)
		return error_set(error, ERROR_INVALID,
			"stdin_stream needs the upgraded form (Upgrade: tinderbox-frames)");
	return command_start(command, error);
}

void api_sandbox_run(struct api *api, struct http_request *request)
{
	struct attached *attached = request->wants_upgrade ? calloc(1, sizeof *attached) : NULL;
	struct command *command;
	struct error error;

	if (request->wants_upgrade && !attached) {
		refuse_memory(request);
		return;
	}
	command = api_create_command(api, request, "kill", &error);
	if (command && start(request, command, &error)) {
		command_destroy(command);
		command = NULL;
	}
	if (!command) {
		free(attached);
		refuse(request, &error);
		return;
	}
	command->token.used = true;
	if (!attached) {
		wait_plain(request, command);
		return;
	}
	attached->command = command;
	attach(attached, api, request);
}
