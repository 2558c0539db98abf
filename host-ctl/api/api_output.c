/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/sandboxes/ID/commands/CMD/output: what a command wrote, from an offset on. With ?wait=true a
 * request that finds nothing new waits until there is something, or the command has ended, at most
 * API_LOOK_MS. It reads on its own: who is attached stays so.
 */
#include "host-ctl/api/api_commands.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MAX = 256 * 1024 };

/* What is asked for. */
struct wanted {
	uint64_t offset;
	bool is_stderr, wait;
};

/* A request for what is not there yet. */
struct waiting {
	struct command_waiter waiter;
	struct http_request *request;
	struct command *command;
	struct wanted wanted;
	struct loop_source *timer;
};

static int parse_output_query(const struct http_request *request, struct wanted *wanted, struct error *error)
{
	static const char *const parameters[] = {"stream", "offset", "wait", NULL};
	const char *stream = http_query(request, "stream"), *at = http_query(request, "offset");
	const char *wait = http_query(request, "wait");
	char *end = NULL;

	if (http_check_query(request, parameters, error))
		return -1;
	wanted->is_stderr = stream && !strcmp(stream, "stderr");
	if (stream && !wanted->is_stderr && strcmp(stream, "stdout") != 0)
		return error_set(error, ERROR_INVALID, "stream is stdout or stderr, not \"%.32s\"", stream);
	errno = 0;
	wanted->offset = at ? strtoull(at, &end, 10) : 0;
	if (at && (at[0] < '0' || at[0] > '9' || *end || errno))
		return error_set(error, ERROR_INVALID, "offset is not a whole number: \"%.32s\"", at);
	wanted->wait = wait && !strcmp(wait, "true");
	if (wait && !wanted->wait && strcmp(wait, "false") != 0)
		return error_set(error, ERROR_INVALID, "wait is true or false, not \"%.32s\"", wait);
	return 0;
}

static json_t *read_output(const struct command *command, const struct wanted *wanted, struct error *error)
{
	const struct run_output *output = &command->output[wanted->is_stderr];
	const uint64_t offset = wanted->offset;
	const uint8_t *bytes = (const uint8_t *)"";
	ptrdiff_t length = run_output_peek(output, offset, &bytes);
	const char *key = "data";
	json_t *data;

	if (api_check_fetched(command, error))
		return NULL;
	/* Until the guest has sent again what it holds, it is not known how much there is. */
	if (command->returns && command->state != COMMAND_ENDED && (!command->started || length == -EINVAL)) {
		error_set(error, ERROR_NOT_READY, "command %s is being taken back: try again", command->id);
		return NULL;
	}
	if (length == -EINVAL && command->uncounted) {
		error_set(error, ERROR_CONFLICT,
			"output at offset %llu is lost: how much command %s had written when its daemon "
			"ended is not known",
			(unsigned long long)offset, command->id);
		return NULL;
	}
	if (length < 0) {
		error_set(error, length == -ENODATA ? ERROR_CONFLICT : ERROR_INVALID,
			length == -ENODATA ? "output at offset %llu is no longer held: all from %llu on is"
					   : "offset %llu is beyond the %llu bytes that were written",
			(unsigned long long)offset,
			(unsigned long long)(length == -ENODATA ? run_output_oldest(output) : output->total));
		return NULL;
	}
	if (length > OUTPUT_MAX)
		length = OUTPUT_MAX;
	data = json_stringn((const char *)bytes, (size_t)length);
	if (!data) {
		key = "data_b64";
		data = text_base64_to_json(bytes, (size_t)length);
	}
	return json_pack("{s:o,s:I,s:I,s:I,s:b}", key, data, "offset", (json_int_t)offset, "next_offset",
		(json_int_t)offset + (json_int_t)length, "bytes", (json_int_t)output->total, "ended",
		(int)(command->state == COMMAND_ENDED));
}

static void reply(struct http_request *request, const struct command *command, const struct wanted *wanted)
{
	struct error error;
	json_t *body = read_output(command, wanted, &error);

	if (body)
		http_reply_json(request, 200, body);
	else
		http_reply_error(request, &error);
}

/* --- waiting --- */

static bool is_waited_for(const struct command *command, const struct wanted *wanted)
{
	if (wanted->wait && command->fetches)
		return true;
	return wanted->wait && command->state != COMMAND_ENDED && (!command->returns || command->started) &&
	       wanted->offset == command->output[wanted->is_stderr].total;
}

static void end_waiting(struct waiting *waiting)
{
	struct command *command = waiting->command;

	command_leave(&waiting->waiter);
	loop_remove(waiting->timer);
	free(waiting);
	command_drop(command);
}

/* There is news, or its time is over. */
static void answer(void *context)
{
	struct waiting *waiting = context;

	reply(waiting->request, waiting->command, &waiting->wanted);
	end_waiting(waiting);
}

/* Not from here: an answer may bring the next request, and with that anything. */
static void has_news(struct command_waiter *waiter)
{
	struct waiting *waiting = (struct waiting *)((char *)waiter - offsetof(struct waiting, waiter));

	if (!is_waited_for(waiting->command, &waiting->wanted))
		loop_set_timer(waiting->timer, 1);
}

static void client_left(void *context)
{
	end_waiting(context);
}

static void wait_for(
	struct api *api, struct http_request *request, struct command *command, const struct wanted *wanted)
{
	struct waiting *waiting = calloc(1, sizeof *waiting);
	struct loop_source *timer = waiting ? loop_add_timer(api->loop, answer, waiting) : NULL;

	if (!timer || loop_set_timer(timer, API_LOOK_MS * CLOCK_NS_PER_MS) < 0) {
		/* How it is now is an answer, too. */
		loop_remove(timer);
		free(waiting);
		reply(request, command, wanted);
		return;
	}
	*waiting = (struct waiting){.waiter.news = has_news,
		.request = request,
		.command = command,
		.wanted = *wanted,
		.timer = timer};
	request->left = client_left;
	request->left_context = waiting;
	command_hold(command);
	command_wait(command, &waiting->waiter);
}

void api_command_output(struct api *api, struct http_request *request)
{
	struct error error;
	struct command *command = api_find_command(api, request, &error);
	struct wanted wanted = {.offset = 0};

	if (!command || parse_output_query(request, &wanted, &error))
		http_reply_error(request, &error);
	else if (is_waited_for(command, &wanted))
		wait_for(api, request, command, &wanted);
	else
		reply(request, command, &wanted);
}
