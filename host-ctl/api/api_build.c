/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/templates, its two forms.
 *
 *   plain     parse → build → one JSON answer, with the output of the commands
 *   upgraded  parse → build and 101 → PROGRESS, STDOUT and STDERR as they come → HOST_RESULT or HOST_ERROR
 *
 * A client that leaves ends its build. One that does not read holds up its own build's command, which is
 * bounded by that command's time-out.
 */
#include "common/io.h"
#include "common/parse.h"
#include "host-ctl/api/api_stream.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/image/image_store.h"
#include "host-ctl/run/run_output.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
	LAST_WORDS = 256,	  /* bytes of a failed build's output in the error */
	RUN_JSON_MAX = 96 * 1024, /* of the lines, which are in the frame of the result */
};

/* A build and who waits for it. */
struct build {
	struct api *api;
	struct http_request *request; /* NULL: upgraded, or the client has left */
	bool upgraded;
	struct api_stream stream;
	json_t *body; /* the strings of the order are in it */
	int image;    /* -1, or what keeps an image of the store from being removed until the build is done */
	char image_path[PATH_MAX];
	const char *commands[TEMPLATE_COMMANDS_MAX];
	unsigned int count;
	struct run_output output[2]; /* stdout, stderr; of the plain form */
	uint64_t written[2];	     /* bytes of the same */
	char last[LAST_WORDS];
	size_t last_length;
};

/* --- the order --- */

static int get_commands(struct build *build, unsigned int *count, struct error *error)
{
	json_t *list = json_object_get(build->body, "run"), *entry;
	size_t i;

	if (list && !json_is_array(list))
		return error_set(error, ERROR_INVALID, "run is not a list of strings");
	if (json_array_size(list) > TEMPLATE_COMMANDS_MAX)
		return error_set(error, ERROR_TOO_LARGE, "run has %zu entries, the limit is %d",
			json_array_size(list), TEMPLATE_COMMANDS_MAX);
	json_array_foreach(list, i, entry)
	{
		const char *text = json_string_value(entry);

		if (!text)
			return error_set(error, ERROR_INVALID,
				"run[%zu] is not a string: give a line for the guest's shell", i);
		if (!text[0])
			return error_set(error, ERROR_INVALID,
				"run[%zu] is empty: give a line for the guest's shell", i);
		if (json_string_length(entry) > AGENT_STRINGS_MAX / 2)
			return error_set(error, ERROR_TOO_LARGE, "run[%zu] is over the limit of %d bytes", i,
				AGENT_STRINGS_MAX / 2);
		build->commands[i] = text;
	}
	if (json_dumpb(list, NULL, 0, JSON_COMPACT) > RUN_JSON_MAX)
		return error_set(error, ERROR_TOO_LARGE,
			"the lines of run are over the limit of %d bytes in all: put long scripts into the "
			"image",
			RUN_JSON_MAX);
	*count = (unsigned int)json_array_size(list);
	return 0;
}

static int get_disk(json_t *body, uint64_t *bytes, struct error *error)
{
	const char *text = json_string_value(json_object_get(body, "disk"));

	if (!json_object_get(body, "disk"))
		return 0;
	if (text && !parse_size(text, TEMPLATE_DISK_MIN, TEMPLATE_DISK_MAX, bytes) &&
		*bytes % TEMPLATE_DISK_UNIT == 0)
		return 0;
	return error_set(
		error, ERROR_INVALID, "disk is not a size from 16M to 1024G in whole MiB, as a string");
}

/* An image by its name or id. */
static int hold_image(struct build *build, const char *text, const char **image, struct error *error)
{
	build->image = image_store_hold(build->api->state_directory, text, build->image_path, error);
	*image = build->image_path;
	return build->image < 0 ? -1 : 0;
}

static int get_image(struct build *build, const char **image, struct error *error)
{
	json_t *value = json_object_get(build->body, "image");
	const char *text = json_string_value(value);

	*image = text;
	if (value && (!text || !text[0]))
		return error_set(error, ERROR_INVALID,
			"image is not an absolute path, nor the name or id of an image");
	if (json_string_length(value) >= PATH_MAX)
		return error_set(error, ERROR_INVALID, "image is a path of %zu bytes, the limit is %d",
			json_string_length(value), PATH_MAX - 1);
	return text && text[0] != '/' ? hold_image(build, text, image, error) : 0;
}

static int get_order(struct build *build, struct templates_request *order, struct error *error)
{
	static const char *const fields[] = {"name", "image", "mem", "disk", "cpus", "run", NULL};

	build->body = http_body_parse(build->request, fields, error);
	if (!build->body || template_name_read(build->body, "name", &order->name, error) ||
		get_image(build, &order->image, error) ||
		template_memory_read(build->body, "mem", &order->memory_bytes, error) ||
		get_disk(build->body, &order->disk_bytes, error) ||
		(json_object_get(build->body, "cpus") &&
			http_body_number(build->body, "cpus", 1, TEMPLATE_CPUS_MAX, &order->cpus, error)) ||
		get_commands(build, &order->count, error))
		return -1;
	order->commands = build->commands;
	return 0;
}

/* --- the build --- */

static void destroy(struct build *build)
{
	run_output_finish(&build->output[0]);
	run_output_finish(&build->output[1]);
	json_decref(build->body);
	fd_close(&build->image);
	free(build);
}

static void keep_last(struct build *build, const void *bytes, size_t length)
{
	size_t kept = length < LAST_WORDS ? length : LAST_WORDS;
	size_t before = build->last_length < LAST_WORDS - kept ? build->last_length : LAST_WORDS - kept;

	memmove(build->last, build->last + build->last_length - before, before);
	memcpy(build->last + before, (const char *)bytes + length - kept, kept);
	build->last_length = before + kept;
}

static void take_output(void *context, bool is_stderr, const void *bytes, size_t length)
{
	struct build *build = context;
	const struct agent_output place = {.offset = build->written[is_stderr]};

	keep_last(build, bytes, length);
	build->written[is_stderr] += length;
	if (!build->upgraded) {
		run_output_add(&build->output[is_stderr], bytes, length);
		return;
	}
	api_stream_put(
		&build->stream, is_stderr ? AGENT_STDERR : AGENT_STDOUT, &place, sizeof place, bytes, length);
	api_stream_flush(&build->stream);
}

static bool has_room(void *context)
{
	struct build *build = context;

	return !build->upgraded || api_stream_has_room(&build->stream);
}

static void tell_progress(void *context, enum template_phase phase, unsigned int command)
{
	struct build *build = context;
	const char *busy = templates_busy_with(build->api->templates);
	json_t *progress;

	if (!build->upgraded)
		return;
	progress = json_pack("{s:s}", "phase", template_phase_name(phase));
	if (phase == TEMPLATE_RUNNING) {
		json_object_set_new(progress, "command", json_integer(command));
		json_object_set_new(progress, "commands", json_integer(build->count));
	}
	if (phase == TEMPLATE_WAITING && busy)
		json_object_set_new(progress, "for", json_string(busy));
	api_stream_put_json(&build->stream, AGENT_HOST_PROGRESS, progress);
	api_stream_flush(&build->stream);
}

static json_t *answer(struct build *build, const struct template *template)
{
	struct error ignored;
	json_t *about = template_to_json(build->api->templates, template->name, &ignored);

	if (build->upgraded)
		return json_pack("{s:o}", "template", about);
	return json_pack("{s:o,s:o,s:o}", "template", about, "stdout",
		run_output_to_json(&build->output[0], build->output[0].total), "stderr",
		run_output_to_json(&build->output[1], build->output[1].total));
}

static void reply(struct build *build, json_t *body, const struct error *error)
{
	if (build->request && body)
		http_reply_json(build->request, 200, body);
	else if (build->request)
		http_reply_error(build->request, error);
	else
		json_decref(body);
	destroy(build);
}

/* The memory goes with the stream. */
static void end_stream(struct build *build, json_t *body, const struct error *error)
{
	if (body)
		api_stream_put_json(&build->stream, AGENT_HOST_RESULT, body);
	else
		api_stream_put_error(&build->stream, error);
	api_stream_end(&build->stream);
}

static void done(void *context, struct template *template, const struct error *error)
{
	struct build *build = context;
	struct error told = *error;
	json_t *body = template ? answer(build, template) : NULL;

	/* What the command that failed had to say; a stream has shown it. */
	if (!template && build->last_length && !build->upgraded)
		text_copy_printable(
			told.cause, sizeof told.cause, build->last, strnlen(build->last, build->last_length));
	if (template && !body)
		error_set(&told, ERROR_INTERNAL, "out of memory for the answer");
	(build->upgraded ? end_stream : reply)(build, body, &told);
}

static const struct template_events events = {
	.output = take_output, .has_room = has_room, .progress = tell_progress, .done = done};

/* Nobody waits for it any more. */
static void client_left(void *context)
{
	struct build *build = context;

	build->request = NULL;
	templates_cancel(build->api->templates, build, "the client has left");
}

static int refuse_input(void *context, const struct frame *frame, const char **why)
{
	(void)context;
	(void)frame;
	*why = "it sends nothing in a build";
	return -EPROTO;
}

static void stream_has_room(void *context)
{
	struct build *build = context;

	templates_continue(build->api->templates, build);
}

/* done comes later, and ends the stream. */
static void stream_left(void *context, const char *why)
{
	(void)why;
	client_left(context);
}

static void stream_closed(void *context)
{
	destroy(context);
}

static const struct api_stream_events stream_events = {
	.frame = refuse_input, .room = stream_has_room, .left = stream_left, .closed = stream_closed};

/* The build is under way, or waits its turn. */
static void open_stream(struct build *build, struct http_request *request)
{
	const char *const headers[] = {NULL};

	build->upgraded = true;
	build->request = NULL;
	api_stream_open(&build->stream, build->api, request, headers, &stream_events, build);
	if (templates_busy_with(build->api->templates))
		tell_progress(build, TEMPLATE_WAITING, 0);
}

void api_templates_post(struct api *api, struct http_request *request)
{
	struct build *build = calloc(1, sizeof *build);
	struct templates_request order = {.events = &events, .context = build};
	struct error error;

	error_set(&error, ERROR_INTERNAL, "out of memory for the build");
	if (!build) {
		http_reply_error(request, &error);
		return;
	}
	*build = (struct build){.api = api, .request = request, .image = -1};
	if (get_order(build, &order, &error) || templates_build(api->templates, &order, &error)) {
		destroy(build);
		http_reply_error(request, &error);
		return;
	}
	build->count = order.count;
	if (request->wants_upgrade) {
		open_stream(build, request);
		return;
	}
	request->left = client_left;
	request->left_context = build;
}
