/* SPDX-License-Identifier: Apache-2.0 */
/* The plain form of a run: the output is collected, and one JSON object tells it all. */
#include "host-ctl/api/api_run.h"
#include "host-ctl/run/run_json.h"

struct plain_run {
	struct api_run base;
	struct run_output output[2]; /* stdout, stderr */
};

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
		body = run_answer_to_json(result, run->output);
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
