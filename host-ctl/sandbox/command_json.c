/* SPDX-License-Identifier: Apache-2.0 */
/* What the API tells of a command. */
#include "host-ctl/run/run_json.h"
#include "host-ctl/sandbox/command.h"

static const char *const states[COMMAND_STATE_COUNT] = {
	[COMMAND_CREATED] = "created",
	[COMMAND_WAKING] = "starting",
	[COMMAND_CONNECTING] = "starting",
	[COMMAND_RUNNING] = "running",
	[COMMAND_ENDED] = "ended",
};

const char *command_state_name(const struct command *command)
{
	if (command->returns && command->state != COMMAND_ENDED)
		return states[COMMAND_RUNNING];
	if (command->state == COMMAND_RUNNING && !command->started)
		return "starting";
	return states[command->state];
}

static json_t *time_or_null(uint64_t milliseconds)
{
	return milliseconds ? json_integer((json_int_t)milliseconds) : json_null();
}

static json_t *output_to_json(const struct command *command, int stream)
{
	const struct run_output *output = &command->output[stream];
	uint64_t lost = command->fetches ? 0 : output->total - output->length;

	return json_pack("{s:I,s:I,s:o,s:I}", "bytes", (json_int_t)output->total, "held",
		(json_int_t)output->length, "lost",
		command->uncounted ? json_null() : json_integer((json_int_t)lost), "oldest",
		(json_int_t)run_output_oldest(output));
}

/* result, error and usage: null where there is none. */
static int add_end(const struct command *command, json_t *object)
{
	const struct run_result *result = &command->result;
	bool ended = command->state == COMMAND_ENDED, failed = ended && result->error.kind;
	json_t *error = failed ? error_to_json(&result->error) : NULL;
	int status = json_object_set(object, "error", error ? json_object_get(error, "error") : json_null());

	json_decref(error);
	return status |
	       json_object_set_new(
		       object, "result", ended && !failed ? run_result_to_json(result) : json_null()) |
	       json_object_set_new(
		       object, "usage", ended && !failed ? run_usage_to_json(&result->exit) : json_null());
}

json_t *command_to_json(const struct command *command)
{
	json_t *object = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:o,s:o,s:o,s:o,s:o}", "id", command->id,
		"sandbox", command->sandbox->id, "state", command_state_name(command), "argv0", command->name,
		"on_detach", command->keep ? "keep" : "kill", "attached", (int)(command->reader != NULL),
		"stdout", output_to_json(command, 0), "stderr", output_to_json(command, 1), "created_ms",
		time_or_null(command->created_ms), "started_ms", time_or_null(command->started_ms),
		"ended_ms", time_or_null(command->ended_ms));

	if (object && add_end(command, object) == 0)
		return object;
	json_decref(object);
	return NULL;
}
