/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_build.h"
#include "common/frame.h"
#include "common/io.h"
#include "host-ctl/cli/cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct follower {
	struct client *client;
	const json_t *order;
	struct frame_reader reader;
	uint64_t received[2]; /* bytes of stdout and stderr */
	json_t **answer;
	struct client_error *error;
};

static int fail_protocol(struct follower *follower, const char *what)
{
	client_error_set(follower->error, "protocol", "the daemon broke the protocol: %s", what);
	return -EPROTO;
}

static int take_output(struct follower *follower, const struct frame *frame)
{
	bool is_stderr = frame->type == AGENT_STDERR;
	struct agent_output output;
	int r;

	if (frame->length < sizeof output)
		return fail_protocol(follower, "output without its offset");
	memcpy(&output, frame->payload, sizeof output);
	if (output.offset != follower->received[is_stderr])
		return fail_protocol(follower, "output that does not join on to what came before");
	follower->received[is_stderr] += frame->length - sizeof output;
	r = io_write_all(is_stderr ? STDERR_FILENO : STDOUT_FILENO, frame->payload + sizeof output,
		frame->length - sizeof output);
	if (r < 0)
		client_error_set(follower->error, "io", "cannot write to standard %s: %s",
			is_stderr ? "error" : "output", strerror(-r));
	return r;
}

/* NULL, or the line that runs. */
static const char *line_of(const struct follower *follower, const json_t *progress)
{
	json_int_t command = json_integer_value(json_object_get(progress, "command"));

	if (command < 1)
		return NULL;
	return json_string_value(
		json_array_get(json_object_get(follower->order, "run"), (size_t)command - 1));
}

static int take_progress(const struct follower *follower, const json_t *progress)
{
	const char *phase = json_string_value(json_object_get(progress, "phase"));
	const char *busy = json_string_value(json_object_get(progress, "for"));
	const char *line = line_of(follower, progress);
	struct cli_colours colours = cli_colours_for(stderr);
	char shown[CLI_TEXT_MAX] = "", clean[CLI_TEXT_MAX];

	/* That it takes longer than a build is for everybody, the rest for who looks on. */
	if (!phase || (!busy && !isatty(STDERR_FILENO)))
		return 0;
	cli_clean_text(clean, sizeof clean, phase);
	if (line || busy)
		cli_clean_text(shown, sizeof shown, line ? line : busy);
	if (line)
		fprintf(stderr, "%s%s command %lld of %zu: %s%s\n", colours.dim, clean,
			(long long)json_integer_value(json_object_get(progress, "command")),
			json_array_size(json_object_get(follower->order, "run")), shown, colours.reset);
	else if (busy)
		fprintf(stderr, "%s%s: template %s is being built%s\n", colours.dim, clean, shown,
			colours.reset);
	else
		fprintf(stderr, "%s%s%s\n", colours.dim, clean, colours.reset);
	return 0;
}

static int take_error(struct follower *follower, const json_t *object)
{
	if (client_error_parse(follower->error, object) < 0)
		return fail_protocol(follower, "an error frame without an error object");
	follower->error->http_status = 101;
	return -EREMOTEIO;
}

static int take_json(struct follower *follower, const struct frame *frame)
{
	json_t *object = json_loadb((const char *)frame->payload, frame->length, 0, NULL);
	int r = 0;

	if (!json_is_object(object))
		r = fail_protocol(follower, "a frame that is no JSON object");
	else if (frame->type == AGENT_HOST_PROGRESS)
		r = take_progress(follower, object);
	else if (frame->type == AGENT_HOST_ERROR)
		r = take_error(follower, object);
	else
		*follower->answer = json_incref(object);
	json_decref(object);
	return r;
}

static int take_frame(struct follower *follower, const struct frame *frame)
{
	switch (frame->type) {
	case AGENT_STDOUT:
	case AGENT_STDERR:
		return take_output(follower, frame);
	case AGENT_HOST_PROGRESS:
	case AGENT_HOST_ERROR:
	case AGENT_HOST_RESULT:
		return take_json(follower, frame);
	default:
		return fail_protocol(follower, "a frame that may not come from it");
	}
}

static int read_more(struct follower *follower)
{
	int r = frame_reader_fill(&follower->reader, follower->client->fd);

	if (r > 0 || r == -EINTR)
		return 0;
	if (r < 0 && r != -ECONNRESET) {
		client_error_set(follower->error, "io", "lost the daemon: %s", strerror(-r));
		return r;
	}
	client_error_set(follower->error, "incomplete", "the daemon closed the stream without a result");
	return -ECONNRESET;
}

static int follow(struct follower *follower)
{
	struct frame frame;
	int r = 0;

	while (r == 0 && !*follower->answer) {
		r = frame_reader_next(&follower->reader, &frame);
		if (r < 0)
			return fail_protocol(follower, "a frame header that makes no sense");
		r = r > 0 ? take_frame(follower, &frame) : read_more(follower);
	}
	return r;
}

int cmd_build_follow(struct client *client, const json_t *order, json_t **answer, struct client_error *error)
{
	struct follower follower = {.client = client, .order = order, .answer = answer, .error = error};
	int r = frame_reader_init(&follower.reader, AGENT_FRAME_MAX);

	*answer = NULL;
	if (r == 0)
		r = frame_reader_feed(
			&follower.reader, client->buffer + client->start, client->end - client->start);
	client->start = client->end = 0;
	if (r == 0)
		r = follow(&follower);
	else
		client_error_set(error, "io", "out of memory for the build's output");
	frame_reader_finish(&follower.reader);
	return r;
}
