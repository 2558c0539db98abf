/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_result.h"
#include "host-ctl/vm/start_step.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SIGNAL_MAX = 64, ERRNO_MAX = 4095 };

/* The names of the API's result, and the codes that each may carry. */
static const struct {
	const char *name;	/* of the kind */
	const char *code_field; /* in JSON; NULL: no code */
	int minimum, maximum;
} kinds[] = {
	[AGENT_EXITED] = {"exited", "code", 0, 255},
	[AGENT_SIGNALLED] = {"signalled", "signal", 1, SIGNAL_MAX},
	[AGENT_TIMED_OUT] = {"timed_out", NULL, 0, 0},
	[AGENT_OUT_OF_MEMORY] = {"out_of_memory", NULL, 0, SIGNAL_MAX},
	[AGENT_FAILED_TO_START] = {"failed_to_start", "errno", 1, ERRNO_MAX},
	[AGENT_KILLED] = {"killed", NULL, 0, SIGNAL_MAX},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static bool is_sane(const struct cmd_result *result)
{
	unsigned int kind = result->kind, step = result->step;

	return kind >= AGENT_EXITED && kind < KINDS && result->code >= kinds[kind].minimum &&
	       result->code <= kinds[kind].maximum && start_step_name(step);
}

int cmd_result_from_frame(struct cmd_result *result, const struct frame *frame)
{
	struct agent_exit exit;

	if (frame->type != AGENT_EXIT || frame->length != sizeof(exit))
		return -EPROTO;
	memcpy(&exit, frame->payload, sizeof(exit));
	*result = (struct cmd_result){
		.kind = exit.kind,
		.code = exit.code,
		.step = exit.step,
		.stdout_bytes = exit.stdout_bytes,
		.stderr_bytes = exit.stderr_bytes,
	};
	return is_sane(result) ? 0 : -EPROTO;
}

/* The step of that name; one without a name when there is none. */
static unsigned int find_step(const char *name)
{
	unsigned int i = 0;

	while (start_step_name(i) && (!name || strcmp(start_step_name(i), name) != 0))
		i++;
	return i;
}

int cmd_result_from_json(struct cmd_result *result, const json_t *answer)
{
	const json_t *object = json_object_get(answer, "result");
	const char *kind = json_string_value(json_object_get(object, "kind"));
	const json_t *code;
	unsigned int i = AGENT_EXITED;

	while (i < KINDS && (!kind || strcmp(kinds[i].name, kind) != 0))
		i++;
	if (i == KINDS)
		return -EPROTO;
	*result = (struct cmd_result){.kind = i};
	if (kinds[i].code_field) {
		code = json_object_get(object, kinds[i].code_field);
		if (!json_is_integer(code) || json_integer_value(code) < kinds[i].minimum ||
			json_integer_value(code) > kinds[i].maximum)
			return -EPROTO;
		result->code = (int)json_integer_value(code);
	}
	if (i == AGENT_FAILED_TO_START)
		result->step = find_step(json_string_value(json_object_get(object, "step")));
	return is_sane(result) ? 0 : -EPROTO;
}

/* What the caller asked for and cannot be had, apart from what the guest could not do. */
static int start_status(const struct cmd_result *result)
{
	switch (result->step) {
	case AGENT_STEP_EXEC:
		return result->code == ENOENT ? CMD_STATUS_NOT_FOUND : CMD_STATUS_NOT_EXECUTABLE;
	case AGENT_STEP_USER:
	case AGENT_STEP_CWD:
		return CMD_STATUS_NOT_EXECUTABLE;
	default:
		return CMD_STATUS_FAILED;
	}
}

int cmd_result_status(const struct cmd_result *result)
{
	switch (result->kind) {
	case AGENT_EXITED:
		return result->code;
	case AGENT_SIGNALLED:
		return CMD_STATUS_SIGNAL + result->code;
	case AGENT_TIMED_OUT:
		return CMD_STATUS_TIMED_OUT;
	case AGENT_OUT_OF_MEMORY:
	case AGENT_KILLED:
		return CMD_STATUS_SIGNAL + SIGKILL;
	case AGENT_FAILED_TO_START:
		return start_status(result);
	}
	return CMD_STATUS_FAILED;
}

static const char *start_reason(const struct cmd_result *result)
{
	if (result->step == AGENT_STEP_USER && result->code == ENOENT)
		return "no such user in the guest";
	return strerror(result->code);
}

static const char *start_subject(const struct cmd_result *result, const struct cmd_options *options)
{
	switch (result->step) {
	case AGENT_STEP_USER:
		return options->user ? options->user : "root";
	case AGENT_STEP_CWD:
		return options->cwd ? options->cwd : "the user's home";
	default:
		return options->argv[0];
	}
}

/* Without a limit of the command line, it was the daemon's. */
static void describe_time_out(const struct cmd_options *options, char *text, size_t size)
{
	unsigned long long limit = options->timeout_ms;

	if (limit == 0)
		snprintf(text, size, "timed out: %s did not end in time and was ended", options->argv[0]);
	else if (limit % 1000 == 0)
		snprintf(text, size, "timed out: %s did not end within %llus and was ended", options->argv[0],
			limit / 1000);
	else
		snprintf(text, size, "timed out: %s did not end within %llums and was ended",
			options->argv[0], limit);
}

void cmd_result_describe(
	const struct cmd_result *result, const struct cmd_options *options, char *text, size_t size)
{
	const char *argv0 = options->argv[0];

	text[0] = '\0';
	switch (result->kind) {
	case AGENT_EXITED:
	case AGENT_SIGNALLED:
		break;
	case AGENT_TIMED_OUT:
		describe_time_out(options, text, size);
		break;
	case AGENT_OUT_OF_MEMORY:
		snprintf(text, size, "out of memory: %s was ended", argv0);
		break;
	case AGENT_KILLED:
		snprintf(text, size, "killed: %s was ended", argv0);
		break;
	case AGENT_FAILED_TO_START:
		snprintf(text, size, "failed to start: %s: %s (step: %s)", start_subject(result, options),
			start_reason(result), start_step_name(result->step));
		break;
	}
}
