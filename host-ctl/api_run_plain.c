/* SPDX-License-Identifier: Apache-2.0 */
/* The plain form of a run: the output is collected, and one JSON object tells it all. */
#include "host-ctl/api_run.h"
#include "host-ctl/run_output.h"
#include "host-ctl/start_step.h"

#include <string.h>

struct plain_run {
	struct api_run base;
	struct run_output output[2]; /* stdout, stderr */
};

/* What a guest says may be any 64 bits; JSON's integers here are signed. */
static json_int_t clamp(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

static json_t *result_to_json(const struct run_result *result)
{
	const struct agent_exit *exit = &result->exit;
	const char *kind = run_result_name(result), *text;

	switch (exit->kind) {
	case AGENT_EXITED:
		return json_pack("{s:s,s:i}", "kind", kind, "code", (int)exit->code);
	case AGENT_SIGNALLED:
		return json_pack(
			"{s:s,s:i,s:b}", "kind", kind, "signal", (int)exit->code, "core", (int)exit->core);
	case AGENT_TIMED_OUT:
		return json_pack("{s:s,s:s}", "kind", kind, "by", result->by_host ? "host" : "guest");
	case AGENT_FAILED_TO_START:
		text = strerrordesc_np(exit->code);
		return json_pack("{s:s,s:i,s:s,s:s}", "kind", kind, "errno", (int)exit->code, "error",
			text ? text : "unknown error", "step", start_step_name(exit->step));
	default:
		return json_pack("{s:s}", "kind", kind);
	}
}

static json_t *usage_to_json(const struct agent_exit *exit)
{
	return json_pack("{s:I,s:I,s:I,s:I}", "wall_us", clamp(exit->wall_us), "user_us",
		clamp(exit->user_us), "system_us", clamp(exit->system_us), "max_rss_kib",
		clamp(exit->max_rss_kib));
}

static json_t *timing_to_json(const struct run_result *result)
{
	return json_pack("{s:I,s:o,s:I}", "queued_us", clamp(result->queued_us), "first_byte_us",
		result->first_byte_us ? json_integer(clamp(result->first_byte_us)) : json_null(), "total_us",
		clamp(result->total_us));
}

static json_t *to_json(struct plain_run *run, const struct run_result *result)
{
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:s,s:b}", "result", result_to_json(result), "stdout",
		run_output_to_json(&run->output[0], result->exit.stdout_bytes), "stderr",
		run_output_to_json(&run->output[1], result->exit.stderr_bytes), "usage",
		usage_to_json(&result->exit), "timing", timing_to_json(result), "vm", result->vm, "warm",
		(int)result->warm);
}

static bool has_room(void *context)
{
	(void)context;
	return true;
}

static void take_frame(void *context, const struct frame *frame)
{
	struct plain_run *run = context;
	const size_t skip = sizeof(struct agent_output);

	if (frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR)
		run_output_add(&run->output[frame->type == AGENT_STDERR], frame->payload + skip,
			frame->length - skip);
}

static void drained(void *context)
{
	(void)context;
}

static void done(void *context, const struct run_result *result)
{
	struct plain_run *run = context;
	struct http_request *request = run->base.request;
	struct error error;
	json_t *body = NULL;

	run->base.running = false;
	if (!result->error.kind)
		body = to_json(run, result);
	api_run_destroy(&run->base, NULL);
	if (result->error.kind) {
		http_reply_error(request, &result->error);
	} else if (body) {
		http_reply_json(request, 200, body);
	} else {
		error_set(&error, ERROR_INTERNAL, "out of memory for the answer");
		http_reply_error(request, &error);
	}
}

static void begin(struct api_run *base)
{
	(void)base;
}

static void finish(struct api_run *base)
{
	struct plain_run *run = (struct plain_run *)base;

	run_output_finish(&run->output[0]);
	run_output_finish(&run->output[1]);
}

static const struct run_sink sink = {
	.has_room = has_room, .frame = take_frame, .drained = drained, .done = done};

const struct api_run_form api_run_plain = {
	.size = sizeof(struct plain_run), .sink = &sink, .begin = begin, .finish = finish};
